"""Comparing run folders: which test is used, what is refused and in which words, what the sentence says."""

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench.compare import Report, compare, p_text
from seedbench.errors import SeedBenchError, UsageError
from seedbench.metrics import summarise
from seedbench.runs import write_json
from seedbench.statistics.paired import bootstrap, detectable, holm, mcnemar, newcombe, permutation, stratified
from seedbench.statistics.seeds import crossed
from seedbench.types import Episode, Outcome, Usage

Results = Mapping[str, Sequence[float | None]]
"""`family/number` -> score of each attempt; None: an infrastructure error."""


def write_run(folder: Path, results: Results, *, shuffle: int = 0, name: str = "tiny", **changed: Any) -> Path:
    """A run folder with these results, success where the score is 1; `changed` replaces panel, protocol..."""
    episodes = []
    for task, scores in results.items():
        for repeat, score in enumerate(scores):
            outcome = Outcome.INFRA_ERROR if score is None else Outcome.SOLVED if score == 1 else Outcome.FAILED
            sha256 = hashlib.sha256(task.encode()).hexdigest()
            family = task.partition("/")[0]
            episodes.append(
                Episode(task, sha256, family, repeat, 0, outcome, score == 1, score or 0.0, "", "", (), Usage(), 0.1)
            )
    random.Random(shuffle).shuffle(episodes)
    families = list(dict.fromkeys(episode.family for episode in sorted(episodes, key=lambda e: e.task)))
    panel = {"name": "tiny/test@1", "hash": "aa", "n": len(results), "suite": "tiny", "split": "test", "official": True}
    settings: dict[str, Any] = {
        "panel": panel,
        "protocol": {"name": "tiny/plain@1", "hash": "cc"},
        "repeats": max(len(scores) for scores in results.values()),
        "environment": {},
        **changed,
    }
    limits = settings.pop("limits", {"steps": 12})
    summary = summarise(
        episodes, **settings, policy={"name": name, "identity": {"kind": name}}, seed=0, families=families
    )
    folder.mkdir(parents=True)
    log = "".join(json.dumps(episode.to_json()) + "\n" for episode in episodes)
    (folder / "episodes.jsonl").write_text(log, encoding="utf-8")
    write_json(folder / "summary.json", summary)
    manifest = {
        "settings": {"policy": {"kind": name}},
        "policy": {"name": name},
        "protocol": {"limits": limits},
        "sessions": [],
    }
    write_json(folder / "manifest.json", manifest)
    return folder


def write_training(folder: Path, seed: int, results: Sequence[tuple[int, Results]], updates: int = 100) -> Path:
    """A training run with a validation for each `(update, results)`."""
    folder.mkdir(parents=True)
    write_json(folder / "training.json", {"settings": {"seed": seed, "updates": updates}})
    for update, validation in results:
        write_run(folder / "validation" / f"update-{update:06d}", validation)
    return folder


def before_and_after(family: str = "one") -> tuple[Results, Results]:
    """240 tasks: 62 won only after, 16 only before, 80 by both."""
    before = [1.0] * 96 + [0.0] * 144
    after = [1.0] * 80 + [0.0] * 16 + [1.0] * 62 + [0.0] * 82
    return tuple({f"{family}/{i}": [x] for i, x in enumerate(values)} for values in (before, after))  # type: ignore[return-value]


def drawn(seed: int, rate: float = 0.5, repeats: int = 1, n: int = 30) -> dict[str, list[float]]:
    """Random successes on two families of n tasks."""
    rng = random.Random(seed)
    return {f"{f}/{i}": [float(rng.random() < rate) for _ in range(repeats)] for f in ("one", "two") for i in range(n)}


def told(report: Report) -> str:
    return report.comparisons[0].conclusion


# What is computed


