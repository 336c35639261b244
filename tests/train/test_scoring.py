"""Scoring against a plain forward pass of the same model: values, gradients, restrictions, memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seedbench.errors import SeedBenchError
from seedbench_trainers.microbatch import collate, micro_batches
from seedbench_trainers.records import Sample
from seedbench_trainers.scoring import TokenScorer, forward, score

VOCABULARY = 97


def _llama(**changes: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2, "tie_word_embeddings": True,
        "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**settings | changes))


def _qwen(**_: Any) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, initializer_range=0.2, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=0, pad_token_id=0,
        )
    )  # fmt: skip


def _gemma(**_: Any) -> Any:
    """Sliding attention in a window of 4, capped attention and output logits."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    return Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, sliding_window=4, final_logit_softcapping=5.0, initializer_range=0.3,
            bos_token_id=None, eos_token_id=0, pad_token_id=0,
        )
    )  # fmt: skip


def _granite(**_: Any) -> Any:
    from transformers import GraniteConfig, GraniteForCausalLM

    torch.manual_seed(0)
    return GraniteForCausalLM(
        GraniteConfig(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, logits_scaling=4.0, initializer_range=0.3,
            bos_token_id=None, eos_token_id=0, pad_token_id=0,
        )
    )  # fmt: skip


def _lora(**_: Any) -> Any:
    import peft

    torch.manual_seed(0)
    adapters = peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    return peft.get_peft_model(_llama(), adapters)


def _lora_on_head(**_: Any) -> Any:
    import peft

    torch.manual_seed(0)
    adapters = peft.LoraConfig(r=2, target_modules=["v_proj", "lm_head"], init_lora_weights=False)
    return peft.get_peft_model(_qwen(), adapters)


MODELS: list[Callable[..., Any]] = [_llama, _qwen, _gemma, _granite, _lora, _lora_on_head]


def _samples(*, restricted: tuple[int, ...] = ()) -> list[Sample]:
    """Four samples of 7 to 19 tokens; the second answers two turns. Zeros (eos, pad) stand inside and at ends."""
    random = np.random.default_rng(3)
    samples = []
    for number, (length, spans) in enumerate(
        [(12, ((5, 12),)), (19, ((4, 9), (12, 19))), (7, ((6, 7),)), (15, ((1, 15),))]
    ):
        ids = random.integers(1, VOCABULARY, size=length).astype(np.int32)
        ids[[2, -1]] = 0
        count = sum(end - start for start, end in spans)
        sample = Sample(ids=ids, spans=spans, logprobs=random.random(count, dtype=np.float32), trajectory=number)
        if number in restricted:
            others = [random.integers(0, VOCABULARY, size=size % 6).tolist() for size in range(count)]
            sample.allowed = tuple(
                tuple(sorted({int(ids[p]), *extra})) for p, extra in zip(sample.positions, others, strict=True)
            )
        samples.append(sample)
    return samples


def _plain(model: Any, sample: Sample, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies (L,) by the model's own forward pass of this sample alone."""
    ids = torch.from_numpy(sample.ids.astype(np.int64))
    logits = model(input_ids=ids[None], attention_mask=torch.ones(1, len(ids), dtype=torch.long)).logits[0]
    where = torch.from_numpy(sample.positions)
    logits = logits[where - 1].float() / temperature  # (L, V)
    if sample.allowed:
        forbidden = torch.ones_like(logits, dtype=torch.bool)
        for row, allowed in zip(forbidden, sample.allowed, strict=True):
            row[list(allowed)] = False
        logits = logits.masked_fill(forbidden, float("-inf"))
    logprobs = logits.log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs.masked_fill(logprobs.isinf(), 0)).sum(-1)
    return logprobs[torch.arange(len(where)), ids[where]], entropy


