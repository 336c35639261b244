"""Demonstrations: episodes to imitate, with the tokens that a model policy would have sampled.

They are played through the same roll-out as the policy's own episodes, so that prompts, tokens and allowed choices
are those of training roll-outs. Two sources: the suite's oracle mixed with random play, and recorded runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import ContextOverflow, Policy, PolicyFault, Request, Response, Sampled
from seedbench.policies.choices import ChoiceTree
from seedbench.policies.prompts import PromptTokens
from seedbench.policies.replay import ReplayPolicy
from seedbench.runs import read_episodes
from seedbench.types import Episode, Outcome, Task, Usage
from seedbench_trainers.collect import Attempt, Played, play
from seedbench_trainers.config import Reward
from seedbench_trainers.records import Batch
from seedbench_trainers.rollouts import to_batch
from seedbench_trainers.script import Script, attempts

if TYPE_CHECKING:
    from seedbench.panels import Panel
    from seedbench.policies.loading import Loaded
    from seedbench.protocol import Protocol

_AT_ONCE = 256
"""Episodes that are open at a time."""
PLANNED = "planned"
"""Signal of a demonstration's tokens: 1 in turns that follow the plan (or a recorded run), 0 in random ones."""


def demonstrate(
    panel: Panel,
    protocol: Protocol,
    loaded: Loaded,
    *,
    episodes: int,
    noise: float,
    seed: int,
    only_solved: bool = True,
) -> Batch:
    """Scripted episodes as samples: the oracle's plan, with a share `noise` of random actions (see `Script`).

    Args:
        panel: the tasks; every pass over it has its own order.
        protocol: how prompts and answers read.
        loaded: the tokenizer, its template, end tokens and context; the model is not used.
        episodes: how many are played.
        noise: probability of a random action in each turn, in [0, 1].
        seed: the same seed, the same samples.
        only_solved: leave out the episodes that random actions led astray until the step limit.

    Raises:
        SeedBenchError: as `collect.play`, and where no episode was solved.
    """
    script = Script(panel, protocol, noise)
    played = _play(attempts(panel, episodes, seed), panel, protocol, Demonstrator(script, loaded))
    kept = [one for one in played if one.episode.success or not only_solved]
    if not kept:
        if played and all(one.episode.outcome is Outcome.CONTEXT_OVERFLOW for one in played):
            raise SeedBenchError(
                f"no demonstration on {panel.name} could be played: {played[0].episode.error.rstrip('.')}; raise"
                " prompt_tokens (--set protocol.set.prompt_tokens=N), or take a model with a longer context."
            )
        raise SeedBenchError(
            f"none of {episodes} demonstrations on {panel.name} was solved within {protocol.settings.limits.steps}"
            " steps: lower the noise, or raise the protocol's steps."
        )
    batch = to_batch(kept, Reward())
    for sample in batch.samples:
        episode = batch.trajectories[sample.trajectory].episode
        planned = script.planned[(episode.task_sha256, episode.repeat)]
        sample.signals[PLANNED] = sample.spread([float(planned[turn]) for turn in sample.turns])
    return batch


def from_runs(
    folders: Sequence[Path], panel: Panel, protocol: Protocol, loaded: Loaded, *, only_solved: bool = True
) -> Batch:
    """Recorded episodes (folders of `seedbench eval`) as samples: replayed, so that their prompts are rendered anew.

    Only tasks of `panel` count, and of those not what ended in an infrastructure error. A recorded episode ends where
    its record does, or at the protocol's step limit.

    Raises:
        UsageError: a folder that is no run, a run that the protocol reads otherwise than it was recorded, or nothing
            to learn from.
    """
    tasks = {task.sha256: task for task in panel.tasks}
    kept: list[Played] = []
    for folder in folders:
        recorded = {episode.key: episode for episode in read_episodes(folder)}
        wanted = [
            Attempt(tasks[episode.task_sha256], episode.repeat, len(kept) + number, episode.seed)
            for number, episode in enumerate(recorded.values())
            if _is_wanted(episode, tasks, only_solved)
        ]
        played = _play(wanted, panel, protocol, Demonstrator(ReplayPolicy(folder), loaded))
        for one in played:
            _check_same(one.episode, recorded[one.episode.key], folder, protocol)
        kept += [one for one in played if one.episode.success or not only_solved]
    if not kept:
        which = "solved episodes" if only_solved else "episodes"
        raise UsageError(
            f"{', '.join(map(str, folders))}: no {which} of tasks of {panel.name} to learn from; record some with"
            f" `seedbench eval oracle --panel {panel.name.partition('[')[0]} --out FOLDER`."
        )
    batch = to_batch(kept, Reward())
    for sample in batch.samples:
        sample.signals[PLANNED] = sample.spread([1.0] * len(sample.turns))
    return batch


