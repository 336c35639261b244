"""Build step: finds the nouns of the titles of official product files, for `seedbench data fetch` to take up.

    python -m seedbench_envs.webshop.find_nouns FOLDER

writes `FOLDER/title_spans.npz`. It needs the extra `webshop-build`, and is for the larger shops: the nouns of the
official 1,000 products ship with the package.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from seedbench.errors import SeedBenchError
from seedbench_envs.webshop.jsonstream import json_items
from seedbench_envs.webshop.loading import EDITIONS, PRODUCT_FILE, find_sources
from seedbench_envs.webshop.nouns import BUILT, Spans, build_nouns, read_spans, shipped_spans


def find_nouns(folder: Path, report: Callable[[str], None]) -> Path | None:
    """Write the spans of all titles in `folder` that are not shipped; None where none is left.

    Spans that are there already are built again.

    Raises:
        SeedBenchError: no product file, a damaged one, spaCy or its model missing, or the folder cannot be written.
    """
    files = dict[Path, None]()
    for size in EDITIONS:
        with suppress(SeedBenchError):
            files[find_sources(folder, size).products] = None
    if not files:
        find_sources(folder)  # raises, naming the file that is missing
    spans = build_nouns(_titles(files), report)
    if not len(spans.keys):
        return None
    path = folder / BUILT
    spans.write(path)
    report(f"nouns of {len(spans.keys):,} titles are in {path} ({spans.made_with})")
    return path


def folder_spans(folder: Path) -> Spans | None:
    """The spans that `find_nouns` left in `folder`; None without any. Raises SeedBenchError for a damaged file."""
    path = folder / BUILT
    return read_spans(path) if path.is_file() else None


def _titles(files: Iterable[Path]) -> Iterator[str]:
    known = shipped_spans()
    for path in files:
        for entry in json_items(path, PRODUCT_FILE):
            title = entry.get("name") if isinstance(entry, dict) else None
            if isinstance(title, str) and known.nouns(title) is None:
                yield title


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m seedbench_envs.webshop.find_nouns",
        description="Find the nouns of the titles of official WebShop product files, once, with spaCy.",
    )
    parser.add_argument("folder", type=Path, help="the folder of the official files; gets title_spans.npz")
    folder = parser.parse_args(arguments).folder
    try:
        if find_nouns(folder, print) is None:
            print("the nouns of all these titles ship with SeedBench: there is nothing to do")
    except SeedBenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
