"""What a configuration's names stand for, and the contradictions that only show once they are looked up.

`config.py` refuses what contradicts itself; here panels, protocols and the method itself are asked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from seedbench.errors import UsageError, unknown
from seedbench.panels import Panel, load_panel, overlaps
from seedbench.policies.checkpoint import origin_of
from seedbench.protocol import Protocol, load_protocol
from seedbench.registry import get_method
from seedbench_trainers.base import Method
from seedbench_trainers.config import Data, TrainConfig, Validation

Model = TypeVar("Model", bound=BaseModel)


def checked(model: type[Model], data: dict[str, Any], prefix: str = "") -> Model:
    """`data` as a `model`; TOML's types count: 1 is no text, true no number.

    Raises UsageError: for an unknown key with the nearest one, else with a clause for each of the first five faults.
    """
    try:
        # By JSON: its strict mode takes arrays for tuples and integers for floats, and nothing else for another type.
        return model.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        for fault in error.errors():
            if fault["type"] == "extra_forbidden":
                raise _unknown_key(model, prefix, fault["loc"]) from error
        faults = "; ".join(_fault(prefix, fault) for fault in error.errors()[:5])
        raise UsageError(f"the configuration cannot be right: {faults}.") from error


def _fault(prefix: str, fault: Any) -> str:
    text = fault["msg"].removeprefix("Value error, ").rstrip(".")
    if not fault["loc"]:
        return str(text)
    place = prefix + ".".join(map(str, fault["loc"]))
    return f"{place}: {text}" if fault["type"] == "missing" else f"{place}: {text}, not {fault['input']!r}"


def _unknown_key(model: type[BaseModel], prefix: str, place: tuple[int | str, ...]) -> UsageError:
    section: Any = model
    for part in place[:-1]:
        field = getattr(section, "model_fields", {}).get(part)
        section = field.annotation if field else None
    table = prefix + ".".join(map(str, place[:-1]))
    return unknown(f"key in [{table.rstrip('.')}]", str(place[-1]), getattr(section, "model_fields", {}))


def make_method(config: TrainConfig) -> Method:
    """The configuration's method with its own settings.

    Raises UsageError: an unknown method, a wrong setting, or what the method itself refuses.
    """
    kind = get_method(config.method)
    method: Method = kind(checked(kind.Settings, config.options, "method."), config)
    return method


def agent_protocol(config: TrainConfig) -> Protocol:
    """The protocol of training, validation and the final evaluation. Raises UsageError for a wrong name or setting."""
    return load_protocol(config.protocol.name).with_settings(**config.protocol.set)


def panel_of(section: Data | Validation) -> Panel:
    """The section's panel, cut to its families and limit (the data fraction is not applied here)."""
    return load_panel(section.panel).subset(section.families, section.limit)


def base_model(model: str) -> str:
    """The name of the model behind a checkpoint of ours, of a folder its last part, else `model` itself."""
    folder = Path(model).expanduser()
    recorded = (origin_of(folder) or {}).get("model")
    if isinstance(recorded, str) and recorded:
        return recorded
    return folder.resolve().name if folder.is_dir() else model


def most_samples(config: TrainConfig, protocol: Protocol) -> int:
    """Upper bound on the samples of an iteration's roll-outs."""
    return config.rollout.tasks * config.rollout.group * samples_an_episode(protocol)


def samples_an_episode(protocol: Protocol) -> int:
    """Most samples of an episode: one a step where each prompt is fresh, else one (chat templates may make it more)."""
    return protocol.settings.limits.steps if protocol.settings.context.kind == "window" else 1


def refuse_contradictions(config: TrainConfig) -> None:
    """Look up what the configuration names and refuse what does not go together; no data of a task is read.

    Raises UsageError.
    """
    method = make_method(config)
    protocol = agent_protocol(config)
    panel = panel_of(config.data)
    _refuse_panel(panel, "data.panel", config, protocol)
    if config.validation.panel:
        held_out = panel_of(config.validation)
        _refuse_panel(held_out, "validation.panel", config, protocol)
        if shared := overlaps(panel, held_out):
            raise UsageError(
                f"validation.panel '{held_out.name}' shares {len(shared)} tasks with data.panel '{panel.name}',"
                f" {shared[0]} for one; validate on tasks that are not trained on."
            )
    if config.budget.environment_steps and not method.samples_policy:
        raise UsageError(
            f"budget.environment_steps is {config.budget.environment_steps}, but {config.method} plays no roll-outs and"
            " would never reach it; set it to 0 and choose --updates."
        )
    drawn = protocol.settings.sampling
    if method.samples_policy and (drawn.top_p < 1 or drawn.top_k):
        raise UsageError(
            f"the protocol '{protocol.name}' cuts the distribution (top_p {drawn.top_p}, top_k {drawn.top_k}), which"
            " would bias the importance ratio; train with a protocol that samples from all of it."
        )
    if method.samples_policy and config.rollout.engine and drawn.decode == "admissible":
        raise UsageError(
            f"the protocol '{protocol.name}' decodes among the admissible actions, which vLLM cannot do token by token:"
            " leave out rollout.engine, or train with a protocol that decodes freely."
        )
    most = most_samples(config, protocol)
    if method.samples_policy and config.update.mini_batch > most:
        raise UsageError(
            f"update.mini_batch is {config.update.mini_batch}, but a batch never has more than {most} samples"
            f" ({config.rollout.tasks} tasks x {config.rollout.group} episodes); lower it, or 0 takes the whole batch."
        )


def _refuse_panel(panel: Panel, key: str, config: TrainConfig, protocol: Protocol) -> None:
    settings = protocol.settings
    if panel.suite != config.suite:
        raise UsageError(
            f"{key} '{panel.name}' is of suite {panel.suite}, the run of {config.suite}; choose a panel of that suite"
            " (`seedbench panels list`)."
        )
    if config.suite not in settings.suites:
        raise UsageError(
            f"the protocol '{protocol.name}' is for {', '.join(settings.suites)}, the run for {config.suite}; choose"
            " another with --set protocol.name=NAME (`seedbench protocols list`)."
        )
    if settings.dialect and panel.dialect and settings.dialect.name != panel.dialect:
        raise UsageError(
            f"{key} '{panel.name}' is worded in dialect {panel.dialect}, the protocol '{protocol.name}' in"
            f" {settings.dialect.name}; choose a panel and a protocol of one dialect."
        )
