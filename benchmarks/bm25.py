"""Native search against naive BM25 in one run: CPU time a query, build and open time, memory.

    python benchmarks/bm25.py [--documents 100000] [--queries 200]

The reference is what rank_bm25 does: for every term of the query, every document's count is looked up in a
dictionary and scored. It gets the same terms, and a few of the queries, in the same process. Times are CPU times;
ratios are what to read. The small set is the official 1,000 products with recorded
queries where they lie in ../shared/data/webshop, and generated otherwise; the large set is always generated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from seedbench.ui.tally import format_number
from seedbench_envs.bm25 import Bm25Index, analyze

Documents = list[tuple[str, str]]

OFFICIAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "webshop"
REFERENCE_QUERIES = 5
_SYLLABLES = "ba co di fu ga lo mi nu pe ra si to va wo xi zu".split()  # noqa: SIM905


def generated(count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Documents of about 110 words with a vocabulary that follows Zipf's law, as product texts do."""
    rng = random.Random(seed)
    size = 40 * round(math.sqrt(count)) + 20_000
    words = [word(number) for number in range(size)]
    weights = list(accumulate(1 / (number + 5) for number in range(size)))
    for number in range(count):
        yield f"D{number:09}", " ".join(rng.choices(words, cum_weights=weights, k=rng.randrange(20, 200)))


def word(number: int) -> str:
    """A pronounceable word for each number."""
    text = ""
    while number or not text:
        number, place = divmod(number, len(_SYLLABLES))
        text += _SYLLABLES[place]
    return text + "k"


def questions(documents: Documents, count: int, seed: int = 1) -> list[str]:
    """Queries of 25 words: half from one document, half from another, frequent words among them."""
    rng = random.Random(seed)
    texts = [rng.choice(documents)[1].split() for _ in range(2 * count)]
    return [
        " ".join(rng.choices(one, k=13) + rng.choices(other, k=12))
        for one, other in zip(texts[::2], texts[1::2], strict=True)
    ]


def official() -> tuple[Documents, list[str]] | None:
    """The official products' texts and the recorded queries; None where they are not at hand."""
    if not (OFFICIAL / "golden" / "search_top50.jsonl.gz").is_file():
        return None
    with gzip.open(OFFICIAL / "items_shuffle_1000.json.gz", "rt", encoding="utf-8") as file:
        products = json.load(file)
    texts = [
        (p["asin"], f"{p['name']} {p['full_description']} {''.join(p['small_description'][:1])}") for p in products
    ]
    with gzip.open(OFFICIAL / "golden" / "search_top50.jsonl.gz", "rt", encoding="utf-8") as lines:
        return texts, [json.loads(line)["query"] for line in lines]


def shown(product: dict[str, Any]) -> Iterator[str]:
    """What a product's document holds: title, description, first bullet, options."""
    yield product["name"]
    yield product["full_description"]
    bullets = product["small_description"]
    yield from [bullets] if isinstance(bullets, str) else bullets[:1]
    for name, values in (product["customization_options"] or {}).items():
        yield name
        yield from (value["value"] for value in values or ())


class Naive:
    """BM25 over dictionaries: no index, every document for every term."""

    def __init__(self, documents: Documents, k1: float = 0.9, b: float = 0.4) -> None:
        self.counts = [Counter(analyze(text)) for _, text in documents]
        mean = sum(terms.total() for terms in self.counts) / len(self.counts)
        self.norms = [k1 * (1 - b + b * terms.total() / mean) for terms in self.counts]
        self.holding = Counter(term for terms in self.counts for term in terms)

    def search(self, terms: Sequence[str], k: int = 50) -> list[int]:
        """The `k` best documents."""
        scores = [0.0] * len(self.counts)
        for term in terms:
            df = self.holding[term]
            weight = math.log(1 + (len(self.counts) - df + 0.5) / (df + 0.5))
            for number, counts in enumerate(self.counts):
                tf = counts.get(term, 0)
                scores[number] += weight * tf / (tf + self.norms[number])
        return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[:k]


def cpu_seconds(search: Callable[[str], object], queries: list[str]) -> float:
    """Median CPU seconds of a query."""
    times = []
    for query in queries:
        start = time.process_time()
        search(query)
        times.append(time.process_time() - start)
    return median(times)


_OPEN = """
import sys, time
from pathlib import Path
from seedbench_envs.bm25 import Bm25Index
def memory(field):
    line = next(line for line in open("/proc/self/status") if line.startswith(field))
    return int(line.split()[1]) / 1000
before = memory("RssAnon")
start = time.perf_counter()
index = Bm25Index.open(Path(sys.argv[1]))
seconds = time.perf_counter() - start
for query in open(sys.argv[2], encoding="utf-8"):
    index.search(query.rstrip("\\n"))
print(seconds, memory("RssAnon"), before, memory("RssFile"))
"""


def opened(folder: Path, queries: list[str]) -> tuple[float, float, float, float]:
    """Seconds to open in a fresh process; its own MB after the queries and before; and MB of mapped files in memory."""
    listing = folder.with_suffix(".queries")
    listing.write_text("\n".join(query.replace("\n", " ") for query in queries), "utf-8")
    command = [sys.executable, "-c", _OPEN, str(folder), str(listing)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(out[0]), float(out[1]), float(out[2]), float(out[3])


def measure(name: str, documents: Documents, queries: list[str], folder: Path, naive: bool) -> float:
    """Print one set's block; returns the native CPU seconds of a query."""
    start = time.process_time()
    index = Bm25Index.build(documents)
    build = time.process_time() - start
    index.save(folder)
    entries, terms = len(index.arrays.documents), len(index.arrays.terms)
    print(f"{name}: {len(index):,} documents, {terms:,} terms, {entries:,} entries; median of {len(queries):,} queries")
    each = build / len(index)
    for query in queries[:20]:
        index.search(query)
    native = cpu_seconds(index.search, queries)
    print(f"  native     {native * 1000:>10.3f} CPU-ms a query   build {build:.1f} CPU-s ({each * 1000:.2f} ms each)")
    if naive:
        reference = Naive(documents)
        slow = cpu_seconds(
            lambda query: reference.search(analyze(query)), queries[:: len(queries) // REFERENCE_QUERIES]
        )
        print(f"  reference  {slow * 1000:>10.1f} CPU-ms a query   ratio {format_number(slow / native)}x")
    del index
    seconds, own, before, mapped = opened(folder, queries)
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    print(
        f"  opened in {seconds * 1000:.1f} ms from {size:.1f} MB; after the queries the process holds {own:.0f} MB of"
        f" its own ({before:.0f} MB before opening) and {mapped:.0f} MB of shared files, libraries included"
    )
    return native


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000, help="size of the large set")
    parser.add_argument("--queries", type=int, default=200, help="queries of a generated set")
    parser.add_argument("--no-reference", action="store_true", help="without the naive search of the large set")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        real = official()
        small = real[0] if real else list(generated(1000))
        queries = real[1] if real else questions(small, options.queries)
        first = measure("official products" if real else "generated", small, queries, Path(place, "small"), naive=True)
        large = list(generated(options.documents))
        asked = questions(large, options.queries)
        last = measure("generated", large, asked, Path(place, "large"), naive=not options.no_reference)
    print(f"a query on the large set takes {format_number(last / first)}x the time of one on the small set")


if __name__ == "__main__":
    main()
