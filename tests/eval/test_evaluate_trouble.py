"""Runs that are interrupted, broken or refused: what is finished stays, and the same command comes to the same end."""

import errno
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.evaluate import Evaluation, check_evaluation, evaluate
from seedbench.policies.base import PolicyFault, Request, Response
from seedbench.policies.random_ import RandomPolicy
from seedbench.runs import LOG, finished, read_episodes, read_manifest
from seedbench.types import Episode, Outcome
from seedbench.ui.live import Progress
from tests.eval.helpers import (
    Babbler,
    CountingEnv,
    CountingSuite,
    Script,
    installed,
    job,
    logged,
    panel,
    protocol,
    read_summary,
    valid_summary,
)


@pytest.fixture(autouse=True)
def suite() -> Iterator[CountingSuite]:
    counting = CountingSuite()
    with installed("counting", counting):
        yield counting


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Summary and episodes of an undisturbed run."""
    folder = tmp_path_factory.mktemp("expected") / "run"
    with installed("counting", CountingSuite()):
        summary = valid_summary(job(folder, Babbler(jitter=False), repeats=3, concurrency=1))
    return summary, logged(folder)


class Stop(Progress):
    """Breaks the run after so many episodes with the given exception."""

    def __init__(self, after: int, error: BaseException) -> None:
        self.left = after
        self.error = error

    def update(self, episode: Episode) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


# What stops a run


@pytest.mark.parametrize("after", [1, 7, 20])
def test_interrupted_run_is_a_run(tmp_path: Path, expected: tuple[Any, Any], after: int) -> None:
    work = job(tmp_path / "run", Babbler(), repeats=3, concurrency=4)
    with pytest.raises(KeyboardInterrupt):
        evaluate(work, Stop(after, KeyboardInterrupt()))
    count = len(finished(work.out))
    assert after <= count < 36
    summary = read_summary(work.out)
    assert summary["episodes"] == count
    assert (valid_summary(work), logged(work.out)) == expected
    assert len(read_manifest(work.out)["sessions"]) == 2


def test_progress_that_nobody_reads_stops_the_run_plainly(tmp_path: Path, expected: tuple[Any, Any]) -> None:
    work = job(tmp_path / "run", Babbler(), repeats=3)
    with pytest.raises(BrokenPipeError):
        evaluate(work, Stop(5, BrokenPipeError(errno.EPIPE, "Broken pipe")))
    assert (valid_summary(work), logged(work.out)) == expected


@pytest.mark.parametrize("at", [1, 9, 30])
def test_full_disk(tmp_path: Path, expected: tuple[Any, Any], at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from seedbench.runs import Run

    append = Run.append
    left = at

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file
            self.room = 40

        def write(self, line: bytes) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room = 0
            return int(self.file.write(line[:40]))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    def filling(self: Run, episode: Episode) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            self._log = Full(self._log)  # type: ignore[assignment]
        append(self, episode)

    work = job(tmp_path / "run", Babbler(), repeats=3, concurrency=8)
    monkeypatch.setattr(Run, "append", filling)
    with pytest.raises(SeedBenchError, match=r"No space left on device\. Free space and run the same command again"):
        evaluate(work, Progress())
    monkeypatch.undo()
    assert len(list(read_episodes(work.out))) == at - 1
    assert (work.out / LOG).read_bytes()[-1:] in (b"", b"\n")
    with installed("counting", CountingSuite()):
        assert (valid_summary(work), logged(work.out)) == expected


def test_infra_errors_count_as_nothing_and_are_tried_again(
    tmp_path: Path, expected: tuple[Any, Any], suite: CountingSuite
) -> None:
    suite.faults = Counter({"train/one-0": 1, "train/two-1": 1})
    work = job(tmp_path / "run", Babbler(jitter=False), repeats=3)
    summary = valid_summary(work)
    assert summary["outcomes"]["infra_error"] == 2
    assert summary["episodes"] == 36
    assert summary["success"]["micro"]["n"] == 34
    assert summary["success"]["families"]["one"]["n"] == 11
    assert (valid_summary(work), logged(work.out)) == expected
    assert len(list(read_episodes(work.out))) == 38


def test_too_many_infra_errors_fail_the_run_and_keep_the_log(
    tmp_path: Path, expected: tuple[Any, Any], suite: CountingSuite
) -> None:
    suite.faults = Counter({"train/one-0": 3, "train/two-1": 3})
    work = job(tmp_path / "run", Babbler(), repeats=3, concurrency=2, shuffle=1)
    with pytest.raises(SeedBenchError) as caught:
        evaluate(work, Progress())
    assert str(caught.value) == (
        "4 of 36 episodes ended in infrastructure errors (the last: environment: OSError: the engine fell over). They"
        " count as nothing; mend the cause and run the same command again."
    )
    outcomes = Counter(episode.outcome for episode in read_episodes(work.out))
    assert outcomes[Outcome.INFRA_ERROR] == 4
    assert len(outcomes) > 1
    suite.faults = Counter()
    assert (valid_summary(work), logged(work.out)) == expected


def test_share_of_infra_errors_that_is_borne(tmp_path: Path, suite: CountingSuite) -> None:
    suite.faults = Counter({"train/one-0": 3, "train/two-1": 2})
    summary = valid_summary(job(tmp_path / "run", Babbler(), repeats=3, max_infra=0.2))
    assert summary["outcomes"]["infra_error"] == 5


def test_environment_is_replaced_after_a_fault_even_if_it_cannot_be_closed(
    tmp_path: Path, suite: CountingSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.faults = Counter({"train/one-0": 1})
    close = CountingEnv.close

    def fragile(self: CountingEnv) -> None:
        close(self)
        if self.task == "train/one-0" and self.closed == 1:
            raise OSError("the worker is gone")

    monkeypatch.setattr(CountingEnv, "close", fragile)
    made = len(suite.made)
    summary = valid_summary(job(tmp_path / "run", Babbler(jitter=False), concurrency=1))
    assert summary["outcomes"]["infra_error"] == 1
    assert len(suite.made) - made == 3  # the check's, the worker's and the one after the fault


def test_every_answer_at_fault(tmp_path: Path) -> None:
    work = job(tmp_path / "run", Script(PolicyFault("the server is gone")), panel=panel(1))
    summary = valid_summary(work)  # three in all: too few to break off
    assert summary["outcomes"]["infra_error"] == 3
    assert summary["success"]["micro"] == {"rate": None, "n": 0, "ci": [0.0, 1.0]}
    assert summary["score"] == {"mean": None, "n": 0, "ci": [0.0, 1.0]}


def test_policy_that_cannot_be_loaded_leaves_no_run(tmp_path: Path) -> None:
    class Missing(Script):
        async def open(self) -> None:
            await super().open()
            raise SeedBenchError("no weights")

    policy = Missing("x")
    with pytest.raises(SeedBenchError, match="no weights"):
        evaluate(job(tmp_path / "run", policy), Progress())
    assert policy.events == ["open", "close"]
    assert not (tmp_path / "run").exists()


def test_policy_that_can_no_longer_answer(tmp_path: Path) -> None:
    class Refused(Babbler):
        async def act(self, request: Request) -> Response:
            if self.asked > 20:
                raise SeedBenchError("the key is refused")
            return await super().act(request)

    work = job(tmp_path / "run", Refused(), concurrency=4)
    with pytest.raises(SeedBenchError, match="the key is refused"):
        evaluate(work, Progress())
    assert 0 < len(finished(work.out)) < 12


# What is refused before anything is loaded


def refused(work: Evaluation) -> str:
    with pytest.raises(SeedBenchError) as caught:
        check_evaluation(work)
    with pytest.raises(type(caught.value)):
        evaluate(work, Progress())
    assert not work.out.exists() or (work.out / LOG).exists()
    return f"{type(caught.value).__name__}: {caught.value}"


def test_protocol_of_another_suite(tmp_path: Path) -> None:
    from seedbench.protocol import load_protocol

    text = refused(job(tmp_path / "run", Babbler(), protocol=load_protocol("alfworld/seed")))
    assert text.startswith("UsageError: the protocol 'alfworld/seed@1' is for alfworld, mini-alfworld, the panel")


@pytest.mark.parametrize("settings", [{"repeats": 0}, {"concurrency": 0}])
def test_counts_below_one(tmp_path: Path, settings: dict[str, int]) -> None:
    assert "must be at least 1" in refused(job(tmp_path / "run", Babbler(), **settings))


def test_unknown_engine(tmp_path: Path) -> None:
    text = refused(job(tmp_path / "run", Babbler(), engine="natve"))
    assert text == "UsageError: unknown engine 'natve': did you mean 'native'? Known: native."


def test_missing_and_different_data(tmp_path: Path, suite: CountingSuite) -> None:
    suite.damaged = {"train/one-1", "train/two-0"}
    text = refused(job(tmp_path / "run", Babbler()))
    assert "the content of 2 tasks differs from the panel: train/two-0, train/one-1" in text
    assert "Fetch the data again: `seedbench data fetch counting`" in text


def test_run_of_other_settings(tmp_path: Path) -> None:
    work = job(tmp_path / "run", Babbler())
    valid_summary(work)
    before = (work.out / LOG).read_bytes()
    assert "seed was 0, now 1" in refused(job(work.out, Babbler(), seed=1))
    assert "repeats was 1, now 2" in refused(job(work.out, Babbler(), repeats=2))
    assert 'protocol.name was "counting/small@1", now "counting/small@1[steps=3]"' in refused(
        job(work.out, Babbler(), protocol=protocol().with_settings(steps=3))
    )
    assert "panel.hash was" in refused(job(work.out, Babbler(), panel=panel(2)))
    with pytest.raises(UsageError, match=r'policy.kind was "babbler", now "script"'):
        evaluate(job(work.out, Script("x")), Progress())
    assert (work.out / LOG).read_bytes() == before


def test_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and holds no run manifest"):
        check_evaluation(job(tmp_path, RandomPolicy()))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_two_evaluations_on_one_folder(tmp_path: Path) -> None:
    """The second is refused while the first is at work; the first is not disturbed."""
    refusals: list[BaseException | None] = []

    class Nosy(Progress):
        def update(self, episode: Episode) -> None:
            with ThreadPoolExecutor() as pool:  # an event loop of its own
                refusals.append(pool.submit(evaluate, job(tmp_path / "run", Babbler()), Progress()).exception())

    assert valid_summary(job(tmp_path / "run", Babbler()), Nosy())["episodes"] == 12
    assert len(refusals) == 12
    assert all("another process is writing to" in str(refusal) for refusal in refusals)
