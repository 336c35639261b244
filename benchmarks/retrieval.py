"""Retrieval engines and the server in one run: index CPU, query CPU, queries a second, memory.

    python benchmarks/retrieval.py [--engines bm25,lucene-order,pyserini] [--encoder M] [--soak 60]

Every engine that is installed is measured on the real 33,026 passages and questions where they lie in
../shared/data/searchqa (generated ones otherwise), and on generated passages (`--passages`, 100,000). Each engine
builds and searches in processes of its own; a process that it starts (Java) counts with it. CPU times are medians or
totals of processor time, queries a second are wall time. Ratios are against Lucene (`pyserini`) where it is installed,
and against `lucene-order` otherwise. The server is measured with the default engine: what it adds to a search at the
median, and `--clients` at once for `--soak` seconds, every reply checked.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from seedbench.ui.tally import format_number
from seedbench_envs.searchqa.indexing import build_index
from seedbench_envs.searchqa.retrievers import available, open_retriever
from seedbench_envs.searchqa.retrievers.engine import BuildOptions

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "searchqa"
SETS = ("hotpotqa/dev_ctx", "2wikimultihopqa/dev_ctx", "musique/dev_ctx", "popqa/test_ctx")
SMALL = 33_026
BATCH = 64
TOP = 3
_SYLLABLES = "ba co di fu ga lo mi nu pe ra si to va wo xi zu".split()  # noqa: SIM905


def word(number: int) -> str:
    text = ""
    while number or not text:
        number, place = divmod(number, len(_SYLLABLES))
        text += _SYLLABLES[place]
    return text + "k"


def generate(path: Path, count: int, seed: int = 0) -> list[str]:
    """Write passages of about 100 words with Zipf's distribution; returns questions of 10 words from them."""
    rng = random.Random(seed)
    words = [word(number) for number in range(20_000 + count // 2)]
    weights = list(accumulate(1 / (number + 5) for number in range(len(words))))
    questions = []
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            text = rng.choices(words, cum_weights=weights, k=rng.randrange(60, 140))
            file.write(json.dumps({"id": str(number), "contents": f'"{text[0]} {text[1]}"\n{" ".join(text)}'}) + "\n")
            if number % max(1, count // 1000) == 0:
                questions.append(" ".join(rng.choices(text, k=10)))
    return questions


def real_questions() -> list[str]:
    found = []
    for name in SETS:
        with gzip.open(REAL / f"{name}.jsonl.gz", "rt", encoding="utf-8") as rows:
            found += [json.loads(row)["question"] for row in rows]
    return found


def family() -> Iterator[int]:
    """This process and the ones it started."""
    yield os.getpid()
    for task in Path("/proc/self/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def cpu() -> float:
    """Processor seconds of the family so far."""
    total = 0.0
    for process in family():
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def memory() -> tuple[float, float]:
    """MB of the family: its own, and of files that are mapped (shared)."""
    own = shared = 0
    for process in family():
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            own += int(value.split()[0]) if name == "RssAnon" else 0
            shared += int(value.split()[0]) if name == "RssFile" else 0
    return own / 1000, shared / 1000


def measure_build(engine: str, corpus: Path, folder: Path, encoder: str) -> dict[str, float]:
    peak = [0.0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], memory()[0])

    watcher = threading.Thread(target=watch)
    watcher.start()
    children = os.times()
    before = cpu()
    build_index(corpus, engine, folder, BuildOptions(encoder=encoder), lambda line: None)
    ended = os.times()  # children that ended are in no list any more
    spent = cpu() - before + ended.children_user + ended.children_system
    done.set()
    watcher.join()
    spent -= children.children_user + children.children_system
    return {"build": spent, "build_memory": peak[0], "size": sum(f.stat().st_size for f in folder.rglob("*")) / 1e6}


def measure_search(engine: str, folder: Path, questions: list[str]) -> dict[str, float]:
    retriever = open_retriever(engine, folder)
    batches = [questions[first : first + BATCH] for first in range(0, len(questions), BATCH)]
    for question in questions[:500]:  # files, caches, Java's compiler
        retriever.search([question], TOP)
    result: dict[str, float] = {}
    for name, calls in (("single", [[question] for question in questions]), ("batched", batches)):
        cpus, walls = [], []
        for _ in range(3):
            start, begun = time.perf_counter(), cpu()
            for call in calls:
                retriever.search(call, TOP)
            cpus.append(cpu() - begun)
            walls.append(time.perf_counter() - start)
        result[name] = statistics.median(cpus) / len(questions) * 1000
        result[f"{name}_qps"] = len(questions) / statistics.median(walls)
    result["memory"], result["mapped"] = memory()
    retriever.close()
    return result


_SERVER = """
import sys
from pathlib import Path
from seedbench_envs.searchqa.retrievers import open_retriever
from seedbench_envs.searchqa.server import Serving, serve
serve(open_retriever(sys.argv[1], Path(sys.argv[2])), Serving(port=0))
"""


def measure_server(engine: str, folder: Path, questions: list[str], clients: int, seconds: float) -> dict[str, float]:
    """What the server adds to a search for one client, and many clients for a while."""
    import httpx

    process = subprocess.Popen([sys.executable, "-c", _SERVER, engine, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().split(": ")[0] + "/retrieve"
    own = open_retriever(engine, folder)
    expected = {
        q: [hit.passage.id for hit in hits] for q, hits in zip(questions, own.search(questions, TOP), strict=True)
    }

    def ask(client: httpx.Client, question: str) -> bool:
        reply = client.post(url, json={"queries": [question], "topk": TOP, "return_scores": True})
        found = reply.json()["result"][0] if reply.status_code == httpx.codes.OK else None
        return found is not None and [hit["document"]["id"] for hit in found] == expected[question]

    def timed(question: str, client: httpx.Client) -> tuple[float, float]:
        start = time.perf_counter()
        ask(client, question)
        middle = time.perf_counter()
        own.search([question], TOP)
        return middle - start, time.perf_counter() - middle

    counts, wrong = [0] * clients, [0] * clients

    def work(number: int, end: float) -> None:
        rng = random.Random(number)
        with httpx.Client(timeout=30) as client:
            while time.perf_counter() < end:
                try:
                    wrong[number] += not ask(client, rng.choice(questions))
                except (httpx.HTTPError, ValueError, KeyError):
                    wrong[number] += 1
                counts[number] += 1

    try:
        with httpx.Client(timeout=30) as client:
            for question in questions[:100]:
                timed(question, client)
            pairs = [timed(question, client) for question in questions[:500]]
        end = time.perf_counter() + seconds
        threads = [threading.Thread(target=work, args=(number, end)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        process.terminate()
        process.wait()
        own.close()
    served, local = (statistics.median(times) * 1000 for times in zip(*pairs, strict=True))
    return {"p50": served, "added": served - local, "qps": sum(counts) / seconds, "errors": sum(wrong)}


def apart(task: str, *args: Any) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, __file__, "--part", json.dumps([task, *map(str, args)])]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, float] = json.loads(out.splitlines()[-1])
    return result


def part(task: str, engine: str, folder: str, listing: str, *more: str) -> dict[str, float]:
    """One measurement, in the process that `apart` started."""
    if task == "build":
        return measure_build(engine, Path(listing), Path(folder), more[0])
    questions = json.loads(Path(listing).read_text("utf-8"))
    if task == "search":
        return measure_search(engine, Path(folder), questions)
    return measure_server(engine, Path(folder), questions, int(more[0]), float(more[1]))


def compare(name: str, corpus: Path, questions: list[str], place: Path, options: argparse.Namespace) -> None:
    """Print one corpus' block."""
    listing = place / "questions.json"
    listing.write_text(json.dumps(questions), "utf-8")
    rows = {}
    for engine in options.engines:
        folder = place / f"{corpus.name}-{engine}"
        rows[engine] = apart("build", engine, folder, corpus, options.encoder) | apart(
            "search", engine, folder, listing
        )
    base = rows[next(engine for engine in ("pyserini", "lucene-order", *rows) if engine in rows)]
    against = next(engine for engine, row in rows.items() if row is base)
    print(f"\n{name}; {len(questions):,} questions, top {TOP}; ratios: times faster than {against}")
    for engine, row in rows.items():
        each = f"query {row['single']:.2f} CPU-ms ({format_number(base['single'] / row['single'])}x), "
        each += f"batched {row['batched']:.2f} ({format_number(base['batched'] / row['batched'])}x)"
        print(f"  {engine:<13} {each}; {row['single_qps']:,.0f} and {row['batched_qps']:,.0f} queries/s")
        print(
            f"  {'':<13} index {row['build']:.1f} CPU-s ({format_number(base['build'] / row['build'])}x), peak"
            f" {row['build_memory']:.0f} MB, {row['size']:.0f} MB on disk; searching holds {row['memory']:.0f} MB"
            f" of its own and {row['mapped']:.0f} MB of mapped files"
        )
    engine = next(iter(rows))
    if options.soak:
        row = apart("server", engine, place / f"{corpus.name}-{engine}", listing, options.clients, options.soak)
        print(
            f"  server ({engine}): p50 {row['p50']:.2f} ms, {row['added']:.2f} ms more than the search alone;"
            f" {options.clients} clients for {options.soak:g} s: {row['qps']:,.0f} requests/s,"
            f" {row['errors']:.0f} errors"
        )


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", help="names separated by commas; default: all that are installed")
    parser.add_argument("--encoder", default="", help="encoder of the dense engine, which is left out without one")
    parser.add_argument("--passages", type=int, default=100_000, help="size of the generated corpus; 0 leaves it out")
    parser.add_argument("--clients", type=int, default=16, help="clients of the server at once")
    parser.add_argument("--soak", type=float, default=10.0, help="seconds that they ask; 0 leaves the server out")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(part(*json.loads(options.part))))
        return
    installed = [name for name, lacks in available().items() if not lacks and (name != "dense" or options.encoder)]
    options.engines = options.engines.split(",") if options.engines else installed
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        real = REAL / "corpus" / "passages.jsonl.gz"
        if real.is_file():
            compare(f"real passages ({SMALL:,})", real, real_questions(), place, options)
        else:
            small = place / "small.jsonl"
            compare(f"{SMALL:,} generated passages", small, generate(small, SMALL), place, options)
        if options.passages:
            large = place / "large.jsonl"
            name = f"{options.passages:,} generated passages"
            compare(name, large, generate(large, options.passages), place, options)


if __name__ == "__main__":
    main()
