"""Importing Search-QA: whatever question sets and corpora lie in a folder, into the store."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path
from uuid import uuid4

from seedbench.errors import SeedBenchError
from seedbench.store import Report
from seedbench_envs.searchqa.corpus import corpus_hash, read_corpus
from seedbench_envs.searchqa.datasets import SETS, load_questions, official_count, shared_questions
from seedbench_envs.searchqa.library import STORED_ENGINE, edition_folder
from seedbench_envs.searchqa.questions import Questions, store_questions
from seedbench_envs.searchqa.records import Question
from seedbench_envs.searchqa.retrievers.manifest import FILE as MANIFEST
from seedbench_envs.searchqa.retrievers.manifest import read_manifest
from seedbench_envs.searchqa.rows import is_rows_file, read_rows
from seedbench_envs.searchqa.splits import SHIPPED, set_panel, write_panels

MOST_PASSAGES = 200_000
"""Larger corpora need an index of their own (`seedbench index build`)."""
_NO_SETS = "id_aliases"


def import_folder(source: Path, report: Report) -> None:
    """Import the questions of every set found under `source` (a file or a folder), and a small corpus.

    Of two files with one set and split the larger counts. Panels are written for what the package ships none for.

    Raises:
        SeedBenchError: nothing to import, a damaged file, or a store that cannot be written.
    """
    files = sorted(path for path in (source.rglob("*") if source.is_dir() else [source]) if path.is_file())
    readable = [path for path in files if is_rows_file(path) and not path.name.startswith(_NO_SETS)]
    corpora = [path for path in readable if _is_corpus(path)]
    sets = _collect([path for path in readable if path not in corpora], report)
    if not sets and not corpora:
        raise SeedBenchError(
            f"'{source}' holds no Search-QA questions or passages; run `seedbench data fetch searchqa` without `--from`"
            " to see which files can be imported."
        )
    folder = edition_folder("official")
    store_questions(folder, (question for found in sets.values() for question in found))
    for (name, split), found in sorted(sets.items()):
        report(counted(name, split, len(found)))
    _report_shared(folder, report)
    _write_missing_panels(folder, report)
    for path in corpora:
        _import_corpus(path, folder, report)


def counted(source: str, split: str, count: int) -> str:
    """A set's size beside the published one."""
    whole = official_count(source, split)
    title = f"{SETS[source].title} {split}"
    if not whole:
        return f"{title}: {count:,} questions"
    return (
        f"{title}: all {count:,} questions" if count == whole else f"{title}: PARTIAL, {count:,} of {whole:,} questions"
    )


def _collect(files: list[Path], report: Report) -> dict[tuple[str, str], list[Question]]:
    sets: dict[tuple[str, str], list[Question]] = {}
    origin: dict[tuple[str, str], Path] = {}
    for path in files:
        parts: dict[tuple[str, str], list[Question]] = {}
        for question in load_questions(path, published=True):
            parts.setdefault((question.source, question.split), []).append(question)
        for key, found in parts.items():
            if key in sets:
                smaller = path if len(found) <= len(sets[key]) else origin[key]
                report(
                    f"not imported: {smaller} ({'/'.join(key)} is in another file too, which has no fewer questions)"
                )
            if len(found) > len(sets.get(key, ())):
                sets[key], origin[key] = found, path
    return sets


def _is_corpus(path: Path) -> bool:
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        return False
    return any("contents" in row or {"title", "text"} <= row.keys() for row in islice(read_rows(path), 1))


def _report_shared(folder: Path, report: Report) -> None:
    """What train splits ask that the reported splits ask too."""
    stored = Questions(folder / "questions")
    train = [q for name, split in stored.sets() if split == "train" for q in stored.of_set(name, split).values()]
    for name, info in SETS.items() if train else ():
        found = stored.of_set(name, info.split)
        if shared := shared_questions(train, found.values()):
            report(f"{info.title} {info.split}: {len(shared)} of {len(found):,} questions are also train questions")


def _write_missing_panels(folder: Path, report: Report) -> None:
    stored = Questions(folder / "questions")
    wanted = [
        (name, split)
        for name, split in stored.sets()
        if split in ("train", SETS[name].split) and not (name in SHIPPED and split == SETS[name].split)
    ]
    panels = [set_panel(stored, name, split) for name, split in wanted]
    for panel, path in zip(panels, write_panels(panels, folder / "panels"), strict=True):
        report(f"panel of {len(panel.tasks):,} questions, to be named by its file: --panel '{path}'")


def _import_corpus(path: Path, folder: Path, report: Report) -> None:
    from seedbench_envs.searchqa.indexing import build_index

    if sum(1 for _ in islice(read_corpus(path), MOST_PASSAGES + 1)) > MOST_PASSAGES:
        report(
            f"not imported: {path} has more than {MOST_PASSAGES:,} passages. Build its index with `seedbench index"
            f" build {path}` and evaluate with `--engine bm25:DIR`."
        )
        return
    index, draft = folder / "index", folder / f"index.{uuid4().hex}.tmp"
    if (index / MANIFEST).is_file() and read_manifest(index).corpus == corpus_hash(read_corpus(path)):
        report(f"the corpus {path} is in the store")
        return
    try:
        build_index(path, STORED_ENGINE, draft, report=report)
        shutil.rmtree(index, ignore_errors=True)  # who has it open keeps it: what is mapped stays mapped
        draft.replace(index)
    except OSError as error:
        raise SeedBenchError(f"cannot write the corpus to '{index}': {error}. Free space and try again.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