def test_one_attempt_a_task_is_mcnemar(tmp_path: Path) -> None:
    before, after = before_and_after()
    report = compare([[write_run(tmp_path / "before", before)], [write_run(tmp_path / "after", after)]])
    effect = report.comparisons[0].overall
    assert (effect.test, effect.n, effect.only_a, effect.only_b) == ("McNemar", 240, 16, 62)
    assert f"{effect.p:.1e}" == "1.5e-07"
    assert effect.p_holm == effect.p == mcnemar(16, 62)
    assert (effect.a, effect.b, effect.difference) == pytest.approx((96 / 240, 142 / 240, 46 / 240))
    assert (effect.lo, effect.hi) == newcombe(80, 16, 62, 82)
    assert effect.detectable == detectable(78 / 240, 240)
    assert report.comparisons[0].families == ()  # one family: it would be the same line again
    assert told(report) == "after solves 19.2 points more than before [12 to 26] (McNemar p = 1.5e-07, n = 240)."


def test_swapped_sides_and_other_orders_say_the_same(tmp_path: Path) -> None:
    before, after = before_and_after()
    folders = [write_run(tmp_path / "before", before), write_run(tmp_path / "after", after, shuffle=5)]
    one = compare([[folders[0]], [folders[1]]])
    two = compare([[folders[1]], [folders[0]]])
    a, b = one.comparisons[0].overall, two.comparisons[0].overall
    assert (b.difference, b.lo, b.hi) == pytest.approx((-a.difference, -a.hi, -a.lo))
    assert (b.p, b.detectable, b.only_a, b.only_b) == (a.p, a.detectable, a.only_b, a.only_a)
    assert told(one) == told(two)
    again = write_run(tmp_path / "again" / "after", after, shuffle=77)
    assert compare([[folders[0]], [again]]).comparisons == one.comparisons


def test_several_attempts_are_a_permutation_of_tasks(tmp_path: Path) -> None:
    a, b = drawn(1, 0.4, repeats=3), drawn(2, 0.7, repeats=3)
    report = compare([[write_run(tmp_path / "a", a)], [write_run(tmp_path / "b", b)]])
    by_task = np.array([np.mean(b[task]) - np.mean(a[task]) for task in a])
    effect = report.comparisons[0].overall
    assert (effect.test, effect.n, effect.only_a) == ("permutation", 60, None)
    assert effect.p == permutation(by_task)
    assert (effect.lo, effect.hi) == bootstrap(by_task)
    assert effect.difference == pytest.approx(by_task.mean())
    assert effect.detectable == pytest.approx(detectable(float(np.mean(by_task**2)), 60, binary=False))
    assert report.repeats == 3


def test_scores_are_a_permutation_of_tasks(tmp_path: Path) -> None:
    a, b = {"x/1": [0.5], "x/2": [0.25], "x/3": [0.0]}, {"x/1": [1.0], "x/2": [0.5], "x/3": [0.1]}
    folders = [[write_run(tmp_path / "a", a)], [write_run(tmp_path / "b", b)]]
    effect = compare(folders, metric="score").comparisons[0].overall
    assert (effect.test, effect.p) == ("permutation", 2 / 8)  # all signs agree
    assert effect.difference == pytest.approx(0.85 / 3)
    assert compare(folders).comparisons[0].overall.p == 1.0  # one task more is solved
    with pytest.raises(UsageError, match="unknown metric 'scores': did you mean 'score'"):
        compare(folders, metric="scores")


def test_families_and_all_are_corrected_apart(tmp_path: Path) -> None:
    folders = [
        [write_run(tmp_path / name, drawn(i, rate))]
        for i, (name, rate) in enumerate(zip("abc", (0.1, 0.4, 0.9), strict=True))
    ]
    report = compare(folders)
    assert [(pair.a, pair.b) for pair in report.comparisons] == [("a", "b"), ("a", "c"), ("b", "c")]
    overall = [pair.overall for pair in report.comparisons]
    families = [effect for pair in report.comparisons for effect in pair.families]
    assert [effect.name for effect in families] == ["one", "two"] * 3
    assert [effect.p_holm for effect in overall] == holm([effect.p for effect in overall])
    assert [effect.p_holm for effect in families] == holm([effect.p for effect in families])
    assert all(sum(f.n for f in pair.families) == pair.overall.n == 60 for pair in report.comparisons)
    assert "after Holm, n = 60" in report.comparisons[2].conclusion


