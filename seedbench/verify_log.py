"""The log of a run played again: what `verify` does with each episode."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from seedbench.errors import SeedBenchError
from seedbench.logs import held, lines
from seedbench.panels import Panel
from seedbench.protocol import Past, Protocol
from seedbench.rollout import EnvironmentFault, derive_seed, prompt_hash
from seedbench.runs import LOG, MANIFEST
from seedbench.suite import Environment
from seedbench.types import Episode, Outcome, Task, Turn, Usage, checked_metrics

T = TypeVar("T")
SHOWN = 10
"""So many findings are kept in words; all are counted."""
_EVERY = 1000
_ENOUGH = 10_000
"""Findings after which the rest of a log is left unread: whoever made it may have made it endless."""
_BROKEN_OFF = (Outcome.INFRA_ERROR, Outcome.CONTEXT_OVERFLOW)


@dataclass(slots=True)
class Findings:
    """What was found: sentences about differences, the first `SHOWN` of them, and notes on what was not checked."""

    count: int = 0
    first: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Count a finding."""
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(text)


@dataclass(slots=True)
class Stage:
    """The environment to replay in, and how far its word goes."""

    make: Callable[[], Environment]
    env: Environment | None = None
    observed: bool = True
    """Whether its observations must be the stored ones."""

    def renew(self) -> None:
        """Take a fresh environment, the first or in place of one that broke."""
        fresh = self.make()
        with suppress(Exception):  # what broke in an episode may break here too
            self.close()
        self.env = fresh

    def close(self) -> None:
        """Free the environment."""
        if self.env is not None:
            self.env.close()


