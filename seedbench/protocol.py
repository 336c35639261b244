"""Protocols: everything that decides how an agent is asked, in one versioned file with one hash.

A protocol is a TOML file with the Jinja templates it names beside it. The same object drives roll-outs in
training, validation and evaluation. Its hash covers every setting and the text of every template, so two runs
with one hash asked their agents in exactly the same way.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import jinja2
import jinja2.sandbox
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.parsing import ActionParser, ParsedAction, ParserSettings
from seedbench.policies.base import Sampling
from seedbench.registry import get_suite, suite_names
from seedbench.types import Message

_CHANGEABLE = ("limits", "sampling", "context")
"""Sections whose settings a run may change."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Limits(_Section):
    """Bounds of an episode."""

    steps: int = Field(ge=1)
    """Actions an agent may take, invalid ones included."""
    prompt_tokens: int = Field(ge=0)
    """Longest prompt in tokens; 0: only the model's context bounds it. A longer one ends the episode."""
    response_tokens: int = Field(ge=1)


class Context(_Section):
    """What a prompt shows of the past: some steps in a fresh prompt, a conversation, or one growing answer."""

    kind: Literal["window", "chat", "completion"]
    """completion: one prompt, then one assistant message in which responses and observations alternate."""
    history: int = Field(default=0, ge=0)
    """window: how many past (observation, action) pairs are shown."""


