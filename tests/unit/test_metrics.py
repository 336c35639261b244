"""The summary of a log: hand-counted numbers, its schema, and that order and resumption change nothing."""

import dataclasses
import hashlib
import json
import math
import random
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from seedbench.errors import SeedBenchError
from seedbench.metrics import summarise
from seedbench.statistics import clustered, macro, mean_score, wilson
from seedbench.types import Episode, Outcome, Turn, Usage

SCHEMA = json.loads((files("seedbench") / "schemas" / "summary.schema.json").read_text(encoding="utf-8"))
PANEL = {
    "name": "alfworld/valid_unseen@1",
    "hash": "ab" * 32,
    "n": 4,
    "suite": "alfworld",
    "split": "valid_unseen",
    "official": True,
}


def turn(valid: bool = True, admissible: bool | None = True) -> Turn:
    return Turn(response="r", action="look", valid=valid, admissible=admissible, observation="o")


def episode(
    task: str,
    outcome: Outcome,
    *,
    family: str = "heat",
    repeat: int = 0,
    score: float | None = None,
    seconds: float = 1.0,
    turns: Sequence[Turn] = (),
    usage: Usage | None = None,
    metrics: dict[str, float] | None = None,
) -> Episode:
    success = outcome is Outcome.SOLVED
    return Episode(
        task=task,
        task_sha256=hashlib.sha256(task.encode()).hexdigest(),
        family=family,
        repeat=repeat,
        seed=1,
        outcome=outcome,
        success=success,
        score=float(success) if score is None else score,
        instruction="",
        first_observation="",
        turns=tuple(turns),
        usage=usage or Usage(),
        seconds=seconds,
        metrics=metrics or {},
    )


def summary(episodes: Sequence[Episode], **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "panel": PANEL,
        "protocol": {"name": "alfworld/seed@1", "hash": "11" * 32},
        "policy": {"name": "oracle", "identity": {"kind": "oracle", "nested": {"weights": [1, None]}}},
        "repeats": 1,
        "seed": 7,
        "families": ["heat", "look"],
    }
    result = summarise(iter(episodes), **{**settings, **changes})
    jsonschema.Draft202012Validator(SCHEMA).validate(result)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    return result


MIXED = [
    episode(
        "a",
        Outcome.SOLVED,
        seconds=0.1,
        turns=[turn(), turn(valid=False, admissible=False)],
        usage=Usage(100, 10),
        metrics={"type": 1.0, "price": 1.0},
    ),
    episode(
        "b",
        Outcome.STEP_LIMIT,
        seconds=0.2,
        score=0.25,
        turns=[turn(admissible=None)] * 3,
        metrics={"price": 0.0, "type": 0.5},
    ),
    episode("c", Outcome.SOLVED, family="look", seconds=0.3, turns=[turn(admissible=False)], metrics={"type": 0.0}),
    episode(
        "d",
        Outcome.INFRA_ERROR,
        seconds=0.4,
        score=9.0,
        turns=[turn(valid=False)] * 5,
        usage=Usage(7, 3),
        metrics={"type": 1.0, "lost": 1.0},
    ),
]


def test_counted_by_hand() -> None:
    got = summary(MIXED, wall_seconds=0.75, gpu_seconds=1.5)
    assert got["schema"] == "seedbench.summary/2"
    assert got["panel"] == PANEL
    assert got["protocol"] == {"name": "alfworld/seed@1", "hash": "11" * 32}
    assert got["policy"]["identity"] == {"kind": "oracle", "nested": {"weights": [1, None]}}
    assert (got["repeats"], got["seed"], got["episodes"]) == (1, 7, 4)
    assert got["success"]["families"]["heat"] == wilson(1, 2).to_json()
    assert got["success"]["families"]["look"] == wilson(1, 1).to_json()
    assert got["success"]["micro"] == wilson(2, 3).to_json()
    assert got["success"]["macro"] == macro([[(1, 1), (0, 1)], [(1, 1)]]).to_json()
    assert (got["success"]["macro"]["rate"], got["success"]["macro"]["n"]) == (0.75, 3)
    # 1, 0.25, 1: mean 0.75, deviation 0.433013 with two degrees of freedom; 4.302653 * 0.433013 / sqrt(3) = 1.0757.
    assert got["score"] == {"mean": 2.25 / 3, "n": 3, "ci": [0.0, 1.0]}
    # Only "a" and "b" have a price; the infrastructure error counts in no mean and names no metric.
    assert got["metrics"] == {
        "price": {"mean": 0.5, "n": 2, "ci": wilson(1, 2).to_json()["ci"]},
        "type": {"mean": 0.5, "n": 3, "ci": [0.0, 1.0]},
    }
    assert list(got["metrics"]) == ["price", "type"]
    # Six turns of three counted episodes; the environment judged three of them and refused two. The five of the
    # infrastructure error were spent all the same.
    assert got["turns"] == {"total": 11, "mean": 2.0, "invalid_rate": 1 / 6, "inadmissible_rate": 2 / 3}
    assert got["outcomes"] == {
        "solved": 2,
        "failed": 0,
        "step_limit": 1,
        "context_overflow": 0,
        "infra_error": 1,
    }
    assert got["tokens"] == {"prompt": 107, "generated": 13}
    assert got["seconds"] == {"episodes": 1.0, "wall": 0.75, "gpu": 1.5}