class Demonstrator(Policy):
    """Says what another policy says, and records the tokens with which a model would have said it.

    An empty answer ends the episode: there is nothing to imitate from there on.
    """

    def __init__(self, actor: Policy, loaded: Loaded) -> None:
        self.name = actor.name
        self._actor = actor
        self._loaded = loaded
        self._prompts = PromptTokens(loaded.tokenizer, loaded.template, name="the model", eos=loaded.eos)

    def identity(self) -> dict[str, Any]:
        """The other policy's."""
        return self._actor.identity()

    def forget(self, task: Task, repeat: int) -> None:
        """Drop the episode's tokens."""
        self._prompts.forget(task.sha256, repeat)

    async def act(self, request: Request) -> Response:
        """The other's text. Raises ContextOverflow as a model would, PolicyFault for an answer that is too long."""
        prompt = self._prompts.prompt(request)
        self._check_prompt(len(prompt), request)
        text = (await self._actor.act(request)).text
        if not text:
            raise ContextOverflow("the demonstration ends here")
        ids, allowed = self._said(text, request)
        self._prompts.said(request, ids, text)
        sampled = Sampled(tuple(prompt), ids, (0.0,) * len(ids), allowed)
        return Response(text=text, usage=Usage(len(prompt), len(ids)), finish_reason="stop", sampled=sampled)

    def _check_prompt(self, tokens: int, request: Request) -> None:
        sampling, context = request.sampling, self._loaded.context
        if 0 < sampling.max_prompt_tokens < tokens or (
            context is not None and tokens + sampling.max_new_tokens > context
        ):
            raise ContextOverflow(f"a prompt of {tokens} tokens exceeds the protocol's limit or the model's context.")

    def _said(self, text: str, request: Request) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Tokens of a response, end token included, and what was allowed at each."""
        tokenizer, allowed = self._loaded.tokenizer, tuple[tuple[int, ...], ...]()
        if request.choices:
            if text not in request.choices:
                raise UsageError(
                    f"{request.task.id}: the demonstration says {text[:80]!r}, which the protocol's restricted decoding"
                    " does not allow: record the run with this protocol, or train with one whose decode is 'free'."
                )
            tree = ChoiceTree(tokenizer, request.choices)
            ids = tree.path(text)
            allowed = tree.allowed_along(ids)
        else:
            ids = (*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)
        if len(ids) > request.sampling.max_new_tokens:
            raise PolicyFault(
                f"{request.task.id}: a demonstrated answer has {len(ids)} tokens, the protocol allows"
                f" {request.sampling.max_new_tokens}: raise it (--set protocol.set.response_tokens=N)"
            )
        return ids, allowed


def _play(wanted: Sequence[Attempt], panel: Panel, protocol: Protocol, policy: Policy) -> list[Played]:
    played: list[Played] = []
    for start in range(0, len(wanted), _AT_ONCE):
        played += play(wanted[start : start + _AT_ONCE], panel, protocol, policy)
    return played


def _is_wanted(episode: Episode, tasks: dict[str, Task], only_solved: bool) -> bool:
    if episode.task_sha256 not in tasks or episode.outcome is Outcome.INFRA_ERROR:
        return False
    return episode.success or not only_solved


def _check_same(replayed: Episode, recorded: Episode, folder: Path, protocol: Protocol) -> None:
    """Raise UsageError if the protocol finds other actions in the recorded answers than were played."""
    for ours, theirs in zip(replayed.turns, recorded.turns, strict=False):
        if ours.action != theirs.action:
            raise UsageError(
                f"{folder}: in {recorded.task} the protocol '{protocol.name}' reads {ours.action!r} where"
                f" {theirs.action!r} was played: record the run with this protocol."
            )
