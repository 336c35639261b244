"""Who analyses a finished episode: the rules, or a model behind the harness's own policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from seedbench.errors import SeedBenchError, UsageError
from seedbench.panels import Panel, load_panel
from seedbench.policies.base import ContextOverflow, Policy, Request, Sampling
from seedbench.registry import get_suite
from seedbench.rollout import derive_seed
from seedbench.runs import read_manifest
from seedbench.types import Episode, Task
from seedbench_trainers.skills.analysis import PROMPT_CHARS, Style, analysis_prompt, format_analysis
from seedbench_trainers.skills.rules import VERSION, analyse

if TYPE_CHECKING:
    from seedbench.policies import ModelOptions

RULES = "rules"
PROMPT_TOKENS, NEW_TOKENS = 16_384, 4_096
"""The paper's limits."""
CHARS_PER_TOKEN = PROMPT_CHARS / PROMPT_TOKENS
"""How many characters of the analysis prompt are taken for a token when it is shortened."""
Plan = Callable[[Episode], Sequence[str] | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """An analyzer's answer, to be read by `analysis.review`, or why there can be none."""

    text: str = ""
    refused: str = ""
    cut: bool = False
    """Whether the limit of tokens ended it."""


class Analyzer(Protocol):
    """Answers about one finished episode at a time; `answer` is called concurrently, between `open` and `close`."""

    async def open(self) -> None:
        """Raises SeedBenchError where it cannot serve."""
        ...

    async def close(self) -> None:
        """Free what it holds."""
        ...

    def identity(self) -> dict[str, Any]:
        """What its answers depend on beside the episode, as plain JSON values."""
        ...

    async def answer(self, episode: Episode) -> Answer:
        """Raises PolicyFault where this one answer cannot be had now, SeedBenchError where none can."""
        ...


class RulesAnalyzer:
    """`rules.analyse`. `plan`: the actions that would have solved an episode's task, or None."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.unplanned = 0
        """Failed episodes that no plan was known for."""

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    def identity(self) -> dict[str, Any]:
        """The rules' version."""
        return {"kind": RULES, "version": VERSION}

    async def answer(self, episode: Episode) -> Answer:
        """Never fails."""
        plan = None if episode.success else self._plan(episode)
        self.unplanned += plan is None and not episode.success
        return Answer(format_analysis(analyse(episode, plan)))


class ModelAnalyzer:
    """A policy that is asked with `analysis_prompt`, greedily and once."""

    def __init__(self, policy: Policy, *, style: Style, prompt_tokens: int, new_tokens: int) -> None:
        self._policy = policy
        self._style: Style = style
        self._sampling = Sampling(0.0, new_tokens, prompt_tokens)

    async def open(self) -> None:
        """Open the policy."""
        await self._policy.open()

    async def close(self) -> None:
        """Close the policy."""
        await self._policy.close()

    def identity(self) -> dict[str, Any]:
        """The policy's, and how it is asked."""
        limits = self._sampling
        return {
            **self._policy.identity(),
            "style": self._style,
            "prompt_tokens": limits.max_prompt_tokens,
            "new_tokens": limits.max_new_tokens,
        }

    async def answer(self, episode: Episode) -> Answer:
        """The policy's text as it is."""
        task = Task(episode.task, episode.family, "", episode.task_sha256)
        chars = int(self._sampling.max_prompt_tokens * CHARS_PER_TOKEN)
        request = Request(
            task=task,
            repeat=episode.repeat,
            turn=0,
            seed=derive_seed("analysis", episode.task_sha256, episode.repeat),
            messages=analysis_prompt(episode, style=self._style, limit=chars),
            sampling=self._sampling,
            observation="",
            admissible_actions=None,
        )
        try:
            response = await self._policy.act(request)
        except ContextOverflow:
            return Answer(refused="prompt too long for the model")
        finally:
            self._policy.forget(task, episode.repeat)
        return Answer(response.text, cut=response.finish_reason == "length")


def make_analyzer(
    spec: str,
    panel: Panel,
    options: ModelOptions | None = None,
    *,
    style: Style = "full",
    prompt_tokens: int = PROMPT_TOKENS,
    new_tokens: int = NEW_TOKENS,
) -> Analyzer:
    """The analyzer that `spec` names: `rules`, `openai:URL[#MODEL]`, a stored model, a model folder or a hub name.

    Raises UsageError for a policy that does not read prompts or a name that does not exist, SeedBenchError as
    `make_policy`.
    """
    if spec == RULES:
        return RulesAnalyzer(oracle_plan(panel))
    from seedbench.policies import ModelOptions, make_policy

    try:
        policy = make_policy(spec, panel, options or ModelOptions())
    except UsageError as error:
        raise UsageError(f"{error} The analyzer that needs no model is called '{RULES}'.") from error
    if not policy.needs_prompt:
        raise UsageError(
            f"'{spec}' plays and does not write: an analyzer is {RULES}, openai:URL[#MODEL], a stored model or a model"
            " folder."
        )
    return ModelAnalyzer(policy, style=style, prompt_tokens=prompt_tokens, new_tokens=new_tokens)


def oracle_plan(panel: Panel) -> Plan:
    """Looks up the actions that solve an episode's task; None where the suite or the store knows none."""
    suite, tasks = get_suite(panel.suite), {task.sha256: task for task in panel.tasks}

    def plan(episode: Episode) -> Sequence[str] | None:
        try:
            return suite.oracle(panel, tasks[episode.task_sha256])
        except (SeedBenchError, KeyError):
            return None

    return plan


def panel_of(folder: Path, spec: str = "") -> Panel:
    """The whole panel that a run was played on; `spec` names it where it is not a shipped one. Raises UsageError."""
    name = str(read_manifest(folder)["settings"]["panel"]["name"]).partition("[")[0]
    try:
        return load_panel(spec or name)
    except UsageError as error:
        if spec:
            raise
        raise UsageError(
            f"'{folder}' was played on the panel '{name}', which is not shipped: name its file with --panel."
        ) from error
