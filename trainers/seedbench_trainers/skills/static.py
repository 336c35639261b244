"""Static skills: texts for every family of a suite, written once and given to all its tasks alike.

What SDAR, Skill-SD and others insert in place of a hindsight skill. A file is TOML: `general`, and a text for each
family under `[families]`; the mini editions share the files of their suites.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from seedbench.errors import SeedBenchError, UsageError, unknown


class StaticSkills(BaseModel):
    """A file of static skills."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    general: str = ""
    """Stands before every family's own text."""
    families: dict[str, str]


def static_skill(suite: str, family: str, path: str = "") -> str:
    """The static skill for a task: the general text, then the family's.

    Args:
        suite: e.g. mini-webshop.
        family: a family of that suite.
        path: a user's own file in place of the shipped one.

    Raises:
        UsageError: no such file, or not a file of skills.
        SeedBenchError: the file has no text for the family.
    """
    skills = _read(path) if path else _shipped(suite.removeprefix("mini-"))
    own = skills.families.get(family, "").strip()
    if not own:
        has = ", ".join(skills.families) or "none"
        raise SeedBenchError(
            f"the static skills in {path or f'the file for {suite}'} lack the family '{family}' (there are: {has}): add"
            " a text for it under [families] in a file of your own, and name that file."
        )
    return " ".join(f"{skills.general} {own}".split())


def static_names() -> list[str]:
    """Suites that static skills are shipped for, sorted, without the mini editions."""
    return sorted(file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml"))


def _folder() -> Traversable:
    return files("seedbench_trainers.skills") / "data"


@cache
def _shipped(suite: str) -> StaticSkills:
    if suite not in static_names():
        raise unknown("suite with static skills", suite, static_names())
    return _parsed((_folder() / f"{suite}.toml").read_bytes(), f"{suite}.toml")


@cache
def _read(path: str) -> StaticSkills:
    try:
        return _parsed(Path(path).read_bytes(), path)
    except OSError as error:
        raise UsageError(f"the file of static skills '{path}' cannot be read: {error.strerror}.") from error


def _parsed(content: bytes, name: str) -> StaticSkills:
    try:
        return StaticSkills.model_validate(tomllib.loads(content.decode()))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"'{name}' is no file of static skills: {where}: {first['msg']}; expected 'general' and a text for each"
            " family under [families]."
        ) from error
    except ValueError as error:  # TOML and UTF-8 errors are both ValueErrors
        raise UsageError(f"'{name}' is not a TOML file: {error}.") from error