def _close(found: torch.Tensor, expected: torch.Tensor, *, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("restricted", [(), (0, 1, 2, 3), (1, 3)], ids=["free", "restricted", "mixed"])
@pytest.mark.parametrize("build", MODELS)
def test_equals_a_plain_forward_with_its_gradients(build: Callable[..., Any], restricted: tuple[int, ...]) -> None:
    model, samples = build(), _samples(restricted=restricted)
    scorer = TokenScorer(model, chunk_bytes=4 * VOCABULARY * 5)  # chunks of 5 rows
    weights = torch.randn(4, 14, generator=torch.Generator().manual_seed(1))
    tokens = forward(scorer, collate(samples, range(4), "cpu"), temperature=0.7, entropy=True)
    assert tokens.entropy is not None
    (tokens.logprobs * weights + 0.5 * tokens.entropy * weights).sum().backward()  # type: ignore[no-untyped-call]
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = {name: p.grad.clone() for name, p in named.items() if p.grad is not None}
    model.zero_grad()
    total = torch.zeros(())
    for row, sample in enumerate(samples):
        logprobs, entropy = _plain(model, sample, 0.7)
        _close(tokens.logprobs[row, : sample.length], logprobs)
        _close(tokens.entropy[row, : sample.length], entropy)
        assert not tokens.logprobs[row, sample.length :].any()
        total = total + ((logprobs + 0.5 * entropy) * weights[row, : sample.length]).sum()
    total.backward()  # type: ignore[no-untyped-call]
    assert found.keys() == named.keys()
    for name, parameter in named.items():
        scale = max(1.0, float(parameter.grad.abs().max()))
        _close(found[name] / scale, parameter.grad / scale)


def test_a_token_that_was_the_only_one_allowed_scores_zero_without_gradient() -> None:
    model, (sample, *_) = _llama(), _samples()
    sample.allowed = tuple((int(sample.ids[p]),) for p in sample.positions)
    tokens = forward(TokenScorer(model), collate([sample], [0], "cpu"), temperature=1.0, entropy=True)
    assert tokens.entropy is not None
    assert tokens.logprobs.tolist() == tokens.entropy.tolist() == [[0.0] * 7]
    tokens.logprobs.sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_what_stands_in_the_padding_does_not_matter() -> None:
    scorer, samples = TokenScorer(_gemma()), _samples()
    batch = collate(samples, range(4), "cpu")
    base, _ = scorer(batch.ids, batch.rows, batch.positions)
    other = batch.ids.clone()
    for row, sample in enumerate(samples):
        other[row, len(sample.ids) :] = 11
    changed, _ = scorer(other, batch.rows, batch.positions)
    _close(changed, base)
    mask = torch.tensor([[position < len(sample.ids) for position in range(19)] for sample in samples]).long()
    logits = scorer.model(input_ids=batch.ids, attention_mask=mask).logits.log_softmax(-1)
    _close(base, logits[batch.rows, batch.positions - 1, batch.ids[batch.rows, batch.positions]])


def test_scores_come_in_the_order_given_whatever_the_budget() -> None:
    model, samples = _llama(), _samples(restricted=(1,))
    samples[0].signals["only here"] = np.zeros(7, dtype=np.float32)  # scoring reads no signals
    expected = [_plain(model, sample, 1.0)[0].detach().numpy() for sample in samples]
    model.train()
    for budget in (1, 24, 40, 10_000):
        scores = score(TokenScorer(model), samples, tokens=budget, temperature=1.0)
        for found, values in zip(scores, expected, strict=True):
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, values, atol=1e-5)
    assert model.training
    assert score(TokenScorer(model), [], tokens=8, temperature=1.0) == []


def test_micro_batches_respect_the_budget_and_lose_nothing() -> None:
    samples = [
        Sample(ids=np.zeros(n, dtype=np.int32), spans=((1, n),), logprobs=np.zeros(n - 1, dtype=np.float32))
        for n in (5, 30, 8, 8, 3, 12, 8)
    ]
    assert micro_batches(samples, 24) == [[1], [5, 2], [3, 6, 0], [4]]
    assert micro_batches(samples, 10_000) == [[1, 5, 2, 3, 6, 0, 4]]
    assert micro_batches(samples, 1) == [[1], [5], [2], [3], [6], [0], [4]]
    assert micro_batches([], 24) == []


