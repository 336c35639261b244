"""The folder of a saved index: numpy files, and `index.json`, which is written last and says what belongs to it."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError
from seedbench_envs.bm25 import analysis
from seedbench_envs.bm25.arrays import Arrays
from seedbench_envs.bm25.strings import Strings

FORMAT = "seedbench-bm25"
VERSION = 1
PROBE_HITS = 3

_MANIFEST = "index.json"
_KINDS = {
    "ids": "u1", "id_starts": "i8", "rank": "i4", "terms": "u1", "term_starts": "i8",
    "starts": "i8", "documents": "i4", "divisors": "f4",
}  # fmt: skip
_SMALL = 8 << 20
"""Files up to this size are read whole at every opening."""

Hits = list[tuple[str, float]]


def write_arrays(folder: Path, arrays: Arrays, probe_hits: Hits) -> None:
    """Save; see `Bm25Index.save`."""
    if not _replaceable(folder):
        raise SeedBenchError(f"'{folder}' holds something other than a search index: name another folder.")
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}")
    old = fresh.with_name(f"{fresh.name}.old")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        files = {name: _write(fresh / f"{name}.npy", part) for name, part in _parts(arrays).items()}
        manifest = {
            "format": FORMAT, "version": VERSION, "analysis": analysis.VERSION, "k1": arrays.k1, "b": arrays.b,
            "filled": arrays.filled, "files": files, "probe": arrays.probe, "probe_hits": probe_hits,
        }  # fmt: skip
        (fresh / _MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
        if folder.exists():
            folder.replace(old)
        fresh.replace(folder)
    except OSError as error:
        raise SeedBenchError(f"cannot write the search index '{folder}': {error}.") from error
    finally:
        if old.exists() and not folder.exists():
            old.replace(folder)  # stopped between the two renames
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def read_arrays(folder: Path, verify: bool) -> Arrays:
    """Open; see `Bm25Index.open`."""
    manifest = _manifest(folder)
    try:
        parts = {
            name: _read(folder / f"{name}.npy", kind, manifest["files"][name], verify) for name, kind in _KINDS.items()
        }
        arrays = Arrays(
            ids=Strings(parts["ids"], parts["id_starts"]), rank=parts["rank"],
            terms=Strings(parts["terms"], parts["term_starts"]), starts=parts["starts"],
            documents=parts["documents"], divisors=parts["divisors"], filled=int(manifest["filled"]),
            k1=float(manifest["k1"]), b=float(manifest["b"]), probe=str(manifest["probe"]),
        )  # fmt: skip
        _check_shapes(arrays)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, str(error) or type(error).__name__) from error
    return arrays


def check_probe(folder: Path, hits: Hits) -> None:
    """Raise SeedBenchError where the stored search does not give what it gave when the index was saved."""
    stored = [(str(identifier), float(score)) for identifier, score in _manifest(folder)["probe_hits"]]
    if stored != hits:
        raise _damaged(folder, "a stored search gives other hits")


def _replaceable(folder: Path) -> bool:
    """Whether nothing is lost when an index is put there."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return True
    try:
        manifest = json.loads((folder / _MANIFEST).read_text("utf-8"))
        return isinstance(manifest, dict) and manifest.get("format") == FORMAT
    except (OSError, ValueError):
        return False


def _parts(arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {
        "ids": arrays.ids.blob, "id_starts": arrays.ids.offsets, "rank": arrays.rank,
        "terms": arrays.terms.blob, "term_starts": arrays.terms.offsets, "starts": arrays.starts,
        "documents": arrays.documents, "divisors": arrays.divisors,
    }  # fmt: skip


def _write(path: Path, part: NDArray[Any]) -> tuple[int, int]:
    """Save an array; returns the file's size and checksum."""
    np.save(path, part)
    return path.stat().st_size, _checksum(path)


def _read(path: Path, kind: str, written: tuple[int, int], verify: bool) -> NDArray[Any]:
    """Map an array. Raises OSError or ValueError where the file is not the one that was written."""
    size, checksum = written
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} has {path.stat().st_size:,} bytes instead of {size:,}")
    if (verify or size <= _SMALL) and _checksum(path) != checksum:
        raise ValueError(f"the content of {path.name} has changed")
    part = np.load(path, mmap_mode="r", allow_pickle=False)
    if part.dtype != np.dtype(kind) or part.ndim != 1:
        raise ValueError(f"{path.name} holds {part.dtype} {part.shape}")
    return np.asarray(part)


def _check_shapes(arrays: Arrays) -> None:
    postings = len(arrays.documents)
    fits = (
        len(arrays.rank) == len(arrays.ids)
        and len(arrays.starts) == len(arrays.terms) + 1
        and int(arrays.starts[-1]) == postings == len(arrays.divisors)
    )
    if not fits:
        raise ValueError("its files do not fit together")


def _checksum(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            total = zlib.crc32(chunk, total)
    return total


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text("utf-8"))
    except FileNotFoundError as error:
        raise SeedBenchError(f"no search index at '{folder}' (no {_MANIFEST}): build it again.") from error
    except (OSError, ValueError) as error:
        raise _damaged(folder, f"{_MANIFEST}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise SeedBenchError(
            f"'{folder}' is no search index of seedbench: name another folder or build the index there."
        )
    found, known = (manifest.get("version"), manifest.get("analysis")), (VERSION, analysis.VERSION)
    if found != known:
        raise SeedBenchError(
            f"the search index '{folder}' is of version {found[0]} ({found[1]}), and this release reads version"
            f" {known[0]} ({known[1]}): build it again."
        )
    return manifest


def _damaged(folder: Path, reason: str) -> SeedBenchError:
    return SeedBenchError(f"the search index '{folder}' is damaged ({reason}): delete the folder and build it again.")
