"""The model under training: loaded for gradients, with its scorer and, where wanted, its frozen reference."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import Loaded, identity_of, load
from seedbench_trainers.config import TrainConfig

if TYPE_CHECKING:
    import torch

    from seedbench_trainers.scoring import TokenScorer
    from seedbench_trainers.sharding import Shards


@dataclass(slots=True)
class Trainee:
    """Model, tokenizer and scorers. The model's weights are float32 and change in place as it is trained."""

    loaded: Loaded
    scorer: TokenScorer
    """Scores with gradient, in updates."""
    snapshot: TokenScorer
    """Scores the policy between updates: the same module, but with shards, where it is the gathered model's."""
    reference: TokenScorer | None
    """Scores with the weights that training began from; None where no method asks for it. With LoRA it is the same
    module, to be used under `reference_weights`."""
    autocast: torch.dtype | None
    """Number format of forward passes, where it is not the weights'."""
    lora: bool
    shards: Shards | None = None
    """The weights under training, where several processes share them (FSDP)."""

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """What the optimiser changes, in the model's order."""
        return self.shards.parameters if self.shards else [p for p in self.loaded.model.parameters() if p.requires_grad]

    @contextlib.contextmanager
    def precision(self) -> Any:
        """The context in which this model's forward passes run."""
        import torch

        device = self.loaded.model.device.type
        # Without shards a weight is cast once a pass and kept; kept casts of sharded ones would be the whole model.
        kept = self.shards is None
        with torch.autocast(device, dtype=self.autocast, enabled=self.autocast is not None, cache_enabled=kept):
            yield

    @contextlib.contextmanager
    def reference_weights(self) -> Any:
        """The context in which `reference` scores with the weights that training began from."""
        gathered = self.shards.reference() if self.shards else contextlib.nullcontext()
        with self.loaded.model.disable_adapter() if self.lora else gathered:
            yield

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder (safetensors, or a LoRA adapter) with the tokenizer. Raises SeedBenchError."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.loaded.model.save_pretrained(folder)
            self.loaded.tokenizer.save_pretrained(folder)
        except Exception as error:  # safetensors and the file system have errors of their own
            raise SeedBenchError(
                f"cannot write the checkpoint '{folder}' ({type(error).__name__}: {str(error)[:200]}). Free space and"
                " run the same command again; it continues from the last whole checkpoint."
            ) from error

    def identity(self, folder: Path) -> dict[str, Any]:
        """Identity of this model as it was saved in `folder`: what `seedbench eval` finds there."""
        loaded = self.loaded
        return identity_of(locate(str(folder)), loaded.tokenizer, loaded.template, loaded.eos, loaded.model.dtype)


def load_trainee(config: TrainConfig, model: str, *, reference: bool, resume: Path | None = None) -> Trainee:
    """Load `model` (a folder or hub name; a LoRA folder is merged first) for training.

    With `resume`, the weights of that checkpoint go on, and `model` is what training had begun from.

    Raises SeedBenchError or UsageError where it cannot be used, as an evaluation would.
    """
    import torch

    from seedbench_trainers.scoring import TokenScorer

    lora = config.lora.rank > 0
    goes_on = resume is not None and not lora and not reference
    loaded = _resumed(resume, config) if resume and goes_on else _load(model, config)
    frozen = TokenScorer(loaded.model.requires_grad_(False)) if reference and not lora else None
    if lora:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # peft reads an old name of transformers
            loaded = _with_adapters(loaded, config, resume)
    elif frozen is not None:
        trained = _resumed(resume, config) if resume else loaded
        loaded = dataclasses.replace(trained, model=trained.model if resume else copy.deepcopy(loaded.model))
    if not lora:
        loaded.model.requires_grad_(True)
    if config.update.checkpointing:
        loaded.model.train()  # the library checkpoints activations in training mode only
        network = loaded.model.get_base_model() if lora else loaded.model
        # Named gradient_checkpointing_enable before transformers 5.20.
        (getattr(network, "activation_checkpointing_enable", None) or network.gradient_checkpointing_enable)()
    dtype = config.update.dtype
    on_gpu = loaded.model.device.type == "cuda"
    autocast = torch.bfloat16 if dtype == "bfloat16" or (dtype == "auto" and on_gpu) else None
    scorer = TokenScorer(loaded.model)
    return Trainee(loaded, scorer, scorer, scorer if reference and lora else frozen, autocast, lora)


def _load(source: str, config: TrainConfig) -> Loaded:
    loaded = load(locate(source), device=config.device, dtype="float32")
    for parameter in loaded.model.parameters():
        if not bool(parameter.isfinite().all()):
            raise SeedBenchError(
                f"the weights of '{source}' are not all finite numbers: it is damaged, or the run that made it had"
                " diverged; train another checkpoint."
            )
        # A file's tensors lie in memory where they lie in the file, and matrix products round by that: a run that is
        # continued from a checkpoint must find its weights as aligned as one that copied or made them.
        parameter.data = parameter.data.clone()
    return loaded


def _resumed(folder: Path, config: TrainConfig) -> Loaded:
    try:
        return _load(str(folder), config)
    except SeedBenchError as error:
        raise damaged(folder, error) from error


def damaged(folder: Path, error: Exception) -> SeedBenchError:
    """The error for a run's own checkpoint that cannot be read."""
    reason = str(error) if isinstance(error, SeedBenchError) else f"{type(error).__name__}: {error}"
    return SeedBenchError(
        f"the checkpoint '{folder}' is damaged ({reason[:200].rstrip('.')}). Delete that folder and run the same"
        " command again: it continues from the one before, or starts anew."
    )


def _with_adapters(loaded: Loaded, config: TrainConfig, resume: Path | None) -> Loaded:
    import peft
    import torch

    settings, base = config.lora, loaded.model.requires_grad_(False)
    if resume is not None:
        try:
            model = peft.PeftModel.from_pretrained(base, str(resume), is_trainable=True, autocast_adapter_dtype=False)
        except Exception as error:  # damaged files fail in many ways
            raise damaged(resume, error) from error
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()  # as in `_load`
        return dataclasses.replace(loaded, model=model)
    adapters = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=list(settings.targets) or "all-linear",
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed % 2**63)  # the adapters' first half starts random
        try:
            model = peft.get_peft_model(base, adapters, autocast_adapter_dtype=False)
        except ValueError as error:
            raise UsageError(f"lora.targets: {str(error)[:200]}; name modules of this model.") from error
    return dataclasses.replace(loaded, model=model)