class SamplingSettings(_Section):
    """How responses are drawn."""

    temperature: float = Field(ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    stop: tuple[str, ...] = ()
    thinking: Literal["on", "off", "default"] = "default"
    decode: Literal["free", "admissible"] = "free"
    """admissible: a response is one of the admissible actions that `prompts.hide` leaves, in the parser's form."""


class Dialect(_Section):
    """The action wording that the prompts are written for, checked against the admissible commands."""

    name: str
    requires: tuple[str, ...] = ()
    """Commands that must be admissible at the start of every task."""
    excludes: tuple[str, ...] = ()
    """Regular expressions that no admissible command may match."""


class Example(_Section):
    """A worked turn shown before the first prompt: what was asked and what to answer."""

    user: str
    assistant: str


class Prompts(_Section):
    """Template files, relative to the protocol file. `first` serves turns without a past."""

    system: str = ""
    first: str
    later: str
    examples: tuple[Example, ...] = ()
    hide: tuple[str, ...] = ()
    """Admissible commands that the prompt does not list."""


class ProtocolFile(_Section):
    """The TOML file."""

    name: str
    version: int = Field(ge=1)
    summary: str
    suites: tuple[str, ...] = Field(min_length=1)
    limits: Limits
    context: Context
    parser: ParserSettings
    sampling: SamplingSettings
    prompts: Prompts
    dialect: Dialect | None = None
    environment: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Options of the suite's environment that belong to how an agent is asked (see the suite's page)."""


@dataclass(frozen=True, slots=True)
class Past:
    """A turn as later prompts may show it."""

    observation: str
    """What the agent saw before it acted."""
    admissible: tuple[str, ...] | None
    response: str = ""
    action: str = ""


class Protocol:
    """A resolved protocol: settings, templates, and the functions that apply them.

    Raises:
        SeedBenchError: a template that does not compile or a pattern that is no regular expression.
    """

    def __init__(self, settings: ProtocolFile, templates: dict[str, str], base: ProtocolFile | None = None) -> None:
        self.settings = settings
        self.templates = templates
        self._base = base or settings  # the file's own settings, where `settings` changes some
        # Sandboxed: protocol files come from users and papers, and templates are programs.
        jinja = jinja2.sandbox.ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
        )
        try:
            self._compiled = {name: jinja.from_string(text) for name, text in templates.items()}
            self._parser = ActionParser(settings.parser, asks_thinking=settings.sampling.thinking != "off")
            excluded = "|".join(settings.dialect.excludes) if settings.dialect else ""
            self._excluded = re.compile(excluded, re.M) if excluded else None
        except jinja2.TemplateError as error:
            raise SeedBenchError(f"protocol '{self.name}': a template does not compile: {error}.") from error
        except re.error as error:
            raise SeedBenchError(f"protocol '{self.name}': a pattern is no regular expression: {error}.") from error

    def __reduce__(self) -> tuple[type[Protocol], tuple[object, ...]]:
        return Protocol, (self.settings, self.templates, self._base)  # compiled templates do not travel

    @property
    def name(self) -> str:
        """With version and changed settings, e.g. `alfworld/seed@1` or `alfworld/seed@1[steps=10]`."""
        changed = [
            f"{key}={value}"
            for section in _CHANGEABLE
            for key, value in getattr(self.settings, section)
            if value != getattr(getattr(self._base, section), key)
        ]
        marks = f"[{';'.join(changed)}]" if changed else ""
        return f"{self.settings.name}@{self.settings.version}{marks}"

    @cached_property
    def hash(self) -> str:
        """SHA-256 over all settings and template texts (64 hex digits); file names and layout do not enter."""
        content = json.dumps(self.content(), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()

    def content(self) -> dict[str, Any]:
        """Settings and templates as plain values: what a manifest keeps."""
        settings = self.settings.model_dump(mode="json")
        if settings["sampling"]["decode"] == "free":
            # Protocols are older than this setting, and those that do not use it must keep the hashes in their runs.
            del settings["sampling"]["decode"]
        roles = {role: self.templates[name] for role, name in self._template_names().items()}
        settings["prompts"] = {**settings["prompts"], **roles}
        return settings

    def _template_names(self) -> dict[str, str]:
        prompts = self.settings.prompts
        names = {"first": prompts.first, "later": prompts.later}
        return {"system": prompts.system, **names} if prompts.system else names

    def sampling(self) -> Sampling:
        """Sampling settings as a policy takes them."""
        drawn, limits = self.settings.sampling, self.settings.limits
        return Sampling(
            temperature=drawn.temperature, max_new_tokens=limits.response_tokens,
            max_prompt_tokens=limits.prompt_tokens, top_p=drawn.top_p, top_k=drawn.top_k,
            stop=drawn.stop, thinking=drawn.thinking, decode=drawn.decode,
        )  # fmt: skip

    def choices(self, admissible: Sequence[str] | None) -> tuple[str, ...]:
        """Every response that the protocol allows where decoding is restricted, in the environment's order, each once.

        Empty where decoding is free.

        Raises:
            SeedBenchError: nothing to choose from, or an action that a response cannot say.
        """
        if self.settings.sampling.decode == "free":
            return ()
        actions = dict.fromkeys(self._shown(admissible))
        choices = tuple(map(self.format_action, actions))
        if not choices:
            reason = "the environment lists none" if not admissible else "prompts.hide leaves none of those listed"
            raise SeedBenchError(
                f"the protocol '{self.name}' decodes among the admissible actions, and {reason}: use a protocol whose"
                " decode is 'free'."
            )
        for action, choice in zip(actions, choices, strict=True):
            if "[<your " in action:
                raise SeedBenchError(
                    f"the protocol '{self.name}' decodes among the admissible actions, and '{action}' has a blank to"
                    " fill in: hide it (prompts.hide), or use a protocol whose decode is 'free'."
                )
            if self.parse(choice) != ParsedAction(action, True):
                raise SeedBenchError(
                    f"the protocol '{self.name}' decodes among the admissible actions, and its parser does not read"
                    f" '{action}' back from '{choice}': change the protocol's [parser], e.g. lowercase = false."
                )
        return choices

    def _shown(self, admissible: Sequence[str] | None) -> list[str]:
        return [command for command in admissible or () if command not in self.settings.prompts.hide]

    def messages(self, instruction: str, past: Sequence[Past], now: Past) -> tuple[Message, ...]:
        """The prompt of a turn.

        Args:
            instruction: the task in a sentence.
            past: every earlier turn, oldest first.
            now: the current observation and its admissible commands; response and action are not read.

        Raises:
            SeedBenchError: the template uses a variable that does not exist.
        """
        prompts, history = self.settings.prompts, self.settings.context.history
        shared = {"instruction": instruction, "steps": self.settings.limits.steps}
        messages = []
        if prompts.system:
            messages.append(Message("system", self._render(prompts.system, shared)))
        for example in prompts.examples:
            messages += [Message("user", example.user), Message("assistant", example.assistant)]
        if self.settings.context.kind == "window":
            shown = [
                {"step": number + 1, "observation": turn.observation, "action": turn.action}
                for number, turn in enumerate(past)
                if number >= len(past) - history
            ]
            messages.append(self._user(shared, len(past), now, shown))
            return tuple(messages)
        # What was said stays as it was said, so that the prompt of a turn begins with the last one's.
        if self.settings.context.kind == "completion":
            turns = [*past, now]
            messages.append(self._user(shared, 0, turns[0], []))
            grown = "".join(
                f"{turn.response}\n\n{self._user(shared, number, after, []).content}\n\n"
                for number, (turn, after) in enumerate(pairwise(turns), start=1)
            )
            return (*messages, Message("assistant", grown)) if grown else tuple(messages)
        for number, turn in enumerate(past):
            messages.append(self._user(shared, number, turn, []))
            messages.append(Message("assistant", turn.response))
        messages.append(self._user(shared, len(past), now, []))
        return tuple(messages)

    def _user(self, shared: dict[str, Any], number: int, turn: Past, history: list[dict[str, Any]]) -> Message:
        prompts = self.settings.prompts
        values = {
            **shared,
            "step": number + 1,
            "history": history,
            "observation": turn.observation,
            "admissible": self._shown(turn.admissible),
        }
        return Message("user", self._render(prompts.later if number else prompts.first, values))

    def _render(self, template: str, values: dict[str, Any]) -> str:
        try:
            return self._compiled[template].render(values).strip()
        except Exception as error:  # a template is a program of its author's: it may raise anything
            reason = str(error) or type(error).__name__
            raise SeedBenchError(f"protocol '{self.name}': template {template}: {reason.rstrip('.')}.") from error

    def parse(self, response: str) -> ParsedAction:
        """Find the action in a response. Says nothing of admissibility: that is the environment's word."""
        return self._parser.parse(response)

    def format_action(self, action: str) -> str:
        """The response that says an action and nothing else: what scripted policies answer."""
        return self._parser.format(action)

    def dialect_problem(self, admissible: Sequence[str] | None, *, start: bool) -> str:
        """Why the environment's commands do not fit the protocol's wording; empty where they do."""
        dialect = self.settings.dialect
        if dialect is None or admissible is None:
            return ""
        missing = [command for command in dialect.requires if command not in admissible] if start else []
        wrong = self._excluded.search("\n".join(admissible)) if self._excluded else None
        if not missing and not wrong:
            return ""
        sign = f"'{missing[0]}' is not admissible" if missing else f"the commands hold '{wrong[0]}'" if wrong else ""
        return (
            f"the protocol '{self.name}' is written for action dialect {dialect.name}, but {sign}. Use a panel of that"
            " dialect, or a protocol written for this one (`seedbench protocols list`)."
        )

    def with_settings(self, **changes: Any) -> Protocol:
        """A copy with some settings replaced (`steps=10`, `temperature=0.0`...); its name says so, its hash differs.

        Raises:
            UsageError: an unknown setting or a value out of range. None leaves a setting as it is.
        """
        data = self.settings.model_dump(mode="json")
        for key, value in changes.items():
            section = next((s for s in _CHANGEABLE if key in data[s]), None)
            if section is None:
                raise unknown("protocol setting", key, [k for s in _CHANGEABLE for k in data[s]])
            if value is not None:
                data[section][key] = value
        return Protocol(_validated(data, self.name), self.templates, self._base)


