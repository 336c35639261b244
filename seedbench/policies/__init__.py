"""Policies: what answers prompts. One file a kind; `make_policy` turns a command line's word into one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.panels import Panel
from seedbench.policies.base import Policy
from seedbench.registry import get_suite
from seedbench.store import store_root

SCRIPTED = ("oracle", "random")
GROUP = "seedbench.policies"
"""Entry-point group of further kinds: `KIND:REST` is made by the function KIND(REST, panel, options) -> Policy."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How a model is run. None of it may change an answer (batch size, device) but dtype, which is in the identity."""

    batch_size: int = 16
    device: str = "auto"
    dtype: str = "auto"
    adapter: str | None = None
    concurrency: int = 16
    timeout: float = 120.0
    """Seconds that a server may take for one response."""


def make_policy(spec: str, panel: Panel, options: ModelOptions) -> Policy:
    """The policy that `spec` names.

    Args:
        spec: `oracle`, `random`, a baseline of the suite (`rule`), `replay:RUN`, `openai:URL[,URL...][#MODEL]`, a
            stored model's name (`seedbench models list`), a Hugging Face folder, a hub name `owner/model`, `vllm:` and
            one of these three, or KIND:REST for a kind that another package brings (`skills:SPEC`).
        panel: the tasks it will be asked about (the oracle looks up their solutions).

    Raises:
        UsageError: nothing has that name.
        SeedBenchError: it exists but cannot be used.
    """
    kind, _, rest = spec.partition(":")
    suite = get_suite(panel.suite)
    if spec in (*SCRIPTED, *suite.policies) or kind in ("replay", "openai"):
        _refuse_model_options(spec, options)
    if spec in suite.policies:
        from seedbench.policies.rule import RulePolicy

        return RulePolicy(suite.name, spec, suite.policies[spec])
    if spec == "oracle":
        from seedbench.policies.oracle import OraclePolicy

        return OraclePolicy(lambda task: suite.oracle(panel, task))
    if spec == "random":
        from seedbench.policies.random_ import RandomPolicy

        return RandomPolicy()
    if kind == "replay":
        return _replay(rest, panel)
    if kind == "openai":
        from seedbench.policies.openai import OpenAIPolicy

        url, _, model = rest.partition("#")
        return OpenAIPolicy(url, model=model or None, timeout=options.timeout, concurrency=options.concurrency)
    if ":" in spec and (brought := entry_points(group=GROUP, name=kind)):
        return _brought(next(iter(brought)), rest, panel, options)
    if kind in ("http", "https"):
        raise UsageError(f"'{spec}' is a server's address: write openai:{spec}.")
    path, name = _model(rest if kind == "vllm" else spec, suite.policies)
    if kind == "vllm":
        from seedbench.policies.vllm_ import VllmPolicy
        from seedbench.policies.vllm_setup import EngineSettings

        settings = EngineSettings(dtype=options.dtype, device=options.device)
        return VllmPolicy(path, adapter=options.adapter, name=name, settings=settings)
    from seedbench.policies.transformers_ import TransformersPolicy

    return TransformersPolicy(
        path, batch_size=options.batch_size, device=options.device, dtype=options.dtype,
        adapter=options.adapter, name=name,
    )  # fmt: skip


def _model(spec: str, baselines: Iterable[str]) -> tuple[str, str | None]:
    """Where a model lies, or its hub name; and the name by which the store knows it. Raises UsageError."""
    from seedbench.models import MODELS, resolve

    if spec in MODELS:
        return str(resolve(spec, store_root())), spec
    if Path(spec).is_dir() or spec.count("/") == 1:
        return spec, None
    if "/" in spec or spec.startswith("."):
        raise UsageError(f"there is no model folder '{spec}'.")
    raise unknown(
        "policy", spec,
        [*SCRIPTED, *baselines, *MODELS, "replay:RUN", "openai:URL", "vllm:MODEL", "skills:SPEC", "a model folder"],
    )  # fmt: skip


def _replay(folder: str, panel: Panel) -> Policy:
    from seedbench.policies.replay import ReplayPolicy

    stored = ReplayPolicy(Path(folder))
    if not any(stored.holds(task) for task in panel.tasks):
        raise UsageError(
            f"the run '{folder}' holds no episode of a task of '{panel.name}': replay it on its own panel,"
            f" '{stored.panel}'."
        )
    return stored


def _brought(point: EntryPoint, rest: str, panel: Panel, options: ModelOptions) -> Policy:
    try:
        factory = point.load()
    except Exception as error:  # as with suites: other people's packages fail in their own ways
        raise SeedBenchError(
            f"the policy kind '{point.name}' ({point.value}) is registered but does not load: {type(error).__name__}:"
            f" {str(error).rstrip('.')}. Mend or uninstall its package."
        ) from error
    policy: Policy = factory(rest, panel, options)
    return policy


def _refuse_model_options(spec: str, options: ModelOptions) -> None:
    """An adapter or a number format that nothing applies would leave scores under a wrong description."""
    for name, given in (("adapter", options.adapter is not None), ("dtype", options.dtype != "auto")):
        if given:
            raise UsageError(
                f"--{name} is for local models, and '{spec}' is none: leave it out, or give a model folder."
            )
