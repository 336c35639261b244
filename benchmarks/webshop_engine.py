"""Native WebShop against the original, recorded and live: steps, searches, loading, memory.

    python benchmarks/webshop_engine.py [--products 100000] [--keep FOLDER]

The shop of 1,000 is the official one where it is in the store, else the generated one. The large shop is generated
(a minute or two; `--keep` keeps it for the next run). Every shop is measured in a process of its own, on one core, in
CPU time. Aims: at least 100 times the original a step, at most 0.6 ms a search and under 200 MB at 1,000 products; at
100,000 a step at most 3 times that of 1,000, and loading under 10 s from the store.

Where the original is installed (SEEDBENCH_WEBSHOP_HOME and SEEDBENCH_WEBSHOP_PYTHON, docs/webshop.md) and the official
shop is in the store, the original plays some of the same episodes too and gets a row of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench.ui.tally import format_number
from seedbench_envs.mini.shop import generate_shop
from seedbench_envs.mini.shop_kinds import KINDS
from seedbench_envs.mini.shop_text import title_nouns
from seedbench_envs.webshop.catalogue import FILE
from seedbench_envs.webshop.env import WebShopEnv
from seedbench_envs.webshop.library import import_shop, open_folder, open_stored, shop_folder, write_files

STEP_MS, SEARCH_MS, MEMORY = 36.2, 14.0, "260-537 MB"
"""The original: princeton-nlp/WebShop at 64fa2a5, its text environment on 1,000 products, Python 3.11, CPU time on a
2-core machine over 1,527 steps of 120 episodes; a search is pyserini's Lucene. Recorded once, not measured here."""
EPISODES, ORIGINAL_EPISODES = 150, 20


def episode(env: WebShopEnv, task: str) -> list[str]:
    """Shop once as a thorough buyer does; returns the actions taken. Every action does something."""
    _, info = env.reset(options={"task": task})
    plan = [f"search[{info['instruction'].replace('[', ' ').replace(']', ' ')}]", "click[next >]", "click[< prev]", ""]
    plan += ["click[description]", "click[< prev]", "click[features]", "click[< prev]"]
    taken = []
    for action in plan:
        # After the search, the first product on the page: it follows the button for the next page.
        listed = info["admissible_actions"]
        taken.append(action or listed[listed.index("click[next >]") + 1])
        info = env.step(taken[-1])[4]
        assert info["action_valid"], (task, action, info["reason"])
    listed = info["admissible_actions"]
    options = listed[listed.index("click[buy now]") + 1 :][:3]
    for action in (*options, "click[buy now]"):
        env.step(action)
    return [*taken, *options, "click[buy now]"]


