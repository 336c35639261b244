"""The journal of a training run: what is written, what a resume keeps, and trackers that never stop it."""

import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench_trainers.journal import METRICS, Journal, Record, read_journal
from seedbench_trainers.trackers import Trackers, open_trackers


def write(folder: Path, updates: range, after: int = -1) -> None:
    with Journal(folder, after) as journal:
        for update in updates:
            journal.record(update, {"loss/total": update / 4}, optimiser_steps=2 * update)


def updates(folder: Path) -> list[int]:
    return [record.update for record in read_journal(folder)]


def test_a_line_an_update_readable_at_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run")
    journal.record(1, {"loss/total": 0.5, "optim/lr": np.float32(0.25)}, optimiser_steps=3)  # type: ignore[dict-item]
    line = (tmp_path / "run" / METRICS).read_text()
    assert line == '{"update": 1, "optimiser_steps": 3, "metrics": {"loss/total": 0.5, "optim/lr": 0.25}}\n'
    assert read_journal(tmp_path / "run") == [Record(1, 3, {"loss/total": 0.5, "optim/lr": 0.25})]
    journal.close()


def test_numbers_that_are_not_finite_are_null_and_come_back_as_nan(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.record(1, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0})
    assert json.loads((tmp_path / METRICS).read_text())["metrics"] == {"a": None, "b": None, "c": None, "d": 1.0}
    metrics = read_journal(tmp_path)[0].metrics
    assert [math.isnan(metrics[name]) for name in "abcd"] == [True, True, True, False]


def test_resume_drops_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, range(6))
    before = (tmp_path / METRICS).read_text().splitlines()
    write(tmp_path, range(4, 6), after=3)
    assert updates(tmp_path) == [0, 1, 2, 3, 4, 5]
    assert (tmp_path / METRICS).read_text().splitlines() == before
    assert {path.name for path in tmp_path.iterdir()} == {METRICS}


def test_a_new_run_drops_all(tmp_path: Path) -> None:
    write(tmp_path, range(6))
    write(tmp_path, range(1, 2))
    assert updates(tmp_path) == [1]


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_torn_last_line_is_cut(tmp_path: Path, cut: int) -> None:
    write(tmp_path, range(1, 4))
    path = tmp_path / METRICS
    path.write_bytes(path.read_bytes()[:-cut])
    whole = [1, 2, 3] if cut == 1 else [1, 2]  # without its newline a line is still whole
    assert updates(tmp_path) == whole
    write(tmp_path, range(4, 5), after=3)
    assert updates(tmp_path) == [*whole, 4]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    write(tmp_path, range(1, 4))
    path = tmp_path / METRICS
    path.write_text(path.read_text().replace('"update": 2', '"updatf": 2'))
    with pytest.raises(SeedBenchError, match=r"metrics\.jsonl' line 2 is damaged \(KeyError: 'update'\)"):
        read_journal(tmp_path)


def test_an_update_does_not_go_back(tmp_path: Path) -> None:
    write(tmp_path, range(6))
    with Journal(tmp_path, after=3) as journal:
        journal.record(3, {"validation/success": 0.5})
        with pytest.raises(ValueError, match="update 2 after update 3"):
            journal.record(2, {})


def test_a_folder_without_journal(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no training journal \(metrics.jsonl\)"):
        read_journal(tmp_path)


def test_a_full_disk_is_said_and_the_file_stays_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.record(1, {"a": 1.0})
    real = journal._file

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def write(self, line: bytes) -> int:
            if len(line) < 40:
                raise OSError(28, "No space left on device")
            return real.write(line[:30]) or 0

    journal._file = Full()  # type: ignore[assignment]
    with pytest.raises(SeedBenchError, match="No space left on device"):
        journal.record(2, {"a": 2.0})
    journal.close()
    assert (tmp_path / METRICS).read_bytes().endswith(b'{"a": 1.0}}\n')
    assert updates(tmp_path) == [1]


class Listener:
    name = "listener"

    def __init__(self, fails: bool = False) -> None:
        self.heard: list[tuple[int, dict[str, float]]] = []
        self.closed = 0
        self.fails = fails

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        if self.fails:
            raise ConnectionError("no route")
        self.heard.append((update, dict(metrics)))

    def close(self) -> None:
        self.closed += 1


def test_trackers_hear_the_finite_numbers_and_a_failing_one_is_noted_once(tmp_path: Path) -> None:
    good, bad = Listener(), Listener(fails=True)
    notes: list[str] = []
    with Journal(tmp_path, trackers=Trackers([bad, good], notes.append)) as journal:
        journal.record(1, {"a": 1.0, "b": math.nan})
        journal.record(2, {"a": 2.0})
    assert good.heard == [(1, {"a": 1.0}), (2, {"a": 2.0})]
    assert (good.closed, bad.closed) == (1, 0)
    assert notes == ["listener is left out from now on (ConnectionError: no route); metrics.jsonl has everything"]
    assert updates(tmp_path) == [1, 2]


def test_tensorboard_holds_the_numbers_and_forgets_what_a_resume_drops(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    for after, made in ((-1, range(1, 6)), (3, range(4, 5))):
        with Journal(tmp_path, after, open_trackers(tmp_path, tensorboard=True, after=after)) as journal:
            for update in made:
                journal.record(update, {"loss/total": update / 4 + (after > 0)})
    read = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    found = [(event.step, event.value) for event in read.Scalars("loss/total")]
    assert found == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 2.0)]


@pytest.mark.parametrize(
    ("missing", "ask", "off"),
    [
        ("tensorboard", {"tensorboard": True}, "--set track.tensorboard=false"),
        ("wandb", {"wandb": "project"}, '--set track.wandb=""'),
    ],
)
def test_a_tracker_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, ask: dict[str, Any], off: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SeedBenchError) as caught:
        open_trackers(tmp_path, **ask)
    assert f"pip install {missing}, or {off}." in str(caught.value)


def fake_wandb(monkeypatch: pytest.MonkeyPatch, init: Callable[..., Any]) -> None:
    module = ModuleType("wandb")
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)


def test_wandb_without_its_server_logs_to_files_under_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[dict[str, float], int]] = []
    ids: list[str] = []
    notes: list[str] = []

    def init(**settings: Any) -> Any:
        ids.append(settings["id"])
        if settings.get("mode") != "offline":
            raise ConnectionError("no\nnetwork")
        assert (settings["project"], settings["config"]) == ("p", {"seed": 1})
        return SimpleNamespace(log=lambda metrics, step: logged.append((metrics, step)), finish=lambda: None)

    fake_wandb(monkeypatch, init)
    for update in (1, 2):
        trackers = open_trackers(tmp_path, wandb="p", config={"seed": 1}, note=notes.append)
        trackers.log(update, {"a": 1.0})
        trackers.close()
    assert logged == [({"a": 1.0}, 1), ({"a": 1.0}, 2)]
    assert len(ids) == 4
    assert len(set(ids)) == 1
    assert (
        notes
        == ["wandb cannot be had (ConnectionError: no network): it logs to local files, for `wandb sync` later"] * 2
    )


def test_wandb_that_cannot_be_had_at_all_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []

    def init(**settings: Any) -> Any:
        raise PermissionError("no key")

    fake_wandb(monkeypatch, init)
    open_trackers(tmp_path, wandb="p", note=notes.append).log(1, {"a": 1.0})
    assert notes == [
        "wandb cannot be had (PermissionError: no key): it logs to local files, for `wandb sync` later",
        "wandb cannot be had (PermissionError: no key): it is left out",
    ]
