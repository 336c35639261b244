"""The official shop of 1,000 products, built from the files beside the repository, and the original's recordings."""

from __future__ import annotations

import gzip
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from seedbench_envs.webshop.library import import_shop, open_folder
from seedbench_envs.webshop.loading import find_sources
from seedbench_envs.webshop.session import Shop

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "webshop"


def need_files() -> None:
    """Skip the test where the files are not at hand."""
    if not (FOLDER / "golden" / "traces.jsonl.gz").is_file():
        pytest.skip("the official products and the original's recordings (../shared/data/webshop) are not here")


@cache
def recorded(name: str) -> list[dict[str, Any]]:
    """The lines of a golden file."""
    need_files()
    with gzip.open(FOLDER / "golden" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def official_shop() -> Shop:
    """The shop, with the real catalogue, search and goals."""
    need_files()
    with tempfile.TemporaryDirectory() as folder:
        import_shop(find_sources(FOLDER), Path(folder), lambda line: None)
        return open_folder(Path(folder))  # mapped files stay readable when their names are gone
