"""Runs: whole, resumed, shuffled, in parts; the summary is always that of an undisturbed run."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError
from seedbench.evaluate import Evaluation, evaluate
from seedbench.policies.oracle import OraclePolicy
from seedbench.policies.replay import ReplayPolicy
from seedbench.runs import LOG, MANIFEST, SUMMARY, read_episodes, read_manifest, write_json
from seedbench.tables import load_summary
from seedbench.ui.live import Progress
from tests.eval.helpers import (
    Babbler,
    CountingSuite,
    Script,
    installed,
    job,
    logged,
    panel,
    protocol,
    read_summary,
    valid_summary,
    without_seconds,
)


@pytest.fixture(autouse=True)
def suite() -> Iterator[CountingSuite]:
    counting = CountingSuite()
    with installed("counting", counting):
        yield counting


# The whole


def test_oracle_and_summary(tmp_path: Path, suite: CountingSuite) -> None:
    policy = OraclePolicy(lambda task: suite.oracle(panel(), task))
    summary = valid_summary(job(tmp_path / "run", policy))
    assert summary["episodes"] == 12
    assert summary["outcomes"] == {"solved": 12, "failed": 0, "step_limit": 0, "context_overflow": 0, "infra_error": 0}
    assert summary["success"]["micro"]["rate"] == summary["success"]["macro"]["rate"] == 1.0
    assert {family: value["n"] for family, value in summary["success"]["families"].items()} == {
        "one": 4,
        "two": 4,
        "three": 4,
    }
    assert summary["turns"] == {"total": 24, "mean": 2.0, "invalid_rate": 0.0, "inadmissible_rate": 0.0}
    assert summary["panel"] == {
        "name": "counting/train@1", "hash": panel().hash, "n": 12,
        "suite": "counting", "split": "train", "official": False,
    }  # fmt: skip
    assert summary["protocol"] == {"name": "counting/small@1", "hash": protocol().hash}


def test_manifest(tmp_path: Path) -> None:
    valid_summary(job(tmp_path / "run", Babbler(), seed=5, repeats=2, shuffle=3))
    manifest = read_manifest(tmp_path / "run")
    assert manifest["settings"] == {
        "panel": {"name": "counting/train@1", "hash": panel().hash},
        "protocol": {"name": "counting/small@1", "hash": protocol().hash},
        "repeats": 2, "seed": 5, "engine": "native", "policy": {"kind": "babbler"},
    }  # fmt: skip
    assert manifest["protocol"] == protocol().content()
    assert manifest["configuration"] == {"keep_prompts": False, "max_infra": 0.05, "shuffle": 3}
    assert manifest["packages"]["python"].startswith("3.")
    assert "jinja2" in manifest["packages"]
    (session,) = manifest["sessions"]
    assert "packages" not in session
    assert session["concurrency"] == 16
    assert session["machine"]["cores"] >= 1
    assert session["wall_seconds"] >= 0


def test_gpu_seconds_are_wall_seconds_of_every_gpu_and_unknown_where_one_session_is(tmp_path: Path) -> None:
    policy, folder = Babbler(), tmp_path / "run"
    totals = []
    for gpus in (0, 2, None):
        policy.gpus = gpus
        totals.append(evaluate(job(folder, policy), Progress())["seconds"])
    first, second, third = read_manifest(folder)["sessions"]
    assert [session["gpu_seconds"] for session in (first, second, third)] == [0, 2 * second["wall_seconds"], None]
    assert totals[0]["gpu"] == 0
    assert totals[1]["gpu"] == 2 * second["wall_seconds"]
    assert totals[2]["gpu"] is None
    assert totals[2]["wall"] == pytest.approx(sum(s["wall_seconds"] for s in (first, second, third)), abs=1e-9)


def test_scripted_policies_use_no_gpu(tmp_path: Path, suite: CountingSuite) -> None:
    policy = OraclePolicy(lambda task: suite.oracle(panel(), task))
    assert evaluate(job(tmp_path / "run", policy), Progress())["seconds"]["gpu"] == 0
    again = evaluate(job(tmp_path / "replay", ReplayPolicy(tmp_path / "run")), Progress())
    assert again["seconds"]["gpu"] == 0


def test_older_summary_is_rebuilt_by_the_same_evaluation(tmp_path: Path) -> None:
    work = job(tmp_path / "run", Babbler())
    new = valid_summary(work)
    old = {**new, "schema": "seedbench.summary/1", "seconds": {"episodes": 1.0, "wall": 1.0}}
    write_json(work.out / SUMMARY, old)
    manifest = read_manifest(work.out)
    del manifest["sessions"][0]["gpu_seconds"]
    write_json(work.out / MANIFEST, manifest)
    with pytest.raises(SeedBenchError, match="run the same `seedbench eval` command again"):
        load_summary(work.out)
    asked = Babbler()
    asked.gpus = 0
    assert evaluate(job(work.out, asked), Progress())["seconds"]["gpu"] is None
    assert asked.asked == 0
    assert without_seconds(load_summary(work.out)) == new


def test_what_the_training_says_of_a_checkpoint_is_in_the_manifest(tmp_path: Path) -> None:
    policy = Babbler()
    evaluate(job(tmp_path / "plain", policy), Progress())
    assert read_manifest(tmp_path / "plain")["policy"] == {"name": "babbler"}
    policy.origin = {"method": "seed", "update": 100}
    evaluate(job(tmp_path / "trained", policy), Progress())
    assert read_manifest(tmp_path / "trained")["policy"] == {
        "name": "babbler",
        "trained": {"method": "seed", "update": 100},
    }
    assert read_summary(tmp_path / "trained") == read_summary(tmp_path / "plain")


def test_session_of_another_version_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    valid_summary(job(tmp_path / "run", Babbler()))
    monkeypatch.setattr("seedbench.evaluate.package_versions", lambda: {"python": "4.0"})
    valid_summary(job(tmp_path / "run", Babbler()))
    manifest = read_manifest(tmp_path / "run")
    assert manifest["packages"]["python"] != "4.0"
    assert [session.get("packages") for session in manifest["sessions"]] == [None, {"python": "4.0"}]


def test_repeats_differ_and_are_all_played(tmp_path: Path) -> None:
    summary = valid_summary(job(tmp_path / "run", Babbler(), repeats=3))
    assert summary["episodes"] == 36
    assert summary["success"]["micro"]["n"] == 36
    records = logged(tmp_path / "run")
    assert Counter(record["repeat"] for record in records) == {0: 12, 1: 12, 2: 12}
    assert len({record["seed"] for record in records}) == 36
    once = tmp_path / "once"
    valid_summary(job(once, Babbler()))
    assert logged(once) == [record for record in records if record["repeat"] == 0]


def test_policy_is_opened_and_closed_once(tmp_path: Path) -> None:
    policy = Script("no tags")
    valid_summary(job(tmp_path / "run", policy))
    assert policy.events == ["open", "close"]


def test_environments_are_closed(tmp_path: Path, suite: CountingSuite) -> None:
    valid_summary(job(tmp_path / "run", Babbler(), concurrency=4))
    assert [env.closed for env in suite.made] == [1] * len(suite.made)
    with pytest.raises(ZeroDivisionError):
        _unwrapped(job(tmp_path / "other", Script(ZeroDivisionError()), concurrency=4))
    assert [env.closed for env in suite.made] == [1] * len(suite.made)


def _unwrapped(work: Evaluation) -> None:
    """Evaluate; a bug of a policy is taken out of the group that a task group makes of it."""
    try:
        evaluate(work, Progress())
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


# Nothing but the settings matters


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("expected") / "run"
    with installed("counting", CountingSuite()):
        summary = valid_summary(job(folder, Babbler(jitter=False), repeats=3, concurrency=1))
    return summary, logged(folder)


@pytest.mark.parametrize("concurrency", [1, 3, 16, 64])
@pytest.mark.parametrize("shuffle", [None, 1, 2])
def test_concurrency_and_order(
    tmp_path: Path, expected: tuple[Any, Any], concurrency: int, shuffle: int | None
) -> None:
    work = job(tmp_path / "run", Babbler(), repeats=3, concurrency=concurrency, shuffle=shuffle)
    assert (valid_summary(work), logged(work.out)) == expected
    if concurrency == 1:
        plain = [task.id for task in sorted(work.panel.tasks, key=lambda task: task.sha256)] * 3
        played = [episode.task for episode in read_episodes(work.out)]
        assert (played == plain) == (shuffle is None)


def test_the_expected_run_has_something_to_get_wrong(expected: tuple[Any, Any]) -> None:
    summary, records = expected
    assert {outcome for outcome, count in summary["outcomes"].items() if count} == {"solved", "failed", "step_limit"}
    assert 0 < summary["turns"]["invalid_rate"] < 1
    assert 0 < summary["turns"]["inadmissible_rate"] < 1
    assert len({json.dumps(record["turns"]) for record in records}) > 20


@pytest.mark.parametrize("cut", range(0, 36, 5))
@pytest.mark.parametrize("torn", [b"", b'{"task": "train/on'])
def test_resume_at_any_point(tmp_path: Path, expected: tuple[Any, Any], cut: int, torn: bytes) -> None:
    work = job(tmp_path / "run", Babbler(), repeats=3, shuffle=cut)
    valid_summary(work)
    lines = (work.out / LOG).read_bytes().splitlines(keepends=True)
    (work.out / LOG).write_bytes(b"".join(lines[:cut]) + torn)
    (work.out / SUMMARY).unlink()
    again = Babbler()
    assert (valid_summary(job(tmp_path / "run", again, repeats=3)), logged(work.out)) == expected
    assert len(list(read_episodes(work.out))) == 36
    assert again.asked == sum(len(record["turns"]) for record in map(json.loads, lines[cut:]))


def test_finished_run_is_not_played_again(tmp_path: Path, expected: tuple[Any, Any]) -> None:
    work = job(tmp_path / "run", Babbler(), repeats=3)
    valid_summary(work)
    before = (work.out / LOG).read_bytes()
    again = Babbler()
    assert valid_summary(job(tmp_path / "run", again, repeats=3)) == expected[0]
    assert (again.asked, (work.out / LOG).read_bytes()) == (0, before)


def test_summary_can_be_rebuilt(tmp_path: Path) -> None:
    work = job(tmp_path / "run", Babbler())
    summary = valid_summary(work)
    (work.out / SUMMARY).write_text("damaged")
    valid_summary(work)
    assert read_summary(work.out) == summary


def test_subsets_play_the_same_episodes(tmp_path: Path) -> None:
    valid_summary(job(tmp_path / "whole", Babbler(), repeats=2))
    whole = {(record["task"], record["repeat"]): record for record in logged(tmp_path / "whole")}
    for families, limit in ((["two"], None), ([], 4), (["three", "one"], 3)):
        part = panel().subset(families, limit)
        folder = tmp_path / part.name.replace("/", "-")
        summary = valid_summary(job(folder, Babbler(), panel=part, repeats=2))
        assert summary["episodes"] == 2 * len(part.tasks)
        assert all(record == whole[record["task"], record["repeat"]] for record in logged(folder))
        assert set(summary["success"]["families"]) == set(part.families())


def test_seed_changes_episodes(tmp_path: Path) -> None:
    valid_summary(job(tmp_path / "a", Babbler()))
    valid_summary(job(tmp_path / "b", Babbler(), seed=1))
    assert not {r["seed"] for r in logged(tmp_path / "a")} & {r["seed"] for r in logged(tmp_path / "b")}
