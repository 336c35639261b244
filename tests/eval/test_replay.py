"""Stored responses, played again: the same run comes out, or the score under another protocol."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.evaluate import evaluate
from seedbench.panels import load_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.policies.base import ContextOverflow, PolicyFault
from seedbench.policies.replay import ReplayPolicy
from seedbench.runs import LOG, read_episodes
from seedbench.types import Outcome
from seedbench.ui.live import Progress
from tests.eval.helpers import Babbler, CountingSuite, Script, installed, job, panel, protocol

RIGHT = "<think>so</think><action>right</action>"


@pytest.fixture(autouse=True)
def suite() -> Iterator[CountingSuite]:
    counting = CountingSuite()
    with installed("counting", counting):
        yield counting


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    evaluate(job(tmp_path / "stored", Babbler(), repeats=2), Progress())
    return tmp_path / "stored"


def records(folder: Path) -> dict[Any, Any]:
    """What happened in every attempt; a replay counts no tokens and sees no prompt."""
    kept = ("outcome", "success", "score", "instruction", "first_observation", "error")
    turns = ("response", "action", "valid", "admissible", "observation")
    return {
        episode.key: (
            [getattr(episode, name) for name in kept],
            [[getattr(turn, name) for name in turns] for turn in episode.turns],
        )
        for episode in read_episodes(folder)
    }


def test_replay_gives_the_same_run(tmp_path: Path, stored: Path) -> None:
    before = evaluate(job(stored, Babbler(), repeats=2), Progress())
    again = evaluate(job(tmp_path / "again", ReplayPolicy(stored), repeats=2), Progress())
    assert records(tmp_path / "again") == records(stored)
    for part in ("success", "score", "turns", "outcomes", "episodes"):
        assert again[part] == before[part]
    assert again["policy"]["name"] == "replay of babbler"
    assert again["tokens"] == {"prompt": 0, "generated": 0}


def test_replay_under_another_protocol(tmp_path: Path, stored: Path) -> None:
    """What the agent was asked differs; its words are judged by the new rules."""
    lenient = protocol(parser={"think_tag": ""})
    summary = evaluate(job(tmp_path / "again", ReplayPolicy(stored), protocol=lenient, repeats=2), Progress())
    before = evaluate(job(stored, Babbler(), repeats=2), Progress())
    assert summary["turns"]["invalid_rate"] < before["turns"]["invalid_rate"]
    assert summary["success"] == before["success"]


def test_after_the_stored_turns_nothing_is_said(tmp_path: Path) -> None:
    short = protocol(steps=2)
    evaluate(job(tmp_path / "short", Script(RIGHT), protocol=short), Progress())
    evaluate(job(tmp_path / "long", ReplayPolicy(tmp_path / "short")), Progress())
    episodes = [e for e in read_episodes(tmp_path / "long") if e.family == "three"]
    assert [[turn.response for turn in e.turns] for e in episodes] == [[RIGHT, RIGHT, "", ""]] * 4
    assert {e.outcome for e in episodes} == {Outcome.STEP_LIMIT}


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (PolicyFault("the server is gone"), Outcome.INFRA_ERROR, "policy: the stored episode ended here in an infra"),
        (ContextOverflow("too long"), Outcome.CONTEXT_OVERFLOW, "too long"),
    ],
)
def test_what_broke_off_breaks_off_again(tmp_path: Path, error: Exception, outcome: Outcome, reason: str) -> None:
    """Never a failure of the agent's: an empty answer would make it one."""
    stored, again = tmp_path / "stored", tmp_path / "again"
    evaluate(job(stored, Script(RIGHT, RIGHT, error), max_infra=1.0), Progress())
    evaluate(job(again, ReplayPolicy(stored), max_infra=1.0), Progress())
    outcomes = Counter(e.outcome for e in read_episodes(again))
    assert outcomes == {Outcome.SOLVED: 8, outcome: 4}
    broken = [e for e in read_episodes(again) if e.outcome is outcome]
    assert all(e.error.startswith(reason) and len(e.turns) == 2 for e in broken)


def test_attempts_that_the_run_does_not_hold(tmp_path: Path, stored: Path) -> None:
    work = job(tmp_path / "again", ReplayPolicy(stored), panel=panel(5), repeats=3, max_infra=1.0)
    summary = evaluate(work, Progress())
    assert summary["outcomes"]["infra_error"] == 3 * 3 + 4 * 3  # three new tasks, and the third repeat of the others
    errors = {e.error for e in read_episodes(work.out) if e.outcome is Outcome.INFRA_ERROR}
    assert "policy: the stored run has no episode of train/one-0, repeat 2" in errors


def test_last_record_of_an_attempt_is_replayed(tmp_path: Path, suite: CountingSuite) -> None:
    suite.faults = Counter({"train/one-0": 1})
    stored = job(tmp_path / "stored", Babbler(jitter=False))
    evaluate(stored, Progress())
    evaluate(stored, Progress())
    assert len(list(read_episodes(stored.out))) == 13
    summary = evaluate(job(tmp_path / "again", ReplayPolicy(stored.out)), Progress())
    assert summary["outcomes"]["infra_error"] == 0


def test_identity_follows_the_log(stored: Path) -> None:
    before = ReplayPolicy(stored).identity()
    assert before["kind"] == "replay"
    assert before["of"] == {"kind": "babbler"}
    assert ReplayPolicy(stored).identity() == before
    lines = (stored / LOG).read_bytes().splitlines(keepends=True)
    (stored / LOG).write_bytes(b"".join(lines[:-1]))
    assert ReplayPolicy(stored).identity() != before


def test_by_name(stored: Path) -> None:
    assert make_policy(f"replay:{stored}", panel(), ModelOptions()).name == "replay of babbler"


def test_a_run_of_another_panel(stored: Path) -> None:
    """Refused at once, instead of as many infrastructure errors as a run may have."""
    other = load_panel("mini-alfworld/valid_unseen")
    with pytest.raises(UsageError, match=f"holds no episode of a task of '{other.name}': .* '{panel().name}'"):
        make_policy(f"replay:{stored}", other, ModelOptions())
    part = ReplayPolicy(stored)
    assert [part.holds(task) for task in panel(5).tasks].count(True) == len(panel().tasks)


def test_what_is_no_run(tmp_path: Path, stored: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        make_policy(f"replay:{tmp_path / 'none'}", panel(), ModelOptions())
    with (stored / LOG).open("ab") as log:
        log.write(b"torn\nand more\n")
    with pytest.raises(SeedBenchError, match="line 25 is damaged"):
        ReplayPolicy(stored)
    (stored / LOG).unlink()
    with pytest.raises(UsageError, match="holds no episode log"):
        ReplayPolicy(stored)
