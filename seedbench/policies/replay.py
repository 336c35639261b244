"""Replay: answers with the stored responses of an earlier run, e.g. to score them under another protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seedbench.logs import seal
from seedbench.policies.base import ContextOverflow, Policy, PolicyFault, Request, Response
from seedbench.runs import LOG, read_episodes, read_manifest
from seedbench.types import Outcome, Task


class ReplayPolicy(Policy):
    """Gives turn t of the same task and repeat in the stored run; after the last stored turn, an empty response.

    An episode that broke off (infra_error, context_overflow) breaks off in the same way, so that it does not turn
    into a failure of the agent's.

    Raises:
        UsageError: the folder holds no run.
        SeedBenchError: its log is damaged.
    """

    needs_prompt = False
    gpus = 0

    def __init__(self, run: Path) -> None:
        manifest = read_manifest(run)
        self.name = f"replay of {manifest['policy']['name']}"
        self._episodes = {
            episode.key: ([turn.response for turn in episode.turns], episode.outcome, episode.error)
            for episode in read_episodes(run)
        }
        self._log_sha256 = seal(run / LOG)["sha256"]
        self._policy = manifest["settings"]["policy"]
        self.panel: str = manifest["settings"]["panel"]["name"]
        self._tasks = {sha256 for sha256, _ in self._episodes}

    def holds(self, task: Task) -> bool:
        """Whether the stored run has an episode of this task (of the same content)."""
        return task.sha256 in self._tasks

    def identity(self) -> dict[str, Any]:
        """The stored policy's identity and the hash of the log."""
        return {"kind": "replay", "log_sha256": self._log_sha256, "of": self._policy}

    async def act(self, request: Request) -> Response:
        """The stored response. Raises PolicyFault for an attempt that the run does not hold, or not to its end."""
        stored = self._episodes.get((request.task.sha256, request.repeat))
        if stored is None:
            raise PolicyFault(f"the stored run has no episode of {request.task.id}, repeat {request.repeat}")
        responses, outcome, error = stored
        if request.turn < len(responses):
            return Response(text=responses[request.turn])
        if outcome is Outcome.INFRA_ERROR:
            raise PolicyFault(f"the stored episode ended here in an infrastructure error ({error})")
        if outcome is Outcome.CONTEXT_OVERFLOW:
            raise ContextOverflow(error)
        return Response()