def timed(function: Callable[[], Any]) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def measure(folder: Path) -> dict[str, float]:
    """What a fresh process finds: seconds to the first page, CPU ms a step and a search, MB."""
    start = time.perf_counter()
    shop = open_folder(folder)
    env = WebShopEnv(shop)
    env.reset(options={"task": "goal/0"})
    env.step("search[a small gift]")
    loading = time.perf_counter() - start
    count = shop.goals.counts()["goal"]
    tasks = [f"goal/{number * 7919 % count}" for number in range(EPISODES)]  # spread over all goals
    for task in tasks[:20]:
        episode(env, task)
    steps = []
    for task in tasks:
        begin = time.process_time()
        taken = episode(env, task)
        steps.append((time.process_time() - begin) / len(taken))
    queries = [shop.goals.goal(task).instruction.lower() for task in tasks]
    searches = [timed(lambda query=query: shop.search.search(query, 50)) for query in queries]  # type: ignore[misc]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    visitors = [WebShopEnv(shop) for _ in range(1000)]
    for visitor, number in zip(visitors, range(1000), strict=True):
        visitor.reset(options={"task": f"goal/{number * 7919 % count}"})
        visitor.step("search[a small gift]")
    return {
        "products": len(shop.catalogue),
        "goals": count,
        "loading": loading,
        "step": 1000 * median(steps),
        "search": 1000 * sum(searches) / len(searches),
        "memory": memory,
        "thousand": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


def measured(folder: Path) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--measure", str(folder)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def original(python: str, home: str) -> dict[str, float]:
    """CPU ms a step and MB of the original itself, over some of the episodes. Ends the program where it fails."""
    env = WebShopEnv(open_folder(shop_folder("official")))
    numbers = [number * 7919 % len(open_stored("official").goal_ids()) for number in range(ORIGINAL_EPISODES)]
    played = json.dumps([[number, episode(env, f"goal/{number}")] for number in numbers])
    command = [python, str(Path(__file__).with_name("webshop_original.py"))]
    try:
        ended = subprocess.run(command, cwd=home, input=played, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SystemExit(f"error: the original in '{home}' does not run: {error}") from error
    if ended.returncode:
        raise SystemExit(f"error: the original in '{home}' does not run: {ended.stderr.strip()[-300:]}")
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def make_large(folder: Path, products: int) -> None:
    """Generate a shop of about that many products, in a process of its own because of its memory."""
    command = [sys.executable, __file__, "--make", str(folder), "--products", str(products)]
    subprocess.run(command, check=True)


def _make(folder: Path, products: int) -> None:
    start = time.perf_counter()
    sources = write_files(folder, *generate_shop(0, -(-products // len(KINDS))))
    made = time.perf_counter()
    import_shop(
        sources, folder, lambda line: None,
        nouns=lambda title: tuple(title_nouns(title)), nouns_from="known to the generator",
    )  # fmt: skip
    end = time.perf_counter()
    print(f"large shop: generated in {made - start:.0f} s, imported in {end - made:.0f} s (once)")


def small_folder() -> tuple[Path, str]:
    """The shop of 1,000 and what it is."""
    try:
        open_stored("official")
    except SeedBenchError:
        open_stored("mini")
        return shop_folder("mini"), "generated"
    return shop_folder("official"), "official"


def report(name: str, found: dict[str, float]) -> None:
    """Print one shop's row."""
    print(
        f"{name:<10} {found['products']:>9,.0f} {found['goals']:>9,.0f} {found['loading']:>10.2f} s"
        f" {1000 / found['step']:>10,.0f} {found['step']:>9.3f} ms {found['search']:>9.3f} ms"
        f" {found['memory']:>7.0f} MB {found['thousand']:>7.0f} MB"
    )


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=100_000, help="products of the large shop")
    parser.add_argument("--keep", type=Path, help="where the large shop is kept, or was kept")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    if options.make:
        _make(options.make, options.products)
        return
    small, kind = small_folder()
    with tempfile.TemporaryDirectory() as scratch:
        large = options.keep or Path(scratch) / "shop"
        if not (large / FILE).is_file():
            make_large(large, options.products)
        first, second = measured(small), measured(large)
    print(f"{'shop':<10} {'products':>9} {'goals':>9} {'to page 1':>12} {'steps/s':>10} {'a step':>12} {'a search':>12}"
          f" {'memory':>10} {'1,000 envs':>10}")  # fmt: skip
    report(kind, first)
    report("generated", second)
    print(
        f"{'original':<10} {1000:>9,} {6910:>9,} {'':>12} {1000 / STEP_MS:>10,.1f} {STEP_MS:>9} ms"
        f" {SEARCH_MS:>9} ms {MEMORY:>10}  (recorded figures of princeton-nlp/WebShop)"
    )
    if home := os.environ.get("SEEDBENCH_WEBSHOP_HOME"):
        live = original(os.environ.get("SEEDBENCH_WEBSHOP_PYTHON", sys.executable), home)
        print(
            f"{'original':<10} {1000:>9,} {6910:>9,} {'':>12} {1000 / live['step']:>10,.1f} {live['step']:>9.1f} ms"
            f" {'':>12} {live['memory']:>7.0f} MB  (live: {format_number(live['step'] / first['step'])}x a step)"
        )
    print(
        f"ratio      {format_number(STEP_MS / first['step'])}x a step and"
        f" {format_number(SEARCH_MS / first['search'])}x a search of the original at 1,000 products;"
        f" a step at {second['products']:,.0f} takes"
        f" {second['step'] / first['step']:.1f}x that of {first['products']:,.0f}"
    )


if __name__ == "__main__":
    main()
