"""Recipes: the settings that a training run starts from, and how the command line changes them.

A recipe is a TOML file: `summary`, the `suites` it is for, a default `model`, `updates`, and the sections of
`config.py`. `[method]` holds the method's own settings. `[methods.NAME]` and `[models."NAME"]` hold the same sections
again, for runs of that method and of that model (matched by the last part of its name, or of the model's behind a
checkpoint). Later wins: the recipe, the
method, the model, the command line.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from seedbench.errors import UsageError, unknown
from seedbench.models import MODELS
from seedbench.registry import get_method, get_suite, method_names
from seedbench_trainers.checks import base_model, checked, make_method, refuse_contradictions
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.tiny import is_tiny, size_of

Table = dict[str, Any]

_NAMED = ("recipe", "method", "suite", "model", "options")
_PLAIN = ("seed", "updates", "device")
_SECTIONS = tuple(name for name in TrainConfig.model_fields if name not in (*_NAMED, *_PLAIN))
_SETTINGS = (*_PLAIN, *_SECTIONS, "method")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe file, its keys and overlays checked but not their values."""

    name: str
    summary: str
    suites: tuple[str, ...]
    model: str
    """What is trained where no model is named; may be empty."""
    settings: Table
    methods: Mapping[str, Table]
    models: Mapping[str, Table]


def shipped_recipes() -> dict[str, Recipe]:
    """Name -> recipe, of every recipe in the package, sorted."""
    folder = resources.files("seedbench_trainers") / "recipes"
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    return {file.name.removesuffix(".toml"): read_recipe(file) for file in sorted(files, key=lambda file: file.name)}


def load_recipe(spec: str) -> Recipe:
    """A recipe of the package by name, or a TOML file by path. Raises UsageError with the nearest name or the fault."""
    shipped = shipped_recipes()
    if spec in shipped:
        return shipped[spec]
    if not spec.endswith(".toml"):
        raise unknown("recipe", spec, shipped)
    if not Path(spec).is_file():
        raise UsageError(f"there is no recipe file '{spec}'.")
    return read_recipe(Path(spec))


def read_recipe(file: Traversable | Path) -> Recipe:
    """Read a recipe file. Raises UsageError for what is no TOML and for keys and methods that do not exist."""
    name = file.name.removesuffix(".toml")
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"'{file.name}' is not a TOML file: {error}.") from error
    head = {key: table.pop(key, default) for key, default in (("summary", ""), ("suites", []), ("model", ""))}
    overlays = {kind: table.pop(kind, {}) for kind in ("methods", "models")}
    if not (isinstance(head["suites"], list) and head["suites"] and all(isinstance(s, str) for s in head["suites"])):
        raise UsageError(f"recipe '{name}': suites must list the suites that it is for, e.g. suites = [\"alfworld\"].")
    for key in ("summary", "model"):
        if not isinstance(head[key], str):
            raise UsageError(f"recipe '{name}': {key} must be a text, not {head[key]!r}.")
    _check_keys(name, "", table)
    for kind, tables in overlays.items():
        if not isinstance(tables, dict):
            raise UsageError(f"recipe '{name}': {kind} must be tables [{kind}.NAME], not {tables!r}.")
        for label, overlay in tables.items():
            if kind == "methods" and label not in method_names():
                raise unknown(f"method in recipe '{name}'", label, method_names())
            _check_keys(name, f"{kind}.{label}", overlay)
    return Recipe(name, head["summary"], tuple(head["suites"]), head["model"], table, **overlays)


def _check_keys(recipe: str, place: str, table: Any) -> None:
    if not isinstance(table, dict):
        raise UsageError(f"recipe '{recipe}': {place} must be a table, not {table!r}.")
    for key, value in table.items():
        if key not in _SETTINGS:
            raise unknown(f"section in {f'[{place}] of ' if place else ''}recipe '{recipe}'", key, _SETTINGS)
        if key not in _PLAIN and not isinstance(value, dict):
            raise UsageError(f"recipe '{recipe}': {key} must be a table of settings, not {value!r}.")


def default_recipe(suite: str, model: str) -> Recipe:
    """The suite's recipe that is made for the model (by its default model), else the one with the suite's name.

    Raises UsageError where no recipe is for the suite.
    """
    shipped = shipped_recipes()
    fitting = {name: recipe for name, recipe in shipped.items() if suite in recipe.suites}
    own = fitting.get(suite)
    made = [r for r in fitting.values() if model and _last(r.model) & _last(model)]
    if own is not None and (own in made or not made):
        return own
    if not made:
        raise UsageError(
            f"no recipe of the package is for suite '{suite}' and names no other; write one (docs/training.md) and give"
            f" its file with --recipe. Known: {', '.join(shipped)}."
        )
    return made[0]


def _last(model: str) -> set[str]:
    """What a model may be called in a recipe: the last part of its path, with and without tiny's size."""
    name = model.rstrip("/").rpartition("/")[2].lower()
    return {name, name.partition(":")[0]} - {""}


