"""A run that is killed again and again comes to the result of an undisturbed one."""

import random
import signal
import subprocess
import time
from pathlib import Path

from seedbench.panels import load_panel
from seedbench.runs import LOG, read_episodes
from tests.eval.helpers import command, read_summary, size, wait_until

KILLS = 20
REPEATS = 30  # enough work that the last kill finds the run unfinished
PANEL = "mini-alfworld/valid_unseen"


def words(out: Path) -> list[str]:
    return command(
        *("eval", "random", "--panel", PANEL, "--repeats", REPEATS, "--steps", 6),
        *("--seed", 3, "--quiet", "--out", out),
    )


def start(out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(words(out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(out: Path) -> None:
    done = subprocess.run(words(out), capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_killed_twenty_times(tmp_path: Path, mini_store: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(whole)
    dice = random.Random(2)
    for number in range(KILLS):
        with start(killed) as process:
            try:
                if number % 4 == 0:  # at any moment, also while it starts and reads its log
                    time.sleep(dice.uniform(0, 0.6))
                else:  # at work: after so many more bytes of the log
                    target = size(killed / LOG) + dice.randrange(1, 300_000)
                    wait_until(lambda: size(killed / LOG) >= target or process.poll() is not None)  # noqa: B023
            finally:
                process.kill()
        assert process.returncode == -signal.SIGKILL, process.stderr
    before = size(killed / LOG)
    assert 0 < before < size(whole / LOG)
    finish(killed)
    assert read_summary(killed) == read_summary(whole)
    assert size(killed / LOG) > before

    def records(out: Path) -> dict[tuple[str, int], object]:
        return {e.key: {**e.to_json(), "seconds": 0} for e in read_episodes(out)}

    count = len(load_panel(PANEL).tasks) * REPEATS
    assert len(records(whole)) == count
    assert records(killed) == records(whole)
    assert len(list(read_episodes(killed))) == count  # nothing was played twice