def test_no_difference_says_what_would_have_been_found(tmp_path: Path) -> None:
    report = compare([[write_run(tmp_path / "a", drawn(1))], [write_run(tmp_path / "b", drawn(2))]])
    effect = report.comparisons[0].overall
    assert effect.p > 0.05
    assert told(report).startswith("No difference detected between a and b: ")
    assert told(report).endswith(f" This panel could detect {100 * effect.detectable:.0f} points.")
    same = compare([[write_run(tmp_path / "c", drawn(1))], [write_run(tmp_path / "d", drawn(1))]])
    assert same.comparisons[0].overall.p == 1.0
    assert "+0.0 points" in told(same)


def test_infrastructure_errors_leave_their_task_out(tmp_path: Path) -> None:
    a: Results = {"x/1": [1.0, 0.0], "x/2": [None, None], "x/3": [0.0, 0.0]}
    b: Results = {"x/1": [1.0, None], "x/2": [1.0, 1.0], "x/3": [0.0, 1.0]}
    report = compare([[write_run(tmp_path / "a", a)], [write_run(tmp_path / "b", b)]])
    effect = report.comparisons[0].overall
    assert (effect.n, effect.a, effect.b) == (2, 0.25, 0.75)  # an attempt that counts stands for its task
    assert report.notes == ("1 of 3 tasks are left out: infrastructure errors.",)
    nothing = write_run(tmp_path / "c", dict.fromkeys(a, (None, None)))
    with pytest.raises(SeedBenchError, match="no task is counted in all of the runs"):
        compare([[tmp_path / "a"], [nothing]])


# The mean of families


def test_macro_weighs_families_alike(tmp_path: Path) -> None:
    # Of 4 tasks of `few` B alone solves 3; of 40 of `many` A alone 4 and B alone 2: -1/22 weigh as much as 3/4.
    a = {f"few/{i}": [0.0] for i in range(4)} | {f"many/{i}": [float(i < 4)] for i in range(40)}
    b = {f"few/{i}": [float(i < 3)] for i in range(4)} | {f"many/{i}": [float(i in (7, 8))] for i in range(40)}
    pair = compare([[write_run(tmp_path / "a", a)], [write_run(tmp_path / "b", b)]]).comparisons[0]
    macro = pair.macro
    assert macro is not None
    assert pair.effects == (*pair.families, pair.overall, macro)
    assert (macro.a, macro.b) == pytest.approx((0.05, (0.75 + 0.05) / 2))
    assert (macro.name, macro.n, macro.test) == ("macro", 44, "permutation")
    assert macro.difference == pytest.approx((0.75 - 0.05) / 2)
    assert (macro.lo, macro.hi) == stratified([[1.0, 1.0, 1.0, 0.0], [-1.0] * 4 + [1.0] * 2 + [0.0] * 34])
    # A task of `few` weighs ten of `many`: of the 2^9 signs those reach |28| where the three agree and the six give 2
    # more at most against them: 2 * (number of sums of six signs >= -2) = 2 * (1 + 6 + 15 + 20 + 15) = 114.
    assert macro.p == pytest.approx(114 / 512)
    assert pair.overall.difference == pytest.approx(1 / 44)


def test_one_family_or_a_family_of_one_task_has_no_macro(tmp_path: Path) -> None:
    before, after = before_and_after()
    one = [[write_run(tmp_path / name, results)] for name, results in (("a", before), ("b", after))]
    assert compare(one).comparisons[0].macro is None
    lonely = {"x/1": [1.0], "y/1": [0.0], "y/2": [0.0]}
    two = [[write_run(tmp_path / name, lonely)] for name in ("c", "d")]
    assert compare(two).comparisons[0].macro is None