def test_extra_keys_of_the_callers_are_left_out() -> None:
    got = summary([], panel={**PANEL, "tasks": ["a"]}, protocol={"name": "p", "hash": "h", "steps": 30})
    assert got["panel"] == PANEL
    assert got["protocol"] == {"name": "p", "hash": "h"}


def test_an_empty_run_has_no_rates() -> None:
    got = summary([])
    nothing = {"rate": None, "n": 0, "ci": [0.0, 1.0]}
    assert got["success"] == {
        "micro": nothing,
        "macro": nothing,
        "families": {"heat": nothing, "look": nothing},
    }
    assert got["score"] == {"mean": None, "n": 0, "ci": [0.0, 1.0]}
    assert got["metrics"] == {}
    assert got["turns"] == {"total": 0, "mean": None, "invalid_rate": None, "inadmissible_rate": None}
    assert got["seconds"] == {"episodes": 0.0, "wall": None, "gpu": None}


def test_a_run_of_infrastructure_errors_has_no_rates_but_its_costs() -> None:
    errors = [episode(str(i), Outcome.INFRA_ERROR, turns=[turn()], usage=Usage(5, 1)) for i in range(3)]
    got = summary(errors)
    assert (got["episodes"], got["outcomes"]["infra_error"]) == (3, 3)
    assert got["success"]["micro"]["rate"] is None
    assert got["turns"] == {"total": 3, "mean": None, "invalid_rate": None, "inadmissible_rate": None}
    assert got["tokens"] == {"prompt": 15, "generated": 3}
    assert got["seconds"]["episodes"] == 3.0


def test_macro_is_null_while_a_family_has_no_counted_episode() -> None:
    got = summary([episode("a", Outcome.SOLVED), episode("c", Outcome.INFRA_ERROR, family="look")])
    assert got["success"]["macro"] == {"rate": None, "n": 1, "ci": [0.0, 1.0]}
    assert got["success"]["micro"]["rate"] == 1.0
    assert list(got["success"]["families"]) == ["heat", "look"]


def test_the_last_record_of_an_attempt_counts_alone() -> None:
    retried = [
        episode("a", Outcome.INFRA_ERROR, seconds=9.0, usage=Usage(50, 50)),
        *MIXED[1:3],
        MIXED[0],
        episode("d", Outcome.INFRA_ERROR, seconds=5.0),
        MIXED[3],
    ]
    assert summary(retried) == summary(MIXED)


def test_repeats_are_attempts_at_one_task() -> None:
    attempts = [
        episode(task, Outcome.SOLVED if won else Outcome.FAILED, repeat=k)
        for task, wins in {"a": 3, "b": 0, "c": 2, "d": 1}.items()
        for k, won in enumerate([True] * wins + [False] * (3 - wins))
    ]
    got = summary(attempts, repeats=3, families=["heat"])
    expected = clustered([(3, 3), (0, 3), (2, 3), (1, 3)]).to_json()
    assert got["success"]["micro"] == expected
    assert got["success"]["families"]["heat"] == expected
    assert got["success"]["macro"] == expected
    assert got["episodes"] == 12


def test_scores_and_metrics_are_clustered_by_task() -> None:
    scores = {"a": [1.0, 0.75], "b": [0.1, 0.2], "c": [0.5, 0.9]}
    attempts = [
        episode(task, Outcome.FAILED, repeat=k, score=score, metrics={"half": score / 2})
        for task, of_task in scores.items()
        for k, score in enumerate(of_task)
    ]
    got = summary(attempts, repeats=2, families=["heat"])
    assert got["score"] == mean_score(list(scores.values())).to_json()
    assert got["metrics"]["half"] == mean_score([[s / 2 for s in of_task] for of_task in scores.values()]).to_json()
    assert got["score"]["ci"] != mean_score([[s] for of_task in scores.values() for s in of_task]).to_json()["ci"]