def resolve(
    method: str,
    suite: str | None = None,
    model: str | None = None,
    *,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    updates: int | None = None,
    device: str | None = None,
) -> TrainConfig:
    """The configuration of a run, complete and free of contradictions.

    Args:
        method: name of an installed method.
        suite: default: the recipe's first.
        model: a folder, hub name, stored model or tiny[:size]; default: the recipe's.
        recipe: a name or a TOML file; default: see `default_recipe`.
        overrides: `section.key=value` each, values as in TOML, where a bare word is a text.
        seed, updates, device: the settings of these names, over the recipe's and the overrides'.

    Raises:
        UsageError: an unknown name (the nearest is offered), a value of another type or out of range, or settings that
            contradict each other.
        SeedBenchError: a suite or method that is installed but broken.
    """
    get_method(method)
    if suite is not None:
        get_suite(suite)
    elif recipe is None:
        raise UsageError("name a suite with --suite, or a recipe with --recipe (`seedbench train --list`).")
    known = base_model(model) if model else ""
    chosen = load_recipe(recipe) if recipe is not None else default_recipe(suite or "", known)
    suite = suite or chosen.suites[0]
    if suite not in chosen.suites:
        raise UsageError(
            f"recipe '{chosen.name}' is for {', '.join(chosen.suites)}, not {suite}; choose another recipe."
        )
    model = model or chosen.model
    _check_model(model, chosen)
    table = merged(chosen.settings, chosen.methods.get(method, {}))
    for name, overlay in chosen.models.items():
        if _last(name) & (_last(model) | _last(known)):
            table = merged(table, overlay)
    for text in overrides:
        table = merged(table, _override(text))
    table |= {k: v for k, v in (("seed", seed), ("updates", updates), ("device", device)) if v is not None}
    return _build(table, chosen.name, method, suite, model)


def _build(table: Table, recipe: str, method: str, suite: str, model: str) -> TrainConfig:
    table = merged({"protocol": {"name": get_suite(suite).default_protocol}}, table)
    if "panel" not in table.setdefault("data", {}):
        raise UsageError(
            f"recipe '{recipe}' names no training panel: give one with --set data.panel=NAME (`seedbench panels list`),"
            " or the panel file that `seedbench data fetch` writes for questions that are not shipped."
        )
    own = table.pop("method", {})
    named = {"recipe": recipe, "method": method, "suite": suite, "model": model}
    config = checked(TrainConfig, {**table, **named, "options": own})
    config = config.model_copy(update={"options": make_method(config).settings.model_dump(mode="json")})
    refuse_contradictions(config)
    return config


def merged(base: Table, over: Table) -> Table:
    """`base` with the values of `over`, table by table; neither is changed."""
    both = {k: merged(base[k], v) for k, v in over.items() if isinstance(v, dict) and isinstance(base.get(k), dict)}
    return {**base, **over, **both}


def _override(text: str) -> Table:
    """`section.key=value` as nested tables."""
    key, equals, value = (part.strip() for part in text.partition("="))
    first, *rest = key.split(".")
    if not equals or not all((first, *rest)):
        raise UsageError(f"--set '{text}': expected section.key=value, e.g. optimiser.lr=3e-4.")
    if first in _NAMED and not rest and first != "options":
        raise UsageError(f"--set '{text}': use --{first}, it decides which recipe and overlays are read.")
    if first not in _SETTINGS:
        raise unknown("section in --set", first, _SETTINGS)
    if not rest and first not in _PLAIN:
        raise UsageError(f"--set '{text}': {first} is a section; name a setting of it, {first}.key=value.")
    nested: Any = _value(text, value)
    for part in reversed((first, *rest)):
        nested = {part: nested}
    table: Table = nested
    return table


def _value(text: str, value: str) -> Any:
    try:
        read = tomllib.loads(f"value = {value}\n")
    except tomllib.TOMLDecodeError as error:
        if value[:1] in ("[", "{", '"', "'"):
            raise UsageError(f"--set '{text}': the value is not TOML: {error}.") from error
        return value
    return read["value"] if len(read) == 1 else value


def _check_model(model: str, recipe: Recipe) -> None:
    if not model:
        raise UsageError(f"recipe '{recipe.name}' has no model of its own: name one with --model.")
    if is_tiny(model):
        size_of(model)
    elif not ("/" in model or model in MODELS or Path(model).expanduser().exists()):
        raise unknown("model", model, {*MODELS, "tiny", recipe.model, *recipe.models} - {""})


def to_toml(config: TrainConfig) -> str:
    """The configuration as a recipe file: `--recipe` with the same method and suite resolves to it again."""
    table = config.model_dump(mode="json", exclude_none=True)
    own = table.pop("options")
    lines = [f"suites = {_toml([config.suite])}", *(f"{key} = {_toml(table[key])}" for key in ("model", *_PLAIN))]
    for name, section in (*((s, table[s]) for s in _SECTIONS), (f"methods.{config.method}.method", own)):
        lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in section.items() if value is not None)]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)} = {_toml(v)}' for k, v in value.items() if v is not None)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