def test_collate_lays_out_what_losses_read() -> None:
    samples = _samples()
    for value, sample in enumerate(samples):
        sample.signals["advantage"] = np.full(sample.length, value, dtype=np.float32)
    batch = collate(samples, [2, 1], "cpu")
    assert batch.ids.shape == (2, 19)
    assert batch.mask.tolist() == [[1.0] + [0.0] * 11, [1.0] * 12]
    assert batch.old[1].tolist() == samples[1].logprobs.tolist()
    assert batch.signals["advantage"].tolist() == [[2.0] + [0.0] * 11, [1.0] * 12]
    assert batch.positions.tolist() == [6, *range(4, 9), *range(12, 19)]
    assert batch.allowed is None
    assert batch.spread(torch.arange(13.0)).tolist() == [[0.0] * 12, [float(n) for n in range(1, 13)]]


def test_faults_of_methods_and_policies_are_told() -> None:
    samples = _samples(restricted=(0,))
    samples[0].signals["ref"] = np.zeros(3, dtype=np.float32)
    with pytest.raises(ValueError, match="signal 'ref' needs 7 values on a sample that has 3 values"):
        collate(samples, [0], "cpu")
    with pytest.raises(ValueError, match="signal 'ref' needs 12 values on a sample that has none"):
        collate(samples, [1, 0], "cpu")
    samples[0].allowed = ((96, 97),) * 7
    with pytest.raises(ValueError, match="not among the ids that were allowed"):
        collate(samples, [0], "cpu", signals=False)


def _shift(_: Any, __: Any, output: Any) -> Any:
    output.logits = output.logits + torch.arange(VOCABULARY)
    return output


def test_unknown_changes_to_logits_are_refused() -> None:
    model = _llama()
    model.register_forward_hook(_shift)
    with pytest.raises(SeedBenchError, match="LlamaForCausalLM changes its logits behind the output layer"):
        TokenScorer(model)
    with pytest.raises(SeedBenchError, match="LlamaModel has no output layer over a decoder"):
        TokenScorer(_llama().model)


class _Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the most elements of a tensor that any operation returned."""

    elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **kwargs or {})
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.elements = max(self.elements, leaf.numel())
        return result


@pytest.mark.parametrize("restricted", [False, True])
def test_no_tensor_of_all_tokens_times_the_vocabulary_is_ever_made(restricted: bool) -> None:
    vocabulary, length, rows = 4096, 96, 8
    model = _llama(vocab_size=vocabulary, hidden_size=16, intermediate_size=16, num_hidden_layers=1)
    random = np.random.default_rng(0)
    samples = [
        Sample(
            ids=random.integers(0, vocabulary, size=length).astype(np.int32),
            spans=((length // 2, length),), logprobs=np.zeros(length // 2, dtype=np.float32),
        )
        for _ in range(rows)
    ]  # fmt: skip
    if restricted:
        for sample in samples:
            sample.allowed = tuple(tuple(sorted({int(sample.ids[p]), 1, 2, 3})) for p in sample.positions)
    scorer = TokenScorer(model, chunk_bytes=4 * 32 * vocabulary)
    kept = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel() if tensor.shape[-1:] == (vocabulary,) else 0
        return tensor

    with _Largest() as seen, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):  # type: ignore[no-untyped-call]
        tokens = forward(scorer, collate(samples, range(rows), "cpu"), temperature=1.0, entropy=True)
        tokens.logprobs.sum().backward()  # type: ignore[no-untyped-call]
    # The largest allowed: a chunk of 32 rows, the embedding and its gradient.
    assert seen.elements <= max(32 * vocabulary, 16 * vocabulary)
    assert seen.elements < rows * (length // 2) * vocabulary / 10
    assert kept == 0  # and no chunk's logits wait for the backward pass


def test_under_autocast_scores_are_float32_and_close() -> None:
    model, samples = _llama(), _samples(restricted=(1, 3))
    scorer = TokenScorer(model, chunk_bytes=4 * VOCABULARY * 5)
    batch = collate(samples, range(4), "cpu")
    exact = forward(scorer, batch, temperature=1.0, entropy=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = forward(scorer, batch, temperature=1.0, entropy=True)
    assert rough.entropy is not None
    assert rough.logprobs.dtype == rough.entropy.dtype == torch.float32
    rough.logprobs.sum().backward()  # type: ignore[no-untyped-call]
    assert 0 < (rough.logprobs - exact.logprobs).abs().max() < 0.3
