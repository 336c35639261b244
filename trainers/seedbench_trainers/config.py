"""The configuration of a training run: sections, what they mean, and what contradicts what.

A configuration is resolved once, is frozen, and is written with the run. Where it comes from (recipes, `--set`) is
`recipes.py`; here stands only what a value means and which values do not go together.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Momentum = Annotated[float, Field(ge=0, lt=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Data(_Section):
    """The games that are trained on."""

    panel: str
    """Training panel."""
    families: tuple[str, ...] = ()
    limit: int | None = Field(default=None, ge=1)
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the data that is used; see `reading`."""
    reading: Literal["games", "draws"] = "games"
    """What a fraction is a share of: the training games (all updates are made), or the draws (updates are fewer)."""


class ProtocolChoice(_Section):
    """How the agent is asked, in training, validation and the final evaluation alike."""

    name: str
    set: dict[str, Any] = Field(default_factory=dict)
    """Changed settings of the protocol, e.g. steps = 12; the name in every table says so."""


class RolloutSettings(_Section):
    """Sampling trajectories."""

    tasks: int = Field(default=16, ge=1)
    """Tasks drawn an iteration."""
    group: int = Field(default=8, ge=1)
    """Trajectories a task."""
    temperature: float = Field(default=1.0, gt=0)
    """Of training roll-outs. top-p and top-k are always off there: they would bias the importance ratio."""
    batch_size: int = Field(default=128, ge=1)
    """Most prompts generated at once."""
    cache_gib: float = Field(default=2.0, ge=0)
    """Memory for keys and values kept between the turns of episodes; 0 keeps none."""
    resample: int = Field(default=0, ge=0)
    """Rounds of drawing other tasks in place of groups whose scores are all equal."""
    engine: str = ""
    """Who plays, and writes a policy's own analyses: empty, the model under training itself; vllm, in this process; or
    openai:URL[,URL...], vLLM servers that see the run folder under the same path (docs/vllm.md)."""
    engine_memory: float = Field(default=0.4, gt=0, le=1)
    """Share of the GPU that vLLM in this process takes while it plays; it sleeps during updates."""


class Reward(_Section):
    """The return of an episode and the penalty of a turn."""

    of: Literal["success", "score"] = "success"
    scale: float = Field(default=10.0, gt=0)
    """The return is scale * success (or score): 10 as in the verl-agent family, against which the penalty is set."""
    invalid_penalty: float = Field(default=0.1, ge=0)
    """Subtracted from the score of a turn whose action is invalid."""
    invalid: Literal["format", "inadmissible"] = "format"
    """What is invalid: a response the parser refuses (the releases' rule), or also an action the game refuses."""


class Optimiser(_Section):
    """AdamW and its learning rate, which follows the share of updates done."""

    lr: float = Field(default=1e-6, gt=0)
    betas: tuple[Momentum, Momentum] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Share of the updates over which the rate rises linearly from 0."""
    clip: float = Field(default=1.0, gt=0)
    """Largest gradient norm."""


class Update(_Section):
    """How a batch becomes optimiser steps."""

    mini_batch: int = Field(default=0, ge=0)
    """Samples an optimiser step; 0: the whole batch in one."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the batch."""
    tokens: int = Field(default=16384, ge=1)
    """Most tokens (padding included) in one forward and backward pass; a longer sample goes alone."""
    checkpointing: bool = False
    """Activation checkpointing: less memory, about a third more time."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 autocast on a GPU, float32 on a CPU; weights and optimiser state are float32."""


class Lora(_Section):
    """Low-rank adapters instead of all weights; rank 0: full training."""

    rank: int = Field(default=0, ge=0)
    alpha: int = Field(default=32, ge=1)
    targets: tuple[str, ...] = ()
    """Names of the modules; empty: all linear layers but the output."""


