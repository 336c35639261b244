"""Archives from anybody: their members as one likes, and what opening one may leave behind, which is nothing."""

import io
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError

Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, content: bytes = b"{}", kind: bytes = tarfile.REGTYPE, **about: Any) -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    for key, value in about.items():
        setattr(info, key, value)
    return info, content


def archive(path: Path, members: list[Member], format: int = tarfile.PAX_FORMAT) -> Path:
    """Compressed as the end of its name says."""
    with tarfile.open(path, "w:xz" if path.suffix == ".xz" else "w:gz", format=format) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return path


def refused(path: Path, opened: Callable[[Path], AbstractContextManager[Path]], monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said of an archive that must be refused in one line, with nothing written beside it or above."""
    (path.parent / "place").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path.parent / "place"))  # where it is unpacked
    before = sorted(path.parent.parent.rglob("*"))
    with pytest.raises(SeedBenchError) as error, opened(path):
        pass
    assert "\n" not in str(error.value)
    assert sorted(path.parent.parent.rglob("*")) == before
    return str(error.value)
