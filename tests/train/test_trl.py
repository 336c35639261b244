"""GRPO's advantages, log-probabilities and loss against TRL's own trainer on the same tensors.

TRL is not a dependency: `pip install --no-deps trl datasets pyarrow dill multiprocess xxhash pandas` makes this run.
Where definitions differ the settings are brought together: TRL adds 1e-4 to the standard deviation, names its averages
grpo (sequence) and bnpo (token), its `delta` is the dual clip, and it multiplies the KL term with the importance ratio
unless told otherwise.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seedbench_trainers.advantages import group_relative
from seedbench_trainers.losses import clipped_ratio, kl, masked_mean, sequence_mean
from seedbench_trainers.microbatch import collate
from seedbench_trainers.records import Sample
from seedbench_trainers.scoring import TokenScorer, forward
from tests.tiny_model import build

pytest.importorskip("trl", reason="TRL is not installed")
GROUP, PROMPTS = 4, ["You are in the middle of a room.", "Your task is to: put a clean mug in coffeemachine."]


def _rewards(prompts: Any, completions: Any, **_: Any) -> list[float]:
    """Unequal in the first group, equal in the second."""
    return [1.0, 0.0, 2.0, 0.5, 3.0, 3.0, 3.0, 3.0]


def _trainer(folder: Path, **settings: Any) -> Any:
    import pyarrow as pa
    from datasets import Dataset  # type: ignore[import-not-found]
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

    path = str(build(folder / "tiny"))
    arguments = GRPOConfig(
        output_dir=str(folder / "out"), report_to=[], use_cpu=True, bf16=False, seed=1,
        per_device_train_batch_size=len(PROMPTS) * GROUP, num_generations=GROUP, max_completion_length=12,
        beta=0.04, epsilon=0.1, epsilon_high=0.3, delta=3.0, disable_dropout=True, gradient_checkpointing=False,
        use_bias_correction_kl=False,
        **settings,
    )  # fmt: skip
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return GRPOTrainer(
        model=model, reward_funcs=_rewards, args=arguments, processing_class=AutoTokenizer.from_pretrained(path),
        # With a fingerprint of its own: some pairs of dill and pyarrow cannot make one.
        train_dataset=Dataset(pa.table({"prompt": PROMPTS}), fingerprint="prompts"),
    )  # fmt: skip


def _play(trainer: Any) -> dict[str, Any]:
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    inputs = [{"prompt": prompt} for prompt in PROMPTS for _ in range(GROUP)]
    batch: dict[str, Any] = trainer._generate_and_score_completions(inputs)
    for row in range(len(inputs)):  # random weights seldom end early
        batch["completion_mask"][row, 12 - row :] = 0
    random = torch.Generator().manual_seed(0)
    shape = batch["completion_ids"].shape
    # Far from the policy, so that every branch of the clip and the KL term is taken.
    with torch.no_grad():
        logprobs = _by_trl(trainer, batch)
    batch["old_per_token_logps"] = logprobs + 0.8 * torch.randn(shape, generator=random)
    batch["ref_per_token_logps"] = logprobs + 0.5 * torch.randn(shape, generator=random)
    return batch


def _by_trl(trainer: Any, batch: dict[str, Any]) -> torch.Tensor:
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    logprobs: torch.Tensor = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, mask, batch["completion_ids"].shape[1]
    )[0]
    return logprobs


def _samples(batch: dict[str, Any]) -> list[Sample]:
    samples = []
    for row in range(len(batch["completion_ids"])):
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
        kept = batch["completion_mask"][row].bool()
        ids = torch.cat([prompt, batch["completion_ids"][row][kept]]).numpy().astype(np.int32)
        sample = Sample(
            ids=ids, spans=((len(prompt), len(ids)),), logprobs=batch["old_per_token_logps"][row][kept].numpy()
        )
        sample.signals["ref"] = batch["ref_per_token_logps"][row][kept].numpy()
        sample.signals["advantage"] = sample.spread([float(batch["advantages"][row])])
        samples.append(sample)
    return samples


@pytest.mark.parametrize(("loss_type", "average"), [("grpo", sequence_mean), ("bnpo", masked_mean)])
def test_loss_and_gradients_equal_trl(tmp_path: Path, loss_type: str, average: Any) -> None:
    trainer = _trainer(tmp_path, loss_type=loss_type)
    batch = _play(trainer)
    theirs = trainer._compute_loss(trainer.model, batch)
    theirs.backward()
    parameters = dict(trainer.model.named_parameters())
    expected = {name: parameter.grad.clone() for name, parameter in parameters.items()}
    trainer.model.zero_grad()
    samples = _samples(batch)
    tokens = forward(TokenScorer(trainer.model), collate(samples, range(len(samples)), "cpu"), temperature=1.0)
    surrogate = clipped_ratio(tokens.logprobs, tokens.old, tokens.signals["advantage"], 0.1, 0.3, dual=3.0)
    assert 0 < surrogate.clipped.sum() < tokens.mask.sum()
    ours = average(surrogate.values + 0.04 * kl(tokens.logprobs, tokens.signals["ref"], "k3"), tokens.mask)
    ours.backward()
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    for name, parameter in parameters.items():
        torch.testing.assert_close(parameter.grad, expected[name], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("scale", ["group", "none"])
def test_advantages_equal_trl(tmp_path: Path, scale: str) -> None:
    batch = _play(_trainer(tmp_path, scale_rewards=scale))
    rewards = [np.asarray([value]) for value in _rewards(None, None)]
    ours = [
        value[0]
        for start in (0, GROUP)
        for value in group_relative(rewards[start : start + GROUP], std=scale == "group", eps=1e-4)
    ]
    np.testing.assert_allclose(ours, batch["advantages"].numpy(), atol=1e-6)
