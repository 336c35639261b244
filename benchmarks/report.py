"""`seedbench report` on generated runs of 1,000 and 10,000 episodes: seconds, memory, and how fast pages open.

    python benchmarks/report.py [--episodes 1000,10000]

Each report is built in a process of its own; peak memory and processor time are that process's. An episode has 5 to 30
turns of ALFWorld's length. Pages are opened in Chromium, where playwright and a browser are installed, until the second
frame after the scripts ran; medians of 3, in brackets the processor time of the page's main thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from seedbench.metrics import summarise
from seedbench.report.build import write_report
from seedbench.runs import read_episodes, write_json
from seedbench.types import Episode, Outcome, Turn, Usage

FAMILIES = ("pick", "look", "clean", "heat", "cool", "pick2")
WORDS = (
    "you",
    "arrive",
    "at",
    "cabinet",
    "on",
    "it",
    "see",
    "a",
    "mug",
    "1",
    "2",
    "nothing",
    "happens",
    "fridge",
    "open",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def episodes(count: int) -> Iterator[Episode]:
    rng = random.Random(0)

    def text(words: int) -> str:
        return " ".join(rng.choices(WORDS, k=words))

    for number in range(count):
        family, solved = rng.choice(FAMILIES), rng.random() < 0.4
        turns = tuple(
            Turn(f"<think>{text(25)}</think><action>{(act := text(4))}</action>", act, True, True, text(40))
            for _ in range(rng.randrange(5, 31))
        )
        task = f"test/{family}-{number:06}"
        outcome = Outcome.SOLVED if solved else Outcome.STEP_LIMIT
        yield Episode(
            task, sha256(task.encode()).hexdigest(), family, 0, number, outcome, solved, float(solved),
            text(10), text(60), turns, Usage(900 * len(turns), 40 * len(turns)), 3.0,
        )  # fmt: skip


def generate(folder: Path, count: int) -> Path:
    folder.mkdir()
    with (folder / "episodes.jsonl").open("w", encoding="utf-8") as log:
        log.writelines(json.dumps(episode.to_json()) + "\n" for episode in episodes(count))
    panel = {"name": "generated/test@1", "hash": "0" * 64, "n": count, "suite": "mini-alfworld", "split": "test"}
    summary = summarise(
        read_episodes(folder), panel={**panel, "official": False},
        protocol={"name": "generated@1", "hash": "1" * 64}, policy={"name": "generated", "identity": {}},
        repeats=1, seed=0, families=FAMILIES, environment={}, wall_seconds=1.0,
    )  # fmt: skip
    write_json(folder / "summary.json", summary)
    manifest = {"settings": {"policy": {}}, "policy": {"name": "generated"}, "sessions": []}
    write_json(folder / "manifest.json", manifest)
    return folder


def build(run: Path, out: Path) -> list[float]:
    """Seconds, seconds of processor time and peak MiB of a process that builds the report."""
    command = [sys.executable, __file__, "--build", str(run), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(figure) for figure in done.stdout.split()]


def built(run: Path, out: Path) -> None:
    clock, processor = time.perf_counter(), time.process_time()
    write_report([run], out)
    spent = time.perf_counter() - clock, time.process_time() - processor
    print(*spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def opened(site: Path) -> dict[str, list[float]]:
    """Seconds until each kind of page is shown, and of processor time; empty without a browser."""
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        return {}
    from playwright.sync_api import sync_playwright

    pages = {"report": "index.html", "list": "01-run/index.html", "episodes": "01-run/episodes-0001.html#e50"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        found = {}
        for name, place in pages.items():
            file, _, anchor = place.partition("#")
            measured = [shown(browser.new_page(), f"{(site / file).as_uri()}#{anchor}") for _ in range(3)]
            found[name] = [statistics.median(figures) for figures in zip(*measured, strict=True)]
        browser.close()
    return found


def shown(page: Any, address: str) -> tuple[float, float]:
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    clock = time.perf_counter()
    page.goto(address)
    page.evaluate(FRAMES)
    seconds = time.perf_counter() - clock
    metrics = {metric["name"]: metric["value"] for metric in tools.send("Performance.getMetrics")["metrics"]}
    page.close()
    return seconds, metrics["TaskDuration"]


def main(counts: list[int]) -> None:
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    peaks = []
    with tempfile.TemporaryDirectory() as scratch:
        for count in counts:
            place = Path(scratch) / str(count)
            place.mkdir()
            run = generate(place / "run", count)
            size = (run / "episodes.jsonl").stat().st_size / 2**20
            seconds, processor, peak = build(run, place / "site")
            peaks.append(peak)
            pages = list((place / "site").rglob("*.html"))
            written = sum(page.stat().st_size for page in pages) / 2**20
            print(
                f"{count:,} episodes, log {size:.0f} MiB: {seconds:.1f} s ({processor:.1f} s), peak {peak:.0f} MiB",
                end="; ",
            )
            print(f"{len(pages):,} pages of {written:.0f} MiB", end="; ")
            times = opened(place / "site").items()
            print(", ".join(f"{name} opens in {wall:.2f} s ({spent:.2f} s)" for name, (wall, spent) in times))
    print(f"memory {counts[-1]:,} / {counts[0]:,} episodes: {peaks[-1] / peaks[0]:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", default="1000,10000")
    parser.add_argument("--build", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        built(*arguments.build)
    else:
        main([int(count) for count in arguments.episodes.split(",")])
