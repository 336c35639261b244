"""`manifest.json`: what a retrieval index is, written last; and the checks before one is used."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from seedbench.errors import SeedBenchError, UsageError
from seedbench_envs.searchqa.records import Hit
from seedbench_envs.searchqa.retrievers.passages import Passages

FORMAT = "seedbench-retrieval-index"
FILE = "manifest.json"
CHECK_HITS = 3
_TOLERANCE = 1e-3
"""Of a score, and relative to scores above 1: other processors add in another order."""

Search = Callable[[Sequence[str], int], list[list[Hit]]]


@dataclass(frozen=True, slots=True)
class Check:
    """A query with the ids and scores that it gave when the index was built, best first."""

    query: str
    hits: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """What an index is."""

    engine: str
    version: int
    """Of the engine's files and rules, raised with every change of either."""
    parameters: dict[str, Any]
    """What results depend on beside the corpus."""
    corpus: str
    """`corpus_hash` of the passages."""
    passages: int
    checks: tuple[Check, ...]
    files: dict[str, int]
    """Path inside the folder -> bytes."""
    packages: dict[str, str] = field(default_factory=dict)
    """Versions of the packages that built it: for the reader; the stored checks decide whether it still works."""
    local: dict[str, str] = field(default_factory=dict)
    """Where this machine has what the engine needs, such as the encoder."""

    def identity(self) -> dict[str, object]:
        """What results depend on (`Retriever.identity`)."""
        return {
            "engine": self.engine, "version": self.version, "parameters": dict(self.parameters),
            "corpus": self.corpus, "passages": self.passages,
        }  # fmt: skip


def write_manifest(folder: Path, manifest: IndexManifest) -> None:
    """Write it into the folder. Raises OSError."""
    data = {"format": FORMAT, **dataclasses.asdict(manifest)}
    (folder / FILE).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_manifest(folder: Path) -> IndexManifest:
    """The manifest of an index folder.

    Raises:
        UsageError: the folder holds no index.
        SeedBenchError: the manifest cannot be read.
    """
    try:
        data = json.loads((folder / FILE).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(
            f"there is no retrieval index at '{folder}' (no {FILE}): build one with"
            " `seedbench index build CORPUS --engine ENGINE --out DIR`."
        ) from error
    except (OSError, ValueError) as error:
        raise _damaged(folder, f"{FILE}: {error}") from error
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise UsageError(f"'{folder}' is no retrieval index of seedbench: name another folder.")
    try:
        if unread := data.keys() - {field.name for field in dataclasses.fields(IndexManifest)}:
            raise ValueError(f"it has {', '.join(sorted(unread))}")
        return TypeAdapter(IndexManifest).validate_python(data)
    except ValueError as error:
        raise SeedBenchError(f"the index '{folder}' was written by another release: build it again.") from error


def check_manifest(folder: Path, manifest: IndexManifest, engine: str, version: int, corpus: str | None) -> None:
    """Refuse an index of another engine, version or corpus, and one whose files have changed in size.

    Raises:
        UsageError: engine or corpus differ.
        SeedBenchError: the version differs, or files do.
    """
    if manifest.engine != engine:
        raise UsageError(
            f"the index '{folder}' belongs to the engine '{manifest.engine}', not '{engine}': ask for"
            f" '{manifest.engine}', or build another index."
        )
    if manifest.version != version:
        raise SeedBenchError(
            f"the index '{folder}' is of version {manifest.version} of the engine '{engine}', and this release reads"
            f" version {version}: build it again."
        )
    if corpus is not None and manifest.corpus != corpus:
        raise UsageError(
            f"the index '{folder}' holds another corpus ({manifest.corpus[:12]}, {manifest.passages:,} passages)"
            f" than the one asked for ({corpus[:12]}): name its own index, or build one."
        )
    for name, size in manifest.files.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            reason = f"{name} is missing" if found is None else f"{name} has {found:,} bytes instead of {size:,}"
            raise _damaged(folder, reason)


def make_checks(passages: Passages, search: Search, count: int = 5) -> tuple[Check, ...]:
    """Queries from passages spread over the corpus, with what they give now."""
    step = max(1, len(passages) // count)
    queries = [_query(passages[number].text) for number in range(0, len(passages), step)][:count]
    return tuple(
        Check(query, tuple((hit.passage.id, round(hit.score, 6)) for hit in hits))
        for query, hits in zip(queries, search(queries, CHECK_HITS), strict=True)
    )


def run_checks(folder: Path, manifest: IndexManifest, search: Search, packages: dict[str, str]) -> None:
    """Raise SeedBenchError where a stored query does not give what it gave when the index was built.

    Ids count where the score tells a passage from its neighbours.
    """
    found = search([check.query for check in manifest.checks], CHECK_HITS)
    for check, hits in zip(manifest.checks, found, strict=True):
        if not _same(check.hits, [(hit.passage.id, hit.score) for hit in hits]):
            raise SeedBenchError(
                f"the index '{folder}' gives other hits than when it was built ({_versions(manifest.packages)}; here"
                f" {_versions(packages)}): build it again, or install the versions that built it."
            )


def _same(stored: Sequence[tuple[str, float]], found: Sequence[tuple[str, float]]) -> bool:
    if len(stored) != len(found):
        return False
    scores = [score for _, score in stored]
    for place, ((name, score), (other, now)) in enumerate(zip(stored, found, strict=True)):
        room = _TOLERANCE * max(1.0, abs(score))
        if abs(score - now) > room:
            return False
        last = place == CHECK_HITS - 1  # what came behind it is not known
        tied = last or any(abs(score - near) <= room for near in scores[:place] + scores[place + 1 :])
        if name != other and not tied:
            return False
    return True


def _query(text: str) -> str:
    return " ".join(text.split()[:12])


def _versions(packages: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(packages.items())) or "no packages"


def _damaged(folder: Path, reason: str) -> SeedBenchError:
    return SeedBenchError(
        f"the index '{folder}' is damaged ({reason}): delete the folder and build it again (`seedbench index build`)."
    )