def shipped_protocols() -> dict[str, Traversable]:
    """`suite/name@version` -> TOML file, of every protocol that the installed suites ship, sorted."""
    found: dict[str, Traversable] = {}
    for suite in suite_names():
        try:
            folder = get_suite(suite).resources / "protocols"
        except SeedBenchError:  # as in panels.shipped
            continue
        for file in folder.iterdir() if folder.is_dir() else ():
            if file.name.endswith(".toml"):
                found[f"{suite.removeprefix('mini-')}/{file.name.removesuffix('.toml')}"] = file
    return dict(sorted(found.items()))


def load_protocol(spec: str) -> Protocol:
    """A shipped protocol by name (newest version without `@`), or a TOML file by path.

    Raises:
        UsageError: no such protocol (nearest name offered) or a file with wrong settings (each is named).
        SeedBenchError: a missing or broken template.
    """
    known = shipped_protocols()
    versions = [name for name in known if spec in (name, name.rpartition("@")[0])]
    if versions:
        return read_protocol(known[max(versions, key=lambda name: int(name.rpartition("@")[2]))])
    if spec.endswith(".toml"):
        path = Path(spec)
        if not path.is_file():
            raise UsageError(f"there is no protocol file '{spec}'.")
        return read_protocol(path)
    raise unknown("protocol", spec, {name.rpartition("@")[0] for name in known})


def read_protocol(file: Traversable | Path) -> Protocol:
    """Read a protocol file and its templates; see `load_protocol`."""
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"'{file.name}' is not a TOML file: {error}.") from error
    settings = _validated(data, file.name)
    folder = file.parent if isinstance(file, Path) else _parent(file)
    names = {settings.prompts.system, settings.prompts.first, settings.prompts.later} - {""}
    templates = {}
    for name in sorted(names):
        # What a template holds is sent to servers and kept in runs: a protocol must not name just any file.
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UsageError(f"protocol '{settings.name}': the template '{name}' must lie beside {file.name}.")
        try:
            templates[name] = (folder / name).read_text(encoding="utf-8")
        except OSError as error:
            raise SeedBenchError(
                f"protocol '{settings.name}': the template '{name}' is not beside {file.name}."
            ) from error
        except ValueError as error:
            raise SeedBenchError(f"protocol '{settings.name}': the template '{name}' is not UTF-8 text.") from error
    return Protocol(settings, templates)


def _parent(file: Traversable) -> Traversable:
    # Packages are installed as folders (the wheel is not zip-safe), where resources are plain paths.
    return Path(str(file)).parent


def _validated(data: dict[str, Any], name: str) -> ProtocolFile:
    try:
        return ProtocolFile.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        raise UsageError(f"protocol '{name}': {faults}.") from error
