"""The reference engine: upstream alfworld and textworld behind the same four attributes as the native one.

Each engine is one worker process (upstream is not safe in threads and keeps about a megabyte for every game it
loads), restarted after a number of games. `SEEDBENCH_REFERENCE_PYTHON` names another interpreter that has the
packages, since their pins may not fit an existing environment.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError

_WORKER = Path(__file__).with_name("reference_worker.py")
_GAMES_PER_WORKER = 200
"""About 1 MB stays behind for each game loaded; a fresh process gives it back."""

INSTALL_HINT = "install it with `make reference` (docs/alfworld.md explains what that does)"


def reference_python() -> str | None:
    """The interpreter that has the upstream packages, or None."""
    if chosen := os.environ.get("SEEDBENCH_REFERENCE_PYTHON"):
        return chosen
    if importlib.util.find_spec("textworld") and importlib.util.find_spec("alfworld"):
        return sys.executable
    return None


class ReferenceEngine:
    """One episode of one game on the upstream engine. The game is the parsed JSON of its file."""

    def __init__(self, game: dict[str, Any]) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._loaded = 0
        self.admissible: list[str] = []
        self.won = False
        self.game = game

    def reset(self) -> str:
        """Load the game and start over (about 4 s); returns the first observation."""
        if self._loaded >= _GAMES_PER_WORKER:
            self.close()
        self._loaded += 1
        return self._ask({"game": self.game})

    def step(self, command: str) -> str:
        """Do one command (about 0.15 s) and return the observation."""
        return self._ask({"command": command})

    def is_admissible(self, command: str) -> bool:
        """Whether the stripped command is one of `admissible`."""
        return command.strip() in self.admissible

    def close(self) -> None:
        """End the worker process."""
        if self._process is not None:
            self._process.stdin.close()  # type: ignore[union-attr]
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()  # type: ignore[union-attr]
            self._errors.close()
            self._process, self._loaded = None, 0

    def _start(self) -> subprocess.Popen[str]:
        python = reference_python()
        if python is None:
            raise SeedBenchError(f"the reference engine needs the packages alfworld and textworld: {INSTALL_HINT}.")
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the worker)
        try:
            process = subprocess.Popen(
                [python, str(_WORKER)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8",
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise SeedBenchError(
                f"cannot start '{python}' ({error}): SEEDBENCH_REFERENCE_PYTHON must name a Python interpreter."
            ) from error
        self._process = process
        self._answer(process)
        return process

    def _ask(self, request: dict[str, Any]) -> str:
        process = self._process or self._start()
        try:
            process.stdin.write(json.dumps(request) + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            pass  # the answer below says how the worker ended
        answer = self._answer(process)
        if "error" in answer:
            raise SeedBenchError(f"the reference engine failed: {answer['error']}")
        self.admissible, self.won = answer["admissible"], answer["won"]
        return str(answer["observation"])

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        line = process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
            self._process = None
            raise SeedBenchError(f"the reference engine ended ({last}): {INSTALL_HINT}.")
        answer: dict[str, Any] = json.loads(line)
        return answer
