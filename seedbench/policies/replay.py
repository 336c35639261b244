"""Replay: answers with the stored responses of an earlier run, e.g. to score them under another protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seedbench.policies.base import Policy, PolicyFault, Request, Response
from seedbench.runs import LOG, read_episodes, read_manifest
from seedbench.store import file_sha256


class ReplayPolicy(Policy):
    """Gives turn t of the same task and repeat in the stored run; after the last stored turn, an empty response.

    Raises:
        UsageError: the folder holds no run.
        SeedBenchError: its log is damaged.
    """

    needs_prompt = False

    def __init__(self, run: Path) -> None:
        manifest = read_manifest(run)
        self.name = f"replay of {manifest['policy']['name']}"
        self._log_sha256 = file_sha256(run / LOG)
        self._responses = {episode.key: [turn.response for turn in episode.turns] for episode in read_episodes(run)}
        self._policy = manifest["settings"]["policy"]

    def identity(self) -> dict[str, Any]:
        """The stored policy's identity and the hash of the log."""
        return {"kind": "replay", "log_sha256": self._log_sha256, "of": self._policy}

    async def act(self, request: Request) -> Response:
        """The stored response. Raises PolicyFault for a task or repeat that the run does not hold."""
        responses = self._responses.get((request.task.sha256, request.repeat))
        if responses is None:
            raise PolicyFault(f"the stored run has no episode of {request.task.id}, repeat {request.repeat}")
        return Response(text=responses[request.turn] if request.turn < len(responses) else "")
