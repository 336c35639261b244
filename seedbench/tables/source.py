"""Reading a run's summary from outside. The models mirror `seedbench/schemas/summary.schema.json`."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from seedbench.errors import SeedBenchError
from seedbench.metrics import SCHEMA
from seedbench.subject import TRAINING
from seedbench.ui.text import inert

_Count = Annotated[int, Field(ge=0)]
_Positive = Annotated[float, Field(ge=0)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Text = Annotated[str, Field(min_length=1)]
_Name = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Rate(_Model):
    rate: _Share | None
    n: _Count
    ci: tuple[_Share, _Share]


class _Panel(_Model):
    name: _Text
    hash: _Text
    n: _Count
    suite: _Text
    split: _Text
    official: bool


class _Protocol(_Model):
    name: _Text
    hash: _Text


class _Policy(_Model):
    name: _Text
    identity: dict[str, JsonValue]


class _Success(_Model):
    micro: _Rate
    macro: _Rate
    families: dict[str, _Rate]


class _Score(_Model):
    mean: float | None
    n: _Count
    ci: tuple[float, float]


class _Metric(_Model):
    mean: _Share | None
    n: _Count
    ci: tuple[_Share, _Share]


class _Turns(_Model):
    total: _Count
    mean: _Positive | None
    invalid_rate: _Share | None
    inadmissible_rate: _Share | None


class _Outcomes(_Model):
    solved: _Count
    failed: _Count
    step_limit: _Count
    context_overflow: _Count
    infra_error: _Count


class _Tokens(_Model):
    prompt: _Count
    generated: _Count


class _Seconds(_Model):
    episodes: _Positive
    wall: _Positive | None
    gpu: _Positive | None


class _Summary(_Model):
    schema_: Annotated[str, Field(alias="schema")]
    panel: _Panel
    protocol: _Protocol
    policy: _Policy
    environment: dict[str, JsonValue] = {}
    repeats: Annotated[int, Field(ge=1)]
    seed: int
    episodes: _Count
    success: _Success
    score: _Score
    metrics: dict[_Name, _Metric]
    turns: _Turns
    outcomes: _Outcomes
    tokens: _Tokens
    seconds: _Seconds


def load_summary(run: Path) -> dict[str, Any]:
    """Read the summary of a run folder, or a summary file, and check its shape.

    Raises SeedBenchError where it is missing, cannot be read, is not a summary, or is one of another
    version.
    """
    path = run / "summary.json" if run.is_dir() else run
    shown = inert(str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SeedBenchError(_missing(run, shown)) from None
    except OSError as error:
        raise SeedBenchError(f"cannot read {shown}: {error.strerror}; mend that and try again.") from None
    except UnicodeDecodeError:
        raise SeedBenchError(_malformed(shown, "it is not UTF-8 text")) from None
    return _checked(text, shown)


def _checked(text: str, shown: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SeedBenchError(_malformed(shown, f"it is not JSON ({error})")) from None
    if not isinstance(data, dict) or "schema" not in data:
        raise SeedBenchError(_malformed(shown, "it names no schema"))
    if data["schema"] != SCHEMA:
        raise SeedBenchError(
            f"{shown} has schema {inert(repr(data['schema']), 80)}, but this version of SeedBench reads "
            f"'{SCHEMA}': run the same `seedbench eval` command again to rebuild it from the run's log."
        )
    try:
        _Summary.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = inert(".".join(str(part) for part in first["loc"]), 120)
        reason = f"at {place or 'the top'}: {first['msg']}"
        raise SeedBenchError(_malformed(shown, reason)) from None
    return data


def _missing(run: Path, shown: str) -> str:
    if (run / TRAINING).is_file():
        return (
            f"'{inert(str(run))}' is a training run: evaluate its checkpoint final/ with `seedbench eval`, or name one"
            " of the folders validation/update-*."
        )
    if run.is_dir():
        return f"{shown} is missing: expected a run folder that `seedbench eval ... --out` has left."
    return f"there is no {shown}: expected a run folder or a summary.json; check the path."


def _malformed(shown: str, reason: str) -> str:
    return (
        f"{shown} is not a run's summary, {reason}: name a run folder, or run the same `seedbench eval` command again"
        " to rebuild its summary from the log."
    )