class Validation(_Section):
    """Scoring the policy on a fixed panel while it trains, by the evaluation code."""

    panel: str = ""
    """Empty: no validation and no table at the end."""
    families: tuple[str, ...] = ()
    limit: int | None = Field(default=None, ge=1)
    every: int = Field(default=0, ge=0)
    """Updates between validations; 0: only before the first and after the last."""
    repeats: int = Field(default=1, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    """None: the protocol's."""
    seed: int = 0
    before: bool = True
    """Also score the policy before the first update."""


class Checkpoints(_Section):
    """What is kept of the run."""

    every: int = Field(default=10, ge=0)
    """Updates between checkpoints; 0: only at the end."""
    keep: int = Field(default=1, ge=1)
    """How many of the latest are kept, beside the final one and the best of the validations."""


class Warmstart(_Section):
    """SFT before a method that needs a policy which now and then succeeds; 0 updates: none."""

    updates: int = Field(default=0, ge=0)
    lr: float = Field(default=1e-3, gt=0)
    episodes: int = Field(default=1024, ge=1)
    """Episodes in the demonstrations."""
    noise: float = Field(default=0.3, ge=0, le=1)
    """Share of random actions in them."""
    mini_batch: int = Field(default=64, ge=1)


class Budget(_Section):
    """When training ends before the last update."""

    environment_steps: int = Field(default=0, ge=0)
    """Training ends after the first update at which so many were played in its roll-outs; 0: no such limit. The
    learning rate still follows `updates`."""


class Distributed(_Section):
    """Several processes (torchrun): what each of them holds. No number depends on it, but for rounding."""

    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """ddp: all weights, gradients and optimiser state on every process; fsdp: its share of them. auto: fsdp for models
    of a billion parameters and more on GPUs, else ddp."""


class Track(_Section):
    """Trackers beside metrics.jsonl, which is always written, and traces for `seedbench view`."""

    tensorboard: bool = False
    wandb: str = ""
    """Project to log to; empty: none."""
    traces: int = Field(default=4, ge=0)
    """Trajectories of an update that are kept token by token; 0: none."""
    traces_every: int = Field(default=10, ge=1)
    """Updates between those; the first and the last update leave traces too."""


class TrainConfig(_Section):
    """A resolved training run."""

    recipe: str = ""
    """Name of the recipe it was resolved from."""
    method: str
    suite: str
    model: str
    """A folder, a hub name, a stored model's name, or tiny[:size]."""
    seed: int = 0
    updates: int = Field(ge=1)
    """Iterations: each gathers a batch and trains on it. The most that are made where there is a `budget`."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    data: Data
    protocol: ProtocolChoice
    rollout: RolloutSettings = RolloutSettings()
    reward: Reward = Reward()
    optimiser: Optimiser = Optimiser()
    update: Update = Update()
    lora: Lora = Lora()
    validation: Validation = Validation()
    checkpoints: Checkpoints = Checkpoints()
    warmstart: Warmstart = Warmstart()
    budget: Budget = Budget()
    track: Track = Track()
    distributed: Distributed = Distributed()
    options: dict[str, Any] = Field(default_factory=dict)
    """The method's own settings (the `[method]` table of a recipe), checked by the method."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise ValueError(f"device must be auto, cpu, cuda or cuda:N, not {self.device!r}")
        for key in ("top_p", "top_k"):
            if key in self.protocol.set:
                raise ValueError(
                    f"protocol.set.{key}: training draws from the whole distribution, or the importance ratio would be"
                    " biased; remove it"
                )
        if self.validation.panel and self.validation.panel == self.data.panel:
            raise ValueError(
                f"validation.panel and data.panel are both '{self.data.panel}': validate on tasks that"
                " are not trained on"
            )
        if not self.validation.panel and (self.validation.limit or self.validation.families):
            raise ValueError(
                "validation.limit and validation.families choose tasks of validation.panel, which is empty: name one"
            )
        if self.lora.targets and not self.lora.rank:
            raise ValueError("lora.targets are named, but lora.rank is 0: full training; set a rank or remove them")
        if self.lora.rank and self.distributed.strategy == "fsdp":
            raise ValueError(
                "distributed.strategy is fsdp and lora.rank is set: adapters are small and go with ddp; choose it, or"
                " auto"
            )
        engine = self.rollout.engine
        if engine not in ("", "vllm") and not engine.startswith("openai:http"):
            raise ValueError(f"rollout.engine must be empty, vllm or openai:URL[,URL...], not {engine!r}")
        if engine and self.lora.rank:
            raise ValueError(
                "rollout.engine is set and lora.rank too: engines take whole models; set lora.rank = 0, or leave the"
                " roll-outs to the trainer"
            )
        if self.update.dtype == "bfloat16" and self.device == "cpu":
            raise ValueError("update.dtype is bfloat16 on device cpu: use float32 there, it is faster")
        return self

    @property
    def planned_updates(self) -> int:
        """Updates after the data fraction (reading "draws" makes fewer of them)."""
        share = self.data.fraction if self.data.reading == "draws" else 1.0
        return max(1, round(self.updates * share))