def test_the_sentence_doubts_by_the_macro_difference(tmp_path: Path) -> None:
    # B alone wins 20 of the 100 tasks of `many`, A alone 1 of the 3 of `few`.
    a = {f"few/{i}": [float(i == 0)] for i in range(3)} | {f"many/{i}": [0.0] for i in range(100)}
    b = {f"few/{i}": [0.0] for i in range(3)} | {f"many/{i}": [float(i < 20)] for i in range(100)}
    report = compare([[write_run(tmp_path / "a", a)], [write_run(tmp_path / "b", b)]])
    assert told(report).startswith("b solves 18.4 points more than a [")
    assert " Where every family weighs the same, no difference is detected: -6.7 points [" in told(report)


def test_macro_tests_are_corrected_among_themselves(tmp_path: Path) -> None:
    rates = zip("abc", (0.3, 0.4, 0.6), strict=True)
    folders = [[write_run(tmp_path / name, drawn(i, rate))] for i, (name, rate) in enumerate(rates)]
    found = [pair.macro for pair in compare(folders).comparisons if pair.macro]
    assert [effect.p_holm for effect in found] == holm([effect.p for effect in found])
    # Families of as many tasks: macro and micro are the same mean.
    overall = [pair.overall.difference for pair in compare(folders).comparisons]
    assert [effect.difference for effect in found] == pytest.approx(overall)


# Seeds