def test_where_score_is_success_both_have_the_same_interval() -> None:
    attempts = [
        episode(task, Outcome.SOLVED if won else Outcome.STEP_LIMIT, repeat=k)
        for task, wins in {"a": [1, 1], "b": [0, 1], "c": [0, 0]}.items()
        for k, won in enumerate(wins)
    ]
    got = summary(attempts, repeats=2, families=["heat"])
    assert got["score"]["ci"] == got["success"]["micro"]["ci"]


def test_order_changes_no_digit() -> None:
    rng = random.Random(3)
    log = [
        episode(
            f"{family}{i}",
            rng.choice(list(Outcome)),
            family=family,
            repeat=k,
            score=rng.random() * 10 ** rng.randint(-12, 3),
            seconds=rng.expovariate(0.1),
            turns=[turn(rng.random() < 0.8, rng.choice([True, False, None])) for _ in range(rng.randint(0, 9))],
            usage=Usage(rng.randint(0, 999), rng.randint(0, 99)),
            metrics={name: rng.random() for name in rng.sample(["option", "price", "type"], rng.randint(0, 3))},
        )
        for family in ("heat", "look", "pick")
        for i in range(15)
        for k in range(3)
    ]
    families = ["heat", "look", "pick"]
    expected = json.dumps(summary(log, repeats=3, families=families))
    assert len({sum(e.seconds for e in rng.sample(log, len(log))) for _ in range(20)}) > 1
    for _ in range(20):
        shuffled = rng.sample(log, len(log))
        assert json.dumps(summary(shuffled, repeats=3, families=families)) == expected


def test_seconds_are_summed_exactly() -> None:
    log = [episode(str(i), Outcome.FAILED, seconds=0.1) for i in range(10)]
    assert sum(e.seconds for e in log) != 1.0
    assert summary(log)["seconds"]["episodes"] == math.fsum([0.1] * 10) == 1.0


def test_a_foreign_family_is_refused() -> None:
    with pytest.raises(SeedBenchError, match=r"family 'cool'.*heat, look.*another panel"):
        summary([episode("a", Outcome.SOLVED, family="cool")])


def test_transcripts_are_not_kept() -> None:
    """An episode is let go of before the next one is asked for."""
    alive: set[int] = set()

    class Watched(Episode):
        __slots__ = ()

        def __del__(self) -> None:
            alive.discard(id(self))

    most = 0

    def log() -> Any:
        nonlocal most
        for i in range(50):
            plain = episode(str(i), Outcome.SOLVED, turns=[turn()] * 3)
            watched = Watched(**{f.name: getattr(plain, f.name) for f in dataclasses.fields(plain)})
            alive.add(id(watched))
            yield watched
            most = max(most, len(alive))
            del watched

    got = summarise(
        log(),
        panel=PANEL,
        protocol={"name": "p", "hash": "h"},
        policy={"name": "q", "identity": {}},
        repeats=1,
        seed=0,
        families=["heat"],
    )
    assert got["episodes"] == 50
    assert most <= 2


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["extra"], 1),
        (["panel", "extra"], 1),
        (["success", "micro", "extra"], 1),
        (["outcomes", "timeout"], 0),
        (["success", "micro", "rate"], 100.0),
        (["success", "micro", "ci"], [0.5]),
        (["score", "ci"], [0.5]),
        (["metrics", "price", "rate"], 0.5),
        (["metrics", "price", "mean"], 1.5),
        (["metrics", "no name"], {"mean": 0.5, "n": 1, "ci": [0.1, 0.9]}),
        (["episodes"], -1),
        (["schema"], "seedbench.summary/1"),
        (["turns", "total"], None),
        (["turns", "total"], 2.5),
        (["seconds", "gpu"], -1.0),
    ],
)
def test_the_schema_is_closed(path: list[str], value: Any) -> None:
    broken = json.loads(json.dumps(summary(MIXED)))
    place = broken
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(broken)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["required"]) == set(SCHEMA["properties"]) == set(summary([]))


def test_the_documented_example_has_the_shape() -> None:
    example = (Path(__file__).parents[2] / "docs" / "summary.md").read_text(encoding="utf-8")
    body = example.split("```json\n")[1].split("```")[0]
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(body))
