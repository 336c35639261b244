"""A study's TOML file: what is compared, with which seeds and shares of the data, and how it is evaluated.

`[settings]` and a cell's `settings` are those of a training recipe, as `--set` takes them; they are checked by the
training itself (`plan.check`). Here stands what a study means beside them.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seedbench.errors import UsageError, unknown
from seedbench.panels import load_panel
from seedbench.protocol import Protocol, load_protocol
from seedbench.registry import get_method, get_suite

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=60)]
Share = Annotated[float, Field(gt=0, le=1)]
Seed = Annotated[int, Field(ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class Head(_Section):
    """What all runs of the study share."""

    name: Label
    suite: str
    model: str
    recipe: str = ""
    """Name or TOML file; empty: the suite's for the model."""
    protocol: str = ""
    """Of training, validation and evaluation; empty: the suite's own."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    """Of cells that name none."""


class Start(_Section):
    """A training run made once, whose final weights others begin from."""

    name: Label
    method: str
    start: str = ""
    """An earlier start that this one begins from; empty: the study's model."""
    seed: Seed = 0
    settings: dict[str, Any] = Field(default_factory=dict)
    """Its own; the study's are not read."""


class CellTable(_Section):
    """A `[[cells]]` table: one cell for each of its methods."""

    methods: Annotated[tuple[str, ...], Field(min_length=1)]
    label: Label | None = None
    """Name in tables and folders; default: the method's."""
    start: str = ""
    """The start that training begins from; empty: the study's model."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] | None = None
    fractions: Annotated[tuple[Share, ...], Field(min_length=1)] = (1.0,)
    reading: Literal["games", "draws"] = "games"
    """What a fraction is a share of (docs/training.md)."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Over the study's."""


class EvaluationTable(_Section):
    """How final checkpoints are scored."""

    panels: Annotated[dict[Label, str], Field(min_length=1, max_length=100)]
    """Name in the report (seen, unseen) -> panel."""
    repeats: int = Field(default=1, ge=1)
    seed: Seed = 0
    limit: int | None = Field(default=None, ge=1)
    """Only so many tasks of each panel."""
    temperature: Annotated[float, Field(ge=0)] | None = None
    """Sampling temperature instead of the protocol's, which training keeps."""


class Cell(_Section):
    """One method with its settings; a row of the tables."""

    label: Label
    method: str
    start: str
    seeds: tuple[int, ...]
    fractions: tuple[float, ...]
    reading: str
    settings: dict[str, Any]


class Study(_Section):
    """A study, checked."""

    study: Head
    settings: dict[str, Any] = Field(default_factory=dict)
    """Of all cells; starts have their own."""
    starts: tuple[Start, ...] = ()
    cells: Annotated[tuple[CellTable, ...], Field(min_length=1)]
    evaluation: EvaluationTable

    @property
    def protocol(self) -> str:
        """The protocol of all runs."""
        return self.study.protocol or get_suite(self.study.suite).default_protocol

    @property
    def asked(self) -> Protocol:
        """The protocol of the evaluations: that of all runs, at the temperature that they ask for."""
        return load_protocol(self.protocol).with_settings(temperature=self.evaluation.temperature)

    def resolved(self) -> tuple[Cell, ...]:
        """The cells in the file's order, one for each method."""
        return tuple(
            Cell(
                label=table.label or method,
                method=method,
                start=table.start,
                seeds=table.seeds or self.study.seeds,
                fractions=table.fractions,
                reading=table.reading,
                settings={**flat(self.settings), **flat(table.settings)},
            )
            for table in self.cells
            for method in table.methods
        )


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as `section.key` -> value."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def load_study(file: Path) -> Study:
    """Read a study. Raises UsageError, in a sentence, for whatever in it cannot be right."""
    try:
        # By JSON: its strict mode takes arrays for tuples, and nothing else for another type.
        table = json.dumps(tomllib.loads(file.read_text(encoding="utf-8")), default=str)
        study = Study.model_validate_json(table)
    except OSError as error:
        raise UsageError(
            f"cannot read the study '{file}': {error.strerror}; give a TOML file (docs/studies.md)."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the study '{file}' is not a TOML file: {error}.") from error
    except ValidationError as error:
        raise UsageError(f"the study '{file}' cannot be right: {'; '.join(_faults(error))}.") from error
    _refuse_names(study)
    _refuse_panels(study)
    return study


def _faults(error: ValidationError) -> Iterator[str]:
    for fault in error.errors()[:5]:
        place = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            yield f"{place} is no key of a study (docs/studies.md lists them)"
        elif fault["type"] == "missing":
            yield f"{place} is missing"
        else:
            yield f"{place}: {fault['msg']}, not {json.dumps(fault['input'], default=str)[:80]}"


def _refuse_names(study: Study) -> None:
    cells = study.resolved()
    labels = [cell.label for cell in cells] + [start.name for start in study.starts]
    for what, given in (("cells or starts", labels), ("evaluation.panels", list(study.evaluation.panels))):
        counts = Counter(label.casefold() for label in given)  # folders are named so, on some systems in any case
        if twice := [label for label in given if counts[label.casefold()] > 1]:
            raise UsageError(
                f"'{twice[0]}' names {counts[twice[0].casefold()]} {what} (upper and lower case are one): give each a"
                " label of its own (a table with several methods has none)."
            )
    names: list[str] = []
    for start in study.starts:
        get_method(start.method)
        _refuse_start(start.start, names)
        names.append(start.name)
    for cell in cells:
        get_method(cell.method)
        _refuse_start(cell.start, names)
    for settings in (study.settings, *(c.settings for c in study.cells), *(s.settings for s in study.starts)):
        _refuse_settings(settings)


def _refuse_start(name: str, known: Sequence[str]) -> None:
    if name and name not in known:
        raise unknown("start", name, known)


_OURS = {
    "seed": "seeds",
    "data.fraction": "fractions",
    "data.reading": "reading",
    "protocol.name": "protocol in [study]",
    "device": "nothing: runs choose it themselves",
}


def _refuse_settings(settings: dict[str, Any]) -> None:
    for key in flat(settings):
        if key in _OURS:
            raise UsageError(f"the setting '{key}' is the study's to choose: use {_OURS[key]}.")


def _refuse_panels(study: Study) -> None:
    """Refuse panels and a protocol that do not exist or are of another suite."""
    suite = get_suite(study.study.suite).name
    suites = load_protocol(study.protocol).settings.suites
    if suite not in suites:
        raise UsageError(
            f"the protocol '{study.protocol}' is for {', '.join(suites)}, the study of {suite}; choose another"
            " (`seedbench protocols list`)."
        )
    for label, name in study.evaluation.panels.items():
        panel = load_panel(name)
        if panel.suite != suite:
            raise UsageError(
                f"evaluation.panels.{label} '{panel.name}' is of suite {panel.suite}, the study of {suite}; choose a"
                " panel of that suite (`seedbench panels list`)."
            )
