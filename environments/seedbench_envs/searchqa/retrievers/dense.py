"""The engine `dense`: inner products of E5-style vectors (encoder.py) with faiss.

`flat` is exact and searches the memory-mapped vectors in blocks, so that it needs little memory; `ivf` and `hnsw` trade
exactness for speed. Building keeps the vectors in the scratch folder: a killed build goes on where it stopped.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError
from seedbench.policies.checkpoint import sha256_of_json
from seedbench.store import Report
from seedbench_envs.searchqa.records import Hit
from seedbench_envs.searchqa.retrievers.encoder import Encoder
from seedbench_envs.searchqa.retrievers.engine import BuildOptions, Built, checked_k, installed
from seedbench_envs.searchqa.retrievers.manifest import IndexManifest
from seedbench_envs.searchqa.retrievers.passages import Passages

VERSION = 1
RESUMES = True
_VECTORS = "vectors.f32"
_INDEX = "index.faiss"
_ENCODED_AT_ONCE = 1024
_SEARCHED_AT_ONCE = 1 << 16
_TRAINING = 64
"""ivf: passages a list that its centres are learned from."""

Matrix = NDArray[np.float32]


def packages() -> dict[str, str]:
    """Versions of faiss and transformers. Raises SeedBenchError where one is not installed."""
    return installed("dense", "faiss-cpu") | installed("dense", "torch", "transformers", extra="train")


def build(passages: Passages, folder: Path, scratch: Path, options: BuildOptions, report: Report) -> Built:
    """Encode the passages and index the vectors. Raises UsageError or SeedBenchError over the encoder."""
    encoder = Encoder(options.encoder, options.max_tokens)
    key = sha256_of_json([encoder.weights, options.max_tokens, options.passage_prefix])
    file = scratch / f"{key}-{_VECTORS}"
    _encode(passages, encoder, file, options, report)
    vectors = _mapped(file, encoder.size)
    parameters = {
        "encoder": encoder.name, "weights": encoder.weights, "size": encoder.size, "max_tokens": options.max_tokens,
        "query_prefix": options.query_prefix, "passage_prefix": options.passage_prefix, "kind": options.kind,
    }  # fmt: skip
    if options.kind == "flat":
        _place(file, folder / _VECTORS)
    else:
        report(f"building the {options.kind} index of {len(vectors):,} vectors")
        index, more = _ivf(vectors, options) if options.kind == "ivf" else _hnsw(vectors, options)
        _faiss().write_index(index, str(folder / _INDEX))
        parameters |= more
    place = Path(options.encoder).expanduser()
    return Built(parameters, {"encoder": str(place.resolve()) if place.is_dir() else options.encoder})


def _place(file: Path, target: Path) -> None:
    """Give the file a second name, so that a kill before the end of the build does not cost it."""
    try:
        target.hardlink_to(file)
    except OSError:  # the file system has no links
        file.replace(target)


def _encode(passages: Passages, encoder: Encoder, file: Path, options: BuildOptions, report: Report) -> None:
    """Append the vectors that `file` lacks; whole blocks, flushed to the disk."""
    row = 4 * encoder.size
    have = file.stat().st_size // row if file.is_file() else 0
    have = min(have // _ENCODED_AT_ONCE * _ENCODED_AT_ONCE, len(passages))
    if have:
        report(f"going on behind {have:,} vectors of an earlier try")
    with file.open("r+b" if have else "wb") as stream:
        stream.truncate(have * row)
        stream.seek(have * row)
        for first in range(have, len(passages), _ENCODED_AT_ONCE):
            last = min(first + _ENCODED_AT_ONCE, len(passages))
            texts = [options.passage_prefix + passages[number].contents for number in range(first, last)]
            stream.write(encoder.encode(texts, options.batch).tobytes())
            stream.flush()
            os.fsync(stream.fileno())
            report(f"encoded {last:,} of {len(passages):,} passages")


def _mapped(file: Path, size: int) -> Matrix:
    """The vectors of a file, memory-mapped, (N, size)."""
    return np.asarray(np.memmap(file, dtype=np.float32, mode="r")).reshape(-1, size)


def _blocks(vectors: Matrix) -> Iterator[tuple[int, Matrix]]:
    """Consecutive rows with the number of the first."""
    for first in range(0, len(vectors), _SEARCHED_AT_ONCE):
        yield first, vectors[first : first + _SEARCHED_AT_ONCE]


def _ivf(vectors: Matrix, options: BuildOptions) -> tuple[Any, dict[str, Any]]:
    """Inverted lists; their centres come from passages at regular distances."""
    faiss = _faiss()
    lists = min(options.lists or round(4 * sqrt(len(vectors))), len(vectors))
    size = vectors.shape[1]
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(size), size, lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1  # says nothing on small corpora
    index.train(np.ascontiguousarray(vectors[:: max(1, len(vectors) // (lists * _TRAINING))]))
    for _, block in _blocks(vectors):
        index.add(block)
    return index, {"lists": lists, "probes": min(options.probes, lists)}


def _hnsw(vectors: Matrix, options: BuildOptions) -> tuple[Any, dict[str, Any]]:
    """A graph of neighbours."""
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(vectors.shape[1], options.neighbours, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = options.effort
    for _, block in _blocks(vectors):
        index.add(block)
    return index, {"neighbours": options.neighbours, "effort": options.effort}


def _faiss() -> Any:
    return importlib.import_module("faiss")


def open_index(folder: Path, manifest: IndexManifest, passages: Passages, encoder: str | None) -> Dense:
    """Load the encoder and open the vectors.

    Raises:
        UsageError or SeedBenchError: the encoder is missing, or other weights than those that built the index.
    """
    place = encoder or manifest.local.get("encoder", "")
    parameters = manifest.parameters
    loaded = Encoder(place, int(parameters["max_tokens"]))
    if loaded.weights != parameters["weights"]:
        raise SeedBenchError(
            f"the index '{folder}' was built with other weights of the encoder ({parameters['weights'][:12]}) than"
            f" '{place}' holds ({loaded.weights[:12]}): name the encoder that built it, or build the index again."
        )
    return Dense(folder, manifest, passages, loaded)


class Dense:
    """Nearest passages by the inner product of vectors, which lies in -1 to 1."""

    slow = True

    def __init__(self, folder: Path, manifest: IndexManifest, passages: Passages, encoder: Encoder) -> None:
        self._manifest = manifest
        self._passages = passages
        self._encoder = encoder
        self._prefix = str(manifest.parameters["query_prefix"])
        flat = manifest.parameters["kind"] == "flat"
        self._index = _opened(folder / _INDEX, manifest.parameters)
        self._vectors = _mapped(folder / _VECTORS, encoder.size) if flat else None
        count = len(self._vectors) if self._vectors is not None else int(self._index.ntotal)
        if count != len(passages):
            raise SeedBenchError(f"the index '{folder}' is damaged ({count:,} vectors for {len(passages):,} passages).")

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever.search`."""
        checked_k(k)
        asked = [number for number, query in enumerate(queries) if query.strip()]
        results: list[list[Hit]] = [[] for _ in queries]
        if not asked:
            return results
        vectors = self._encoder.encode([self._prefix + _sound(queries[number]) for number in asked])
        scores, numbers = self._nearest(vectors, min(k, len(self._passages)))
        for place, row, line in zip(asked, numbers.tolist(), scores.tolist(), strict=True):
            # faiss fills rows that it cannot fill with -1
            results[place] = [Hit(self._passages[n], s) for n, s in zip(row, line, strict=True) if n >= 0]
        return results

    def _nearest(self, queries: Matrix, k: int) -> tuple[Matrix, NDArray[np.int64]]:
        """Scores and passages, best first, both (queries, k)."""
        if self._index is not None:
            scores, numbers = self._index.search(queries, k)
            return scores, numbers
        assert self._vectors is not None  # one of the two is there
        best: tuple[Matrix, NDArray[np.int64]] | None = None
        for first, block in _blocks(self._vectors):
            scores, numbers = _faiss().knn(queries, block, min(k, len(block)), metric=_faiss().METRIC_INNER_PRODUCT)
            numbers = numbers.astype(np.int64) + first
            if best is not None:
                scores = np.concatenate([best[0], scores], axis=1)
                numbers = np.concatenate([best[1], numbers], axis=1)
            order = np.lexsort((numbers, -scores), axis=1)[:, :k]  # equal scores by number
            best = np.take_along_axis(scores, order, 1), np.take_along_axis(numbers, order, 1)
        assert best is not None  # an index holds passages
        return best

    def identity(self) -> dict[str, object]:
        """See `Retriever.identity`."""
        return self._manifest.identity()

    def close(self) -> None:
        """Nothing to free."""


def _opened(file: Path, parameters: dict[str, Any]) -> Any:
    """The faiss index; None where there is none (flat)."""
    if parameters["kind"] == "flat":
        return None
    faiss = _faiss()
    try:
        # The lists stay on the disk and are mapped; a graph is read into memory.
        index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP if parameters["kind"] == "ivf" else 0)
    except RuntimeError as error:
        raise SeedBenchError(f"faiss cannot read '{file}' ({str(error)[-200:]}): build the index again.") from error
    if parameters["kind"] == "ivf":
        index.nprobe = parameters["probes"]
    else:
        index.hnsw.efSearch = parameters["effort"]
    return index


def _sound(query: str) -> str:
    """The query without lone surrogates, which tokenizers refuse."""
    return query.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
