"""Where the store is, and downloads that continue."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from seedbench.errors import SeedBenchError
from seedbench.store import download, file_sha256, store_root

CONTENT = hashlib.sha256(b"seed").digest() * 100_000  # 3.2 MB


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT; `cut` ends an answer after so many bytes, `ranges` says whether parts may be asked for."""

    cut: ClassVar[int | None] = None
    ranges: ClassVar[bool] = True
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Range", ""))
        if self.path != "/file":
            self.send_error(404)
            return
        start = 0
        if self.ranges and (asked := self.headers.get("Range")):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(CONTENT):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start:] if self.cut is None else CONTENT[start : start + self.cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Handler, "cut", None)
    monkeypatch.setattr(Handler, "ranges", True)
    monkeypatch.setattr(Handler, "asked", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}/file"
        served.shutdown()
        thread.join()


def silent(_: str) -> None:
    pass


def test_store_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("SEEDBENCH_DATA", "~/data")
    assert store_root() == Path("/home/someone/data")
    monkeypatch.setenv("SEEDBENCH_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/x")
    assert store_root() == Path("/var/cache/x/seedbench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store_root() == Path("/home/someone/.cache/seedbench")


def test_file_sha256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert file_sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_download(server: str, tmp_path: Path) -> None:
    lines: list[str] = []
    target = download(server, tmp_path / "new" / "file.zip", lines.append)
    assert target.read_bytes() == CONTENT
    assert lines == [f"downloading {server} (3.2 MB)"]
    assert [path.name for path in target.parent.iterdir()] == ["file.zip"]
    assert download(server, target, lines.append) == target
    assert Handler.asked == [""]


@pytest.mark.parametrize("ranges", [True, False])
def test_download_continues(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: bool) -> None:
    monkeypatch.setattr(Handler, "ranges", ranges)
    monkeypatch.setattr(Handler, "cut", 1_500_000)
    target = tmp_path / "file.zip"
    with pytest.raises(SeedBenchError, match=r"cannot download http.*Run the command again to continue"):
        download(server, target, silent)
    have = (tmp_path / "file.zip.part").stat().st_size
    assert 0 < have <= 1_500_000
    assert not target.exists()
    monkeypatch.setattr(Handler, "cut", None)
    assert download(server, target, silent).read_bytes() == CONTENT
    assert Handler.asked == ["", f"bytes={have}-"]
    assert not (tmp_path / "file.zip.part").exists()


def test_part_that_is_the_whole_file(server: str, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(CONTENT)
    assert download(server, tmp_path / "file.zip", silent).read_bytes() == CONTENT


def test_part_of_another_file_is_dropped(server: str, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(CONTENT + b"more")
    with pytest.raises(SeedBenchError, match="does not belong to the file"):
        download(server, tmp_path / "file.zip", silent)
    assert not (tmp_path / "file.zip").exists()
    assert download(server, tmp_path / "file.zip", silent).read_bytes() == CONTENT


def test_missing_file_on_the_server(server: str, tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match="404"):
        download(server.replace("/file", "/none"), tmp_path / "file.zip", silent)
    assert list(tmp_path.iterdir()) == []


def test_unreachable_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SeedBenchError, match=r"cannot download http://127.0.0.1:9/file: .+\. Run the command again"):
        download("http://127.0.0.1:9/file", tmp_path / "file.zip", silent)


def test_folder_that_cannot_be_made(server: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    with pytest.raises(SeedBenchError, match="cannot download"):
        download(server, tmp_path / "plain" / "file.zip", silent)
