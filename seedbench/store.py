"""The store of data and models on this machine, and downloads into it.

`SEEDBENCH_DATA` names the folder; the default is `seedbench` in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from seedbench.errors import SeedBenchError

Report = Callable[[str], None]
"""Receives one line of progress."""


def store_root() -> Path:
    """The store's folder; it may not exist yet."""
    if chosen := os.environ.get("SEEDBENCH_DATA"):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "seedbench"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(url: str, target: Path, report: Report) -> Path:
    """Download `url` to `target`, continuing an earlier attempt (`target` + `.part`) where the server allows it.

    Raises:
        SeedBenchError: the server cannot be reached, refuses, or ends early; what came stays for the next try.
    """
    import httpx

    if target.is_file():
        return target
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.is_file() else 0
    # Parts are counted in the bytes of the file, so it must come as it is.
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=30) as reply:
            if reply.status_code == 416 and reply.headers.get("content-range") == f"bytes */{have}":
                part.replace(target)  # it held everything already
                return target
            if reply.status_code == 416:
                part.unlink()
                raise OSError("the part that was stored does not belong to the file and was deleted")
            reply.raise_for_status()
            if reply.status_code != 206:
                have = 0
            total = have + int(reply.headers.get("content-length", 0))
            report(f"downloading {url} ({total / 1e6:.1f} MB)")
            with part.open("ab" if have else "wb") as file:
                for chunk in reply.iter_bytes(1 << 20):
                    file.write(chunk)
    except (httpx.HTTPError, OSError) as error:
        raise SeedBenchError(
            f"cannot download {url}: {str(error) or type(error).__name__}. Run the command again to continue, or fetch"
            " the file by other means and import it with `--from FILE`."
        ) from error
    part.replace(target)
    return target