class Replay:
    """Plays the log again; what it has gathered is for the report: episodes, turns, turns with a prompt's hash."""

    def __init__(
        self,
        log: Path,
        panel: Panel,
        protocol: Protocol,
        repeats: int,
        seed: int,
        stage: Stage,
        findings: Findings,
        told: Callable[[str], None],
        seals: Mapping[int, str],
    ) -> None:
        self.episodes = self.turns = self.asked = 0
        self._seals = seals
        self._log, self._protocol, self._repeats, self._seed = log, protocol, repeats, seed
        self._panel, self._stage, self._findings, self._told = panel, stage, findings, told
        self._tasks = {task.sha256: task for task in panel.tasks}
        self._seen: dict[tuple[str, int], Outcome] = {}
        self._unasked: list[str] = []
        self._decided: set[str] = set()
        self._unsure: dict[str, list[str]] = {}

    def checked(self) -> Iterator[Episode]:
        """The episodes of the log that a summary can hold, each checked as it passes."""
        families = self._panel.families()
        for episode in self._records():
            self.episodes += 1
            self.turns += len(episode.turns)
            self._check(episode)
            if self.episodes % _EVERY == 0:
                self._told(f"{self.episodes:,} episodes replayed")
            if episode.family in families:
                yield episode
        for text in self._unasked if self.asked else ():
            self._findings.add(text)
        for task in self._panel.tasks:
            for repeat in range(self._repeats):
                if (task.sha256, repeat) not in self._seen:
                    self._findings.add(f"{task.id}, repeat {repeat}: the log has no episode of it.")
        for name, texts in self._unsure.items():
            for text in texts if name in self._decided else ():
                self._findings.add(text)
            if name not in self._decided:
                self._findings.notes.append(f"the metric '{name}' was not checked: it may follow from the passages.")

    def _records(self) -> Iterator[Episode]:
        if held(self._log) is None:
            self._findings.add(f"{LOG} is missing.")
            return
        try:
            for number, line in enumerate(self._sealed(lines(self._log)), start=1):
                if self._findings.count > _ENOUGH:
                    self._findings.add(f"{LOG} was read up to line {number} only: nearly nothing of it is right.")
                    return
                try:
                    if not line.endswith(b"\n"):
                        self._findings.add(f"{LOG} line {number} is cut off.")
                        continue
                    episode = Episode.from_json(json.loads(line))
                    _check_types(episode)
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                    self._findings.add(f"{LOG} line {number} is damaged ({type(error).__name__}: {error}).")
                else:
                    yield episode
        except SeedBenchError as error:
            self._findings.add(str(error))

    def _sealed(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Pass the lines on, and find out whether they are those that the run's sessions left."""
        digest, length, wrong = hashlib.sha256(), 0, False
        due = {length: sha256 for length, sha256 in self._seals.items() if length}
        for line in lines:
            digest.update(line)
            length += len(line)
            wrong |= due.pop(length, None) not in (None, digest.hexdigest())
            yield line
        if not self._seals:
            self._findings.notes.append(f"{MANIFEST} does not record the log's hash: an earlier version made the run.")
        elif wrong or due or length > max(self._seals):
            self._findings.add(f"{LOG} is not the log whose lengths and hashes {MANIFEST} records.")

    def _check(self, episode: Episode) -> None:
        task, where = self._tasks.get(episode.task_sha256), f"{episode.task}, repeat {episode.repeat}"
        self._note_prompts(episode, where)
        earlier = self._seen.get(episode.key)
        self._seen[episode.key] = episode.outcome
        if task is None or not 0 <= episode.repeat < self._repeats:
            reason = "its content is not in the panel" if task is None else f"repeats are {self._repeats}"
            self._findings.add(f"{where}: an episode that the run cannot have: {reason}.")
            return
        if earlier not in (None, Outcome.INFRA_ERROR):
            self._findings.add(f"{where}: the log has a second episode of it, though the first had ended ({earlier}).")
        try:
            difference = next(self._differences(episode, task), None)
        except EnvironmentFault as fault:
            difference = f": it cannot be replayed: {fault}"
            with suppress(SeedBenchError):  # the old one then has to do
                self._stage.renew()
        except SeedBenchError as error:
            difference = f": it cannot be replayed: {str(error).rstrip('.')}"
        if difference:
            self._findings.add(f"{where}{difference}.")

    def _note_prompts(self, episode: Episode, where: str) -> None:
        """A policy is prompted at every turn or at none."""
        for number, turn in enumerate(episode.turns, start=1):
            self.asked += bool(turn.prompt_sha256)
            if not turn.prompt_sha256 and len(self._unasked) < SHOWN:
                self._unasked.append(f"{where}, turn {number}: prompt hash: none is stored, though others are.")

    def _differences(self, episode: Episode, task: Task) -> Iterator[str]:
        seed = derive_seed(self._seed, self._panel.name.partition("[")[0], task.sha256, episode.repeat)
        usage = sum((turn.usage for turn in episode.turns), Usage())
        yield from unequal(": task", episode.task, task.id)
        yield from unequal(": family", episode.family, task.family)
        yield from unequal(": seed", episode.seed, seed)
        if episode.error and episode.outcome not in _BROKEN_OFF:
            yield f": an error is stored ({episode.error[:60]!r}), but the outcome is {episode.outcome}"
        if (env := self._stage.env) is None:
            for number, turn in enumerate(episode.turns, start=1):
                yield from self._misread(f", turn {number}", turn)
        elif episode.outcome is Outcome.INFRA_ERROR and not (episode.turns or episode.instruction):
            yield from self._misjudged(episode, False, 0.0, {}, {})  # it broke at the reset
        else:
            yield from self._replayed(episode, env)
        yield from unequal(": prompt tokens", episode.usage.prompt_tokens, usage.prompt_tokens)
        yield from unequal(": generated tokens", episode.usage.generated_tokens, usage.generated_tokens)

    def _replayed(self, episode: Episode, env: Environment) -> Iterator[str]:
        observation, info = _call(lambda: env.reset(seed=episode.seed % 2**31, options={"task": episode.task}))
        yield from unequal(": instruction", episode.instruction, info["instruction"])
        yield from unequal(": first observation", episode.first_observation, observation)
        success, score, metrics = False, 0.0, _metrics(info)
        before, ended, past, steps = metrics, False, list[Past](), self._protocol.settings.limits.steps
        shown = episode.first_observation
        for number, turn in enumerate(episode.turns, start=1):
            where = f", turn {number}"
            if ended or number > steps:
                reason = "the episode was decided" if ended else f"the step limit of {steps} was reached"
                yield f"{where}: {reason} before this turn"
            admissible = info["admissible_actions"]
            now = Past(shown, None if admissible is None else tuple(admissible))
            yield from self._misasked(where, turn, episode.instruction, past, now)
            yield from self._misread(where, turn)
            action = turn.action
            observation, _, terminated, truncated, info = _call(lambda: env.step(action))  # noqa: B023
            yield from unequal(f"{where}: admissible", turn.admissible, info.get("action_valid"))
            if self._stage.observed:
                yield from unequal(f"{where}: observation", turn.observation, observation)
            try:
                before, metrics, score = metrics, _metrics(info), _finite(info["score"])
            except EnvironmentFault:
                if episode.outcome is Outcome.INFRA_ERROR:
                    return  # so it broke off in the run
                raise
            success, ended, shown = bool(info["success"]), terminated or truncated, turn.observation
            past.append(Past(now.observation, now.admissible, turn.response, turn.action))
        yield from _misended(episode, ended, success, steps)
        yield from self._misjudged(episode, success, score, metrics, before if ended else metrics)

    def _misasked(self, where: str, turn: Turn, instruction: str, past: list[Past], now: Past) -> Iterator[str]:
        """What is wrong with a turn's prompt, as far as the record goes: its hash, its text where that was kept."""
        if not turn.prompt_sha256 or not (self._stage.observed or now.admissible is None):
            return
        messages = self._protocol.messages(instruction, past, now)
        yield from unequal(f"{where}: prompt hash", turn.prompt_sha256, prompt_hash(messages))
        if turn.prompt and turn.prompt != messages:
            yield f"{where}: prompt: the stored text is not that of the stored hash"
        choices = self._protocol.choices(now.admissible)
        if choices and turn.response not in choices:
            yield f"{where}: response: {turn.response[:60]!r} is none of the {len(choices)} that the protocol allows"

    def _misread(self, where: str, turn: Turn) -> Iterator[str]:
        parsed = self._protocol.parse(turn.response)
        yield from unequal(f"{where}: action", turn.action, parsed.action)
        yield from unequal(f"{where}: valid", turn.valid, parsed.valid)

    def _misjudged(
        self, episode: Episode, success: bool, score: float, metrics: Mapping[str, float], before: Mapping[str, float]
    ) -> Iterator[str]:
        """What is wrong with the judgement; `before` holds the metrics as they were before the deciding action."""
        yield from unequal(": success", episode.success, success)
        yield from unequal(": score", episode.score, score)
        # With other passages, a metric that no deciding action ever changes may differ (a share of cut observations).
        self._decided |= {name for name, value in metrics.items() if before.get(name) != value}
        for name in sorted({*episode.metrics, *metrics}):
            for text in unequal(f": metric {name}", episode.metrics.get(name), metrics.get(name)):
                if self._stage.observed:
                    yield text
                elif len(texts := self._unsure.setdefault(name, [])) < SHOWN:
                    texts.append(f"{episode.task}, repeat {episode.repeat}{text}.")


def _misended(episode: Episode, ended: bool, success: bool, steps: int) -> Iterator[str]:
    if ended:
        yield from unequal(": outcome", episode.outcome.value, (Outcome.SOLVED if success else Outcome.FAILED).value)
    elif len(episode.turns) == steps:
        yield from unequal(": outcome", episode.outcome.value, Outcome.STEP_LIMIT.value)
    elif episode.outcome not in _BROKEN_OFF:
        taken = f"{len(episode.turns)} of {steps} steps"
        yield f": outcome: {episode.outcome} is stored after {taken}, and nothing is decided"


def _call(function: Callable[[], T]) -> T:
    """Call the environment; what it raises, for whatever reason, is a finding about this episode alone."""
    try:
        return function()
    except Exception as error:
        raise EnvironmentFault(f"{type(error).__name__}: {error}".rstrip(".")) from error


def _metrics(info: Mapping[str, Any]) -> dict[str, float]:
    return _call(lambda: checked_metrics(info.get("metrics", {})))


def _finite(score: Any) -> float:
    if not math.isfinite(score):
        raise EnvironmentFault(f"the score must be a finite number, not {score}")
    return float(score)


_TEXT, _WHOLE, _NUMBER, _TRUTH = (str,), (int,), (int, float), (bool,)
_EPISODE: dict[str, tuple[type, ...]] = {
    "task": _TEXT, "task_sha256": _TEXT, "family": _TEXT, "instruction": _TEXT, "first_observation": _TEXT,
    "error": _TEXT, "repeat": _WHOLE, "seed": _WHOLE, "success": _TRUTH, "score": _NUMBER, "seconds": _NUMBER,
}  # fmt: skip
_TURN: dict[str, tuple[type, ...]] = {
    "response": _TEXT, "action": _TEXT, "observation": _TEXT, "prompt_sha256": _TEXT, "finish_reason": _TEXT,
    "valid": _TRUTH, "admissible": (bool, type(None)),
}  # fmt: skip
_USAGE: dict[str, tuple[type, ...]] = {"prompt_tokens": _WHOLE, "generated_tokens": _WHOLE}


def _check_types(episode: Episode) -> None:
    """Raise ValueError for a value of another type than the record's, or a number out of range."""
    parts: list[tuple[object, dict[str, tuple[type, ...]]]] = [(episode, _EPISODE), (episode.usage, _USAGE)]
    parts += [pair for turn in episode.turns for pair in ((turn, _TURN), (turn.usage, _USAGE))]
    for part, kinds in parts:
        for name, allowed in kinds.items():
            value = getattr(part, name)
            if type(value) not in allowed or (type(value) in _NUMBER and not abs(value) < 2**64):  # NaN is not
                raise ValueError(f"{name} cannot be {repr(value)[:60]}")
    usages = [episode.usage, *(turn.usage for turn in episode.turns)]
    if episode.seconds < 0 or any(min(usage.prompt_tokens, usage.generated_tokens) < 0 for usage in usages):
        raise ValueError("times and token counts cannot be negative")


def unequal(what: str, stored: Any, found: Any) -> Iterator[str]:
    """A phrase where the two differ. Other machines may round the last digits of a float in another way."""
    numbers = type(stored) in _NUMBER and type(found) in _NUMBER and float in (type(stored), type(found))
    same = math.isclose(stored, found, rel_tol=1e-9, abs_tol=1e-12) if numbers else stored == found
    if not same or (type(stored) is bool) != (type(found) is bool):
        start = 0
        if isinstance(stored, str) and isinstance(found, str):
            shared = (n for n, (left, right) in enumerate(zip(stored, found, strict=False)) if left != right)
            start = max(0, next(shared, min(len(stored), len(found))) - 20)
        yield f"{what}: stored {_short(stored, start)}, found {_short(found, start)}"


def _short(value: Any, start: int) -> str:
    """A value in at most some 60 characters; a text from `start` on, just before it differs."""
    text = repr(value[start : start + 61]) if isinstance(value, str) else repr(value)
    return f"{'…' if start else ''}{text if len(text) <= 64 else text[:60] + '…'}"
