"""A small corpus in memory, and a real retrieval server over it in a process of its own.

`python -m tests.envs.search_server PORT [NAME=VALUE ...]` serves it; the words are fields of Serving and Limits.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from seedbench_envs.bm25 import Bm25Index
from seedbench_envs.searchqa.records import Hit, Passage, RetrieverFault
from seedbench_envs.searchqa.server import Serving, serve
from seedbench_envs.searchqa.server_limits import Limits

REPOSITORY = Path(__file__).resolve().parents[2]
PASSAGES = (
    Passage("7", "Ada Lovelace", "Ada Lovelace wrote the first published algorithm for a machine."),
    Passage("8", "Analytical Engine", "The Analytical Engine was designed by Charles Babbage."),
    Passage("9", "Charles Babbage", "Charles Babbage, a mathematician, designed two engines."),
    Passage("10", 'The "Größe"', "A name with an umlaut, a snowman \u2603 and a line\nbreak."),
)


class Memory:
    """BM25 over the passages above. A query `sleep S` takes S seconds, `break` and `fault` raise."""

    slow = False

    def __init__(self) -> None:
        self.index = Bm25Index.build((passage.id, passage.contents) for passage in PASSAGES)
        self.passages = {passage.id: passage for passage in PASSAGES}
        self.sizes: list[int] = []

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        self.sizes.append(len(queries))
        return [self.find(query, k) for query in queries]

    def find(self, query: str, k: int) -> list[Hit]:
        if query == "break":
            raise RuntimeError("the engine fell over")
        if query == "fault":
            raise RetrieverFault("no answer from the index")
        if found := re.fullmatch(r"sleep ([\d.]+)", query):
            time.sleep(float(found[1]))
        return [Hit(self.passages[name], score) for name, score in self.index.search(query, k)]

    def identity(self) -> dict[str, object]:
        return {"engine": "memory", "corpus": "c0ffee" * 10, "passages": len(PASSAGES)}

    def close(self) -> None:
        print("closed", flush=True)


class Server:
    """A server process: its address, and the means to stop it and to see what it said."""

    def __init__(self, words: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().rstrip("\n")
        assert self.line.startswith("http"), self.process.communicate(timeout=20)
        self.url = self.line.split(": ", maxsplit=1)[0]
        self.port = int(self.url.rpartition(":")[2])

    def stop(self, signal: int) -> tuple[int, str, str]:
        """Send a signal and wait: exit code and what was written since the first line."""
        self.process.send_signal(signal)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


def words(port: int = 0, **settings: object) -> list[str]:
    """The command of a server over the corpus above."""
    pairs = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    return [sys.executable, "-m", "tests.envs.search_server", str(port), *pairs]


@contextmanager
def running(command: Sequence[str]) -> Iterator[Server]:
    """A server process that is gone afterwards."""
    server = Server(command)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


def main() -> None:
    settings = {name: json.loads(value) for name, _, value in (word.partition("=") for word in sys.argv[2:])}
    limits = Limits(**{f.name: settings.pop(f.name) for f in fields(Limits) if f.name in settings})
    serve(Memory(), Serving(port=int(sys.argv[1]), limits=limits, **settings))


if __name__ == "__main__":
    main()
