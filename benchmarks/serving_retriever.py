"""What the HTTP server adds to a search, and how it bears 16 clients: one run, the same engine beside it.

    python benchmarks/serving_retriever.py [--index DIR] [--seconds 60] [--clients 16] [--engine lucene-order]

The reference is the engine itself in this process. It and a server process on 127.0.0.1 take turns with the same
queries, one client, one connection that stays open; the difference of each pair is what the server, the socket and the
client's own JSON add. The client is a bare one, and then SeedBench's own engine `http`. Then the clients ask for so
many seconds as fast as they can. The corpus is the index that is named, the 33,026 passages in ../shared/data/searchqa
with real questions where they are, and generated otherwise. The exit code is 0 where at most 2 ms are added at p50 and
no request fails.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from seedbench_envs.searchqa.indexing import build_index
from seedbench_envs.searchqa.records import Passage, Retriever
from seedbench_envs.searchqa.retrievers import open_retriever
from seedbench_envs.searchqa.retrievers.passages import Passages

OFFICIAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "searchqa"
TOPK = 3
WARM_UP = 50
AIM_MS = 2.0
DIRECT, BARE, ENGINE = "direct (the reference)", "over HTTP", "over HTTP, engine http"


@dataclass(frozen=True)
class Load:
    """What the clients saw."""

    seconds: float
    latencies: list[float]
    errors: list[str]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values do not pass."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


class Client:
    """One connection that stays open, as Search-R1's dialect is spoken."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def search(self, queries: Sequence[str]) -> list[list[dict[str, Any]]]:
        """Hits for each query. Raises OSError where the status is not 200."""
        body = json.dumps({"queries": queries, "topk": TOPK, "return_scores": True})
        self._connection.request("POST", "/retrieve", body)
        reply = self._connection.getresponse()
        data = reply.read()
        if reply.status != 200:
            raise OSError(f"status {reply.status}: {data[:200]!r}")
        found: list[list[dict[str, Any]]] = json.loads(data)["result"]
        return found