def trained(folder: Path, seed: int) -> Path:
    """Make the run in `folder` one of a checkpoint trained with this seed."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["policy"]["trained"] = {"method": "grpo", "model": "tiny", "seed": seed, "update": 100}
    write_json(folder / "manifest.json", manifest)
    return folder


@pytest.mark.parametrize("seeds", [4, 5])
def test_evaluations_of_checkpoints_are_paired_by_training_seed(tmp_path: Path, seeds: int) -> None:
    sides = [
        [trained(write_run(tmp_path / f"{name}-{i}", drawn(10 * i + len(name))), i) for i in range(seeds)]
        for name in ("grpo", "rlsd2")
    ]
    report = compare([sides[0], sides[1][::-1]])
    found = report.comparisons[0].seeds
    assert found is not None
    assert found.paired == (seeds > 4)  # of fewer a paired variance tells too little
    assert report.notes == (
        () if seeds > 4 else ("grpo and rlsd are not paired by training seed: that takes 5 known, equal seeds.",)
    )


def test_groups_of_training_runs_are_paired_by_seed(tmp_path: Path) -> None:
    runs = {
        (name, seed): [(50, drawn(9, 0.5)), (100, drawn(10 * seed + i, rate))]
        for i, (name, rate) in enumerate([("grpo", 0.3), ("seed", 0.7)])
        for seed in range(5)
    }
    folders = {key: write_training(tmp_path / f"{key[0]}-{key[1]}", key[1], of) for key, of in runs.items()}
    first, second = (
        [folders[name, seed] for seed in order] for name, order in (("grpo", range(5)), ("seed", (2, 0, 4, 1, 3)))
    )
    report = compare([first, second])
    pair = report.comparisons[0]
    tasks = sorted(runs["grpo", 0][1][1], key=lambda task: hashlib.sha256(task.encode()).hexdigest())
    a, b = (np.array([[runs[name, seed][1][1][t][0] for t in tasks] for seed in range(5)]) for name in ("grpo", "seed"))
    expected = crossed(a, b, paired=True)
    assert (pair.a, pair.b, pair.overall.test) == ("grpo", "seed", "seeds and tasks")
    assert (pair.overall.p, pair.overall.lo, pair.overall.hi) == (expected.p, expected.lo, expected.hi)
    assert pair.seeds is not None
    assert pair.seeds.paired
    assert pair.seeds.difference[0] == pytest.approx(pair.seeds.b[0] - pair.seeds.a[0])
    assert pair.seeds.difference[1] <= pair.seeds.difference[0] <= pair.seeds.difference[2]
    note = "is a training run: its last validation, after update 100 of 100. Training has not ended."
    assert f"{first[0]} {note}" in report.notes
    assert len(report.notes) == 10
    assert told(report).startswith("seed solves ")


def test_evaluations_do_not_know_their_training_seed(tmp_path: Path) -> None:
    a = [write_run(tmp_path / f"a-{i}", drawn(i)) for i in (0, 1)]
    b = [write_run(tmp_path / f"b-{i}", drawn(i + 5)) for i in (0, 1)]
    report = compare([a, b])
    assert report.comparisons[0].seeds is not None
    assert not report.comparisons[0].seeds.paired
    assert report.notes == ("a and b are not paired by training seed: that takes 5 known, equal seeds.",)


def test_chosen_pairs_alone_are_compared_and_corrected_for(tmp_path: Path) -> None:
    groups = [[write_run(tmp_path / f"{name}-{i}", drawn(3 * i + at)) for i in (0, 1)] for at, name in enumerate("abc")]
    every, some = compare(groups), compare(groups, pairs=[(1, 0), (1, 2)])
    assert [(pair.a, pair.b) for pair in some.comparisons] == [("b", "a"), ("b", "c")]
    known = {(pair.a, pair.b): pair.overall for pair in every.comparisons}
    assert some.comparisons[1].overall.p == known["b", "c"].p
    assert some.comparisons[0].overall.difference == -known["a", "b"].difference
    first, second = sorted(pair.overall.p for pair in some.comparisons)  # Holm over two
    assert sorted(pair.overall.p_holm for pair in some.comparisons) == pytest.approx(
        [min(1, 2 * first), min(1, max(2 * first, second))]
    )
    assert every.notes == ("3 of 3 pairs are not paired by training seed: that takes 5 known, equal seeds.",)


def test_checkpoints_may_differ_where_methods_need_not(tmp_path: Path) -> None:
    a = [write_run(tmp_path / "a-0", drawn(0, 0.1)), write_run(tmp_path / "a-1", drawn(1, 0.6))]
    b = write_run(tmp_path / "b", drawn(2, 0.9))
    report = compare([a, [b]])
    pair = report.comparisons[0]
    assert pair.seeds is None  # one run has no spread
    assert pair.overall.p > 0.05 > pair.checkpoints_p
    assert "This panel with these seeds could detect" in told(report)
    assert told(report).endswith("other training seeds might: that takes more seeds.")
    assert report.notes == ("Of one run nothing is known of its variation between training seeds: b.",)


def test_an_unfinished_training_says_so(tmp_path: Path) -> None:
    a = write_training(tmp_path / "a", 0, [(25, drawn(1))])
    report = compare([[a], [write_run(tmp_path / "b", drawn(2))]])
    assert report.notes[0] == (
        f"{a} is a training run: its last validation, after update 25 of 100. Training has not ended."
    )
    with pytest.raises(UsageError, match="is a training run without a validation: evaluate"):
        compare([[write_training(tmp_path / "c", 0, [])], [a]])
    (a / "training.json").write_text("{")
    with pytest.raises(SeedBenchError, match=r"training\.json' is damaged"):
        compare([[a], [tmp_path / "b"]])


# What is refused

PANEL = {"name": "tiny/other@1", "hash": "bb", "n": 60, "suite": "tiny", "split": "test", "official": True}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"panel": PANEL}, 'panel.name was "tiny/test@1", now "tiny/other@1"; panel.hash was "aa", now "bb"'),
        (
            {"protocol": {"name": "tiny/plain@1", "hash": "dd"}, "limits": {"steps": 30}},
            'protocol.hash was "cc", now "dd"; protocol.limits.steps was 12, now 30',
        ),
        ({"environment": {"engine": "bm25"}}, 'environment.engine was null, now "bm25"'),
    ],
)
def test_other_settings_are_refused_and_shown(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    a, b = write_run(tmp_path / "a", drawn(1)), write_run(tmp_path / "b", drawn(2), **changed)
    expected = f"'{b}' cannot be compared with '{a}'. From the latter to the former: {words}. Evaluate both"
    with pytest.raises(UsageError, match=re.escape(expected)):
        compare([[a], [b]])


def test_other_repeats_are_refused(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", drawn(1)), write_run(tmp_path / "b", drawn(2, repeats=2))
    with pytest.raises(UsageError, match="repeats was 1, now 2"):
        compare([[a], [b]])


def test_unfinished_runs_are_refused(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", drawn(1)), write_run(tmp_path / "b", drawn(2))
    log = b / "episodes.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(SeedBenchError, match=r"b' is unfinished: 59 of 60 episodes\. Run the same command again"):
        compare([[a], [b]])


def test_so_few_tasks_find_no_difference(tmp_path: Path) -> None:
    # Whatever 3 tasks show, the exact p is at least 2 / 2^3.
    a, b = (write_run(tmp_path / name, {f"x/{i}": [won] for i in range(3)}) for name, won in (("a", 0.0), ("b", 1.0)))
    report = compare([[a], [b]])
    assert report.comparisons[0].overall.p == 0.25
    assert told(report).endswith("(McNemar p = .250, n = 3). This panel could detect none, whatever its size.")


def test_a_later_record_of_an_attempt_counts(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", drawn(1)), write_run(tmp_path / "b", drawn(1))
    log = b / "episodes.jsonl"
    first = json.loads(log.read_text().splitlines()[0])
    changed = {**first, "success": not first["success"], "outcome": "failed" if first["success"] else "solved"}
    log.write_text(log.read_text() + json.dumps(changed) + "\n")
    effect = compare([[a], [b]]).comparisons[0].overall
    assert (effect.n, (effect.only_a or 0) + (effect.only_b or 0)) == (60, 1)


def test_scores_outside_the_unit_interval_are_refused(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", {"x/1": [0.5]}), write_run(tmp_path / "b", {"x/1": [7.0]})
    with pytest.raises(SeedBenchError, match=r"scores outside \[0, 1\]: compare it with --metric success"):
        compare([[a], [b]], metric="score")
    assert compare([[a], [b]]).comparisons[0].overall.n == 1


def test_odd_requests_are_refused(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", drawn(1)), write_run(tmp_path / "b", drawn(2))
    for groups in ([[a]], [[a], []]):
        with pytest.raises(UsageError, match="a comparison needs two sides or more"):
            compare(groups)
    with pytest.raises(UsageError, match="is given twice"):
        compare([[a, b], [tmp_path / "b" / ".." / "b"]])
    with pytest.raises(UsageError, match="is not a run folder"):
        compare([[a], [tmp_path]])
    for labels in (["x"], ["x", "x"]):
        with pytest.raises(UsageError, match="--labels must name 2 sides, each differently"):
            compare([[a], [b]], labels=labels)


# Names


def test_labels_tell_the_sides_apart(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "1" / "run", drawn(1)), write_run(tmp_path / "2" / "run", drawn(2))
    assert compare([[a], [b]]).sides == ((str(a), (str(a),)), (str(b), (str(b),)))
    named = compare([[a], [b]], labels=["old\x1b[31m", "new"]).comparisons[0]
    assert (named.a, named.b) == ("old<1b>[31m", "new")


def test_p_values_in_words() -> None:
    assert [p_text(p) for p in (1.0, 0.9996, 0.5, 0.0123, 0.001, 0.00099, 1.5e-7)] == [
        "1", "1", ".500", ".012", ".001", "9.9e-04", "1.5e-07",
    ]  # fmt: skip
