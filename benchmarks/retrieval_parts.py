"""BM25 over a corpus in parts against one index over the whole: how many of the best passages are the same.

    python benchmarks/retrieval_parts.py [--data ../shared/data/searchqa] [--questions 1000]

Each part weighs terms by its own passages, so that scores of different parts are not quite comparable. The parts are
cut one after the other, or dealt out in turn. The reference is the same engine, `lucene-order`, over all passages; half
of the questions come from NQ, half from HotpotQA. (Dense parts give what the whole gives; the tests hold that.)
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from seedbench_envs.searchqa.corpus import read_corpus
from seedbench_envs.searchqa.indexing import build_index
from seedbench_envs.searchqa.records import Hit, Passage, Retriever
from seedbench_envs.searchqa.retrievers import open_retriever
from seedbench_envs.searchqa.retrievers.shards import best_of

K = 10
CUTS = ((2, "consecutive"), (4, "consecutive"), (8, "consecutive"), (2, "in turn"), (8, "in turn"))


def index(folder: Path, passages: Sequence[Passage]) -> Retriever:
    """An index of passages, built in an empty folder."""
    folder.mkdir()
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": p.id, "contents": p.contents}) + "\n" for p in passages), "utf-8")
    build_index(corpus, "lucene-order", folder / "index", report=lambda _: None)
    return open_retriever("lucene-order", folder / "index")


def questions(data: Path, count: int) -> list[str]:
    """Half of NQ's test set, half of HotpotQA's development set."""
    found = []
    for name in ("nq", "hotpotqa"):
        with gzip.open(next((data / name).glob("*.jsonl.gz")), "rt", encoding="utf-8") as lines:
            found += [json.loads(line)["question"] for line in islice(lines, count // 2)]
    return found


def overlap(expected: list[list[Hit]], found: list[list[Hit]], k: int) -> float:
    """Mean share of the first k passages that are among the first k."""
    shares = [
        len({hit.passage.id for hit in one[:k]} & {hit.passage.id for hit in other[:k]}) / len(one[:k])
        for one, other in zip(expected, found, strict=True)
        if one
    ]
    return sum(shares) / len(shares)


def main() -> None:
    """Print a row for each way to cut."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    official = Path(__file__).resolve().parents[2] / "shared" / "data" / "searchqa"
    parser.add_argument("--data", type=Path, default=official)
    parser.add_argument("--questions", type=int, default=1000)
    given = parser.parse_args()
    passages = list(read_corpus(given.data / "corpus" / "passages.jsonl.gz"))
    asked = questions(given.data, given.questions)
    with tempfile.TemporaryDirectory() as scratch:
        expected = index(Path(scratch, "whole"), passages).search(asked, K)
        print(f"{len(passages):,} passages, {len(asked):,} questions: share of the best 3 and {K} that are the same")
        for count, way in CUTS:
            size = -(-len(passages) // count)
            cuts = [
                passages[n::count] if way == "in turn" else passages[n * size : (n + 1) * size] for n in range(count)
            ]
            parts = [index(Path(scratch, f"{way}-{count}-{n}"), cut).search(asked, K) for n, cut in enumerate(cuts)]
            found = [best_of(lists, K) for lists in zip(*parts, strict=True)]
            print(f"{count} parts, {way:<12} {overlap(expected, found, 3):.3f} {overlap(expected, found, K):.3f}")


if __name__ == "__main__":
    main()