@contextmanager
def served(engine: str, index: Path, threads: int) -> Iterator[int]:
    """A server process over the index; gives its port."""
    code = (
        "import sys; from pathlib import Path; from seedbench_envs.searchqa.server import Serving, serve_index;"
        "serve_index(sys.argv[1], Path(sys.argv[2]), Serving(port=0, threads=int(sys.argv[3])))"
    )
    command = [sys.executable, "-c", code, engine, str(index), str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().rstrip()
            if not line:
                sys.exit("the server did not start")
            print(f"server    {line}")
            yield int(line.split(": ")[0].rpartition(":")[2])
        finally:
            process.terminate()


def take_turns(direct: Retriever, port: int, queries: Sequence[str]) -> dict[str, list[float]]:
    """Milliseconds of every query: direct, with a bare client, and with the engine `http`."""
    client = Client(port)
    engine = open_retriever("http", url=f"http://127.0.0.1:{port}")
    ways: dict[str, Callable[[str], list[str]]] = {
        DIRECT: lambda query: [hit.passage.id for hit in direct.search([query], TOPK)[0]],
        BARE: lambda query: [hit["document"]["id"] for hit in client.search([query])[0]],
        ENGINE: lambda query: [hit.passage.id for hit in engine.search([query], TOPK)[0]],
    }
    for query in queries[:WARM_UP]:
        assert len({tuple(way(query)) for way in ways.values()}) == 1, query
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for query in queries:
        for name, way in ways.items():
            start = time.perf_counter()
            way(query)
            spent[name].append(1000 * (time.perf_counter() - start))
    engine.close()
    return spent


def load(port: int, queries: Sequence[str], clients: int, seconds: float) -> Load:
    """Many clients, each with a connection of its own, as fast as they get answers."""
    end = time.perf_counter() + seconds

    def ask(number: int) -> Load:
        client, seen = Client(port), Load(0.0, [], [])
        place = number * 7919
        while (start := time.perf_counter()) < end:
            place += 1
            try:
                client.search([queries[place % len(queries)]])
                seen.latencies.append(1000 * (time.perf_counter() - start))
            except (OSError, http.client.HTTPException, ValueError) as error:
                seen.errors.append(f"{type(error).__name__}: {error}")
                client = Client(port)
        return seen

    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        parts = list(pool.map(ask, range(clients)))
    return Load(
        time.perf_counter() - begin,
        [latency for part in parts for latency in part.latencies],
        [error for part in parts for error in part.errors],
    )


def direct_rate(direct: Retriever, queries: Sequence[str], seconds: float) -> float:
    """Queries a second of the engine alone, one after the other."""
    begin = time.perf_counter()
    count = 0
    while time.perf_counter() - begin < seconds:
        direct.search([queries[count % len(queries)]], TOPK)
        count += 1
    return count / (time.perf_counter() - begin)


def report(spent: dict[str, list[float]], rate: float, seen: Load, clients: int) -> bool:
    """Print the comparison; true where both aims are met."""
    print(f"{'one client':<28} {'p50':>10} {'p95':>10} {'added p50':>12} {'added p95':>12}")
    added = {
        name: [served - direct for direct, served in zip(spent[DIRECT], values, strict=True)]
        for name, values in spent.items()
    }
    for name, values in spent.items():
        numbers = (quantile(part, share) for part in (values, added[name]) for share in (0.5, 0.95))
        one, two, three, four = (f"{number:.2f} ms" for number in numbers)
        print(f"{name:<28} {one:>10} {two:>10} {three:>12} {four:>12}")
    name = f"{clients} clients"
    print(f"{name:<28} {quantile(seen.latencies, 0.5):>7.2f} ms {quantile(seen.latencies, 0.95):>7.2f} ms")
    count = len(seen.latencies)
    print(
        f"{count:,} requests in {seen.seconds:.0f} s: {count / seen.seconds:,.0f} a second;"
        f" direct, one after the other: {rate:,.0f} a second; errors: {len(seen.errors)}"
    )
    for error in dict.fromkeys(seen.errors[:5]):
        print(f"  {error}")
    quick = quantile(added[BARE], 0.5) <= AIM_MS
    print(f"added at p50 <= {AIM_MS:g} ms: {'yes' if quick else 'NO'}; no errors: {'NO' if seen.errors else 'yes'}")
    return quick and not seen.errors


def generated(count: int, seed: int = 0) -> Iterator[Passage]:
    """Passages of about 70 words with a vocabulary that follows Zipf's law."""
    rng = random.Random(seed)
    words = [f"{letter}{number:x}" for number in range(2000) for letter in "bcdfghklmnprstvz"]
    weights = list(accumulate(1 / (number + 5) for number in range(len(words))))
    for number in range(count):
        title, *text = rng.choices(words, cum_weights=weights, k=rng.randrange(40, 100))
        yield Passage(str(number), title, " ".join(text))


def corpus_of(folder: Path, count: int) -> Path:
    """The official passages, or generated ones written to `folder`."""
    if (official := OFFICIAL / "corpus" / "passages.jsonl.gz").is_file():
        return official
    path = folder / "passages.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for passage in generated(count):
            file.write(json.dumps({"id": passage.id, "contents": passage.contents}) + "\n")
    return path


def questions(index: Path, count: int) -> list[str]:
    """Real questions where they are; otherwise ten words in a row of passages spread over the corpus."""
    if (official := OFFICIAL / "nq" / "test.jsonl.gz").is_file():
        with gzip.open(official, "rt", encoding="utf-8") as lines:
            return [json.loads(line)["question"] for line, _ in zip(lines, range(count), strict=False)]
    passages = Passages(index)
    step = max(len(passages) // count, 1)
    return [" ".join(passages[place].text.split()[5:15]) for place in range(0, len(passages), step)][:count]


def measure(engine: str, index: Path, options: argparse.Namespace) -> bool:
    """Everything, with one index; true where the aims are met."""
    direct = open_retriever(engine, index)
    queries = questions(index, options.queries)
    try:
        with served(engine, index, options.threads) as port:
            spent = take_turns(direct, port, queries)
            rate = direct_rate(direct, queries, min(options.seconds, 5))
            seen = load(port, queries, options.clients, options.seconds)
    finally:
        direct.close()
    return report(spent, rate, seen, options.clients)


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, help="an index folder; one is built otherwise")
    parser.add_argument("--engine", default="lucene-order", help="engine of the index that is built")
    parser.add_argument("--passages", type=int, default=33_000, help="of the generated corpus")
    parser.add_argument("--queries", type=int, default=1000, help="with one client")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=4, help="of the server")
    options = parser.parse_args()
    if options.index:
        sys.exit(not measure("auto", options.index, options))
    with tempfile.TemporaryDirectory() as scratch:
        index = Path(scratch) / "index"
        build_index(corpus_of(Path(scratch), options.passages), options.engine, index, report=lambda _: None)
        sys.exit(not measure(options.engine, index, options))


if __name__ == "__main__":
    main()
