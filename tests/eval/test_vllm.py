"""The policy that runs vLLM in this process, against the one that runs transformers, on a tiny random float32 model.

Needs vLLM, or its build for CPUs where there is no GPU (docs/vllm.md). Starting an engine takes most of the time, so
that one engine serves most of these tests.
"""

import asyncio
import dataclasses
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed (docs/vllm.md)")

import torch

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import ContextOverflow, Policy, PolicyFault, Request, Response, Sampling
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import load
from seedbench.policies.sampling import RowSampler
from seedbench.policies.transformers_ import TransformersPolicy
from seedbench.policies.vllm_ import VllmPolicy
from seedbench.policies.vllm_engine import VllmEngine
from seedbench.policies.vllm_setup import EngineSettings
from seedbench.types import Message
from seedbench_trainers.engines.colocated import Colocated
from tests.eval.asking import GREEDY, SAMPLED, ask, request
from tests.tiny_model import build
from tests.vllm_server import PARITY, expected_logprobs

pytestmark = pytest.mark.vllm
LONG = "You open the fridge 1. The fridge 1 is open. In it, you see a apple 3. " * 12  # several blocks of cached keys


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Heads of 32: vLLM's attention on CPUs takes no smaller ones.
    return build(tmp_path_factory.mktemp("models") / "tiny", heads=2)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("models") / "other", seed=1, heads=2)


@pytest.fixture(scope="module")
def colocated(folder: Path) -> Iterator[Colocated]:
    started = Colocated(str(folder), EngineSettings())
    yield started
    started.close()


@pytest.fixture
def engine(colocated: Colocated) -> VllmEngine:
    return colocated.engine


def by_vllm(engine: VllmEngine, *requests: Request) -> list[Any]:
    return ask(VllmPolicy.serving(engine, name="tiny", identity={}, record=True), *requests)


def by_transformers(folder: Path, *requests: Request) -> list[Any]:
    return ask(TransformersPolicy(str(folder), record=True), *requests)


def numbered(sampling: Sampling, count: int = 12) -> list[Request]:
    return [request(sampling, number) for number in range(count)]


# ---- equal to the transformers policy ------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampling", [GREEDY, dataclasses.replace(GREEDY, stop=("a", "the")), dataclasses.replace(GREEDY, max_new_tokens=1)]
)
def test_greedy_answers_are_those_of_the_transformers_policy(
    engine: VllmEngine, folder: Path, sampling: Sampling
) -> None:
    answers = by_vllm(engine, *numbered(sampling))
    assert answers == by_transformers(folder, *numbered(sampling))  # text, tokens, counts, reasons
    assert len({answer.text for answer in answers}) > 3


def test_a_conversation_goes_on_with_the_tokens_that_were_drawn(engine: VllmEngine, folder: Path) -> None:
    first = request(GREEDY, 1)

    def second(answer: Response) -> Request:
        turn = (*first.messages, Message("assistant", answer.text), Message("user", "Nothing happens."))
        return dataclasses.replace(first, turn=1, messages=turn)

    async def talk(policy: Policy) -> list[Response]:
        await policy.open()
        try:
            one = await policy.act(first)
            return [one, await policy.act(second(one))]
        finally:
            await policy.close()

    said = asyncio.run(talk(VllmPolicy.serving(engine, name="tiny", identity={}, record=True)))
    assert said == asyncio.run(talk(TransformersPolicy(str(folder), record=True)))
    assert said[0].sampled is not None
    assert said[1].sampled is not None
    begun = (*said[0].sampled.prompt, *said[0].sampled.ids)
    assert said[1].sampled.prompt[: len(begun)] == begun


@pytest.mark.parametrize("sampling", [SAMPLED, Sampling(0.4, 30), Sampling(1.3, 30, top_p=0.8, top_k=50)])
def test_recorded_log_probabilities_are_those_of_the_distribution_drawn_from(
    engine: VllmEngine, folder: Path, sampling: Sampling
) -> None:
    model = load(locate(str(folder)), device="cpu", dtype="float32").model
    answers = by_vllm(engine, *numbered(sampling, 6))
    for answer in answers:
        said = answer.sampled
        with torch.inference_mode():
            logits = model(torch.tensor([[*said.prompt, *said.ids]])).logits[0, len(said.prompt) - 1 : -1]
        scores = RowSampler(sampling, [0]).cut(logits.float())
        expected = scores.log_softmax(-1).gather(1, torch.tensor(said.ids)[:, None])[:, 0]
        assert torch.allclose(torch.tensor(said.logprobs), expected, atol=PARITY)
    assert len({answer.text for answer in answers}) == 6


def test_draws_have_the_frequencies_of_the_distribution(engine: VllmEngine, folder: Path) -> None:
    sampling = Sampling(1.0, 1, top_k=4)
    asked = [dataclasses.replace(request(sampling, 3), seed=seed) for seed in range(600)]
    found = Counter(answer.sampled.ids[0] for answer in by_vllm(engine, *asked))
    model = load(locate(str(folder)), device="cpu", dtype="float32").model
    prompt = by_vllm(engine, asked[0])[0].sampled.prompt
    with torch.inference_mode():
        scores = RowSampler(sampling, [0]).cut(model(torch.tensor([prompt])).logits[:, -1].float())
    expected = scores.softmax(-1)[0]
    assert set(found) <= {int(token) for token in expected.nonzero()}
    for token in expected.nonzero()[:, 0].tolist():
        p = float(expected[token])
        assert abs(found[token] / 600 - p) < 4.5 * (p * (1 - p) / 600) ** 0.5 + 1e-9


# ---- what an answer depends on -------------------------------------------------------------------------


def test_order_and_company_do_not_change_a_sampled_answer(engine: VllmEngine) -> None:
    requests = numbered(SAMPLED, 16)
    together = [answer.text for answer in by_vllm(engine, *requests)]
    backwards = [answer.text for answer in by_vllm(engine, *reversed(requests))][::-1]
    alone = [by_vllm(engine, one)[0].text for one in requests[:4]]
    assert together == backwards
    assert together[:4] == alone
    other_seed = dataclasses.replace(requests[0], seed=1)
    assert by_vllm(engine, other_seed)[0].text != together[0]


def test_many_long_prompts_at_once_are_answered_under_their_seeds(engine: VllmEngine) -> None:
    # More tokens than one pass takes: a prompt that vLLM splits must not lose its seed.
    requests = [request(Sampling(1.0, 4), number, f"{number}. {LONG * 6}") for number in range(12)]
    answers = by_vllm(engine, *requests)
    assert all(answer.usage.prompt_tokens > 1000 for answer in answers)
    assert [answer.text for answer in answers] == [answer.text for answer in by_vllm(engine, *requests[::-1])][::-1]


def test_a_prompt_that_is_too_long_is_an_overflow_and_nothing_else(engine: VllmEngine) -> None:
    fits, protocol, model = (
        request(GREEDY, 1),
        request(dataclasses.replace(GREEDY, max_prompt_tokens=10), 1),
        request(dataclasses.replace(GREEDY, max_new_tokens=4096), 1),
    )
    answers = by_vllm(engine, fits, protocol, model)
    assert isinstance(answers[0], Response)
    assert isinstance(answers[1], ContextOverflow)
    assert "the protocol allows 10" in str(answers[1])
    assert isinstance(answers[2], ContextOverflow)
    assert "the model's context of 4096" in str(answers[2])


def test_what_does_not_fit_the_engines_memory_is_a_fault_not_the_models(engine: VllmEngine) -> None:
    kept, engine.context = engine.context, 50
    try:
        (answer,) = by_vllm(engine, request(GREEDY, 5))
    finally:
        engine.context = kept
    assert kept == 4096
    assert isinstance(answer, PolicyFault)
    assert "exceed the 50 for which vLLM has memory" in str(answer)


def test_a_protocol_that_restricts_decoding_is_refused(engine: VllmEngine) -> None:
    (answer,) = by_vllm(engine, request(dataclasses.replace(GREEDY, decode="admissible")))
    assert isinstance(answer, UsageError)
    assert "without 'vllm:'" in str(answer)


# ---- new weights ---------------------------------------------------------------------------------------


def test_after_an_update_log_probabilities_and_answers_are_those_of_the_new_weights(
    engine: VllmEngine, folder: Path, other: Path
) -> None:
    asked = [request(GREEDY, number, LONG + str(number)) for number in range(3)]
    before = by_vllm(engine, *asked)  # fills the cache of prefixes with keys of the old weights
    ids = [*before[0].sampled.prompt, *before[0].sampled.ids]
    try:
        assert engine.update_weights(other).model == other
        assert engine.logprobs(ids) == pytest.approx(expected_logprobs(other, ids), abs=PARITY)
        after = by_vllm(engine, *asked)
        assert after == by_transformers(other, *asked)
        assert [answer.text for answer in after] != [answer.text for answer in before]
    finally:
        engine.update_weights(folder)
    assert engine.logprobs(ids) == pytest.approx(expected_logprobs(folder, ids), abs=PARITY)
    assert by_vllm(engine, *asked) == before


def test_a_training_run_alternates_between_roll_outs_and_new_weights(
    colocated: Colocated, folder: Path, other: Path
) -> None:
    asked = numbered(SAMPLED, 4)
    heard = []
    for weights in (other, folder):  # each iteration asks from an event loop of its own
        colocated.release()
        colocated.update(weights)
        policy = colocated.policy(name="grpo", identity={"kind": "training"}, record=True)
        answers = ask(policy, *asked)
        heard.append(answers)
        said = answers[0].sampled
        drawn = colocated.logprobs([*said.prompt, *said.ids])[len(said.prompt) - 1 :]
        assert said.logprobs == pytest.approx(drawn, abs=PARITY)
        assert policy.identity() == {"kind": "training", "name": "grpo"}
    assert [answer.text for answer in heard[0]] != [answer.text for answer in heard[1]]


def test_weights_that_do_not_fit_are_refused_and_the_old_ones_stay(
    engine: VllmEngine, folder: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    tensors = load_file(copy / "model.safetensors")
    lost = tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    asked = numbered(GREEDY, 3)
    before = by_vllm(engine, *asked)
    with pytest.raises(UsageError, match=r"1 differ in name or shape, model\.layers\.1\.mlp\.up_proj\.weight"):
        engine.update_weights(copy)
    save_file({**tensors, "model.layers.1.mlp.up_proj.weight": lost[:64]}, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=r"1 differ in name or shape"):
        engine.update_weights(copy)
    (copy / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(SeedBenchError, match="cannot be read"):
        engine.update_weights(copy)
    with pytest.raises(UsageError, match="no such folder"):
        engine.update_weights(tmp_path / "nowhere")
    assert by_vllm(engine, *asked) == before


# ---- what it says of itself ----------------------------------------------------------------------------


def test_a_lora_folder_answers_as_its_merged_model_and_takes_new_adapters(folder: Path, tmp_path: Path) -> None:
    import vllm

    adapters = [lora(folder, tmp_path / f"lora-{seed}", seed) for seed in (0, 1)]
    policy = VllmPolicy(str(adapters[0]), record=True)
    asked = [*numbered(GREEDY, 6), request(GREEDY, 7, LONG)]

    async def run() -> tuple[list[list[Any]], list[dict[str, Any]]]:
        await policy.open()
        try:
            first = await asyncio.gather(*(policy.act(one) for one in asked))
            identities = [policy.identity()]
            policy.update_weights(adapters[1])
            second = await asyncio.gather(*(policy.act(one) for one in asked))
            return [first, second], [*identities, policy.identity()]
        finally:
            await policy.close()

    answers, identities = asyncio.run(run())
    assert answers[0] == by_transformers(adapters[0], *asked)
    assert answers[1] == by_transformers(adapters[1], *asked)
    assert [a.text for a in answers[0]] != [a.text for a in answers[1]]
    # What a transformers policy says of the same folders, but for kind and engine.
    for folder_, identity in zip(adapters, identities, strict=True):
        plain = TransformersPolicy(str(folder_))
        expected = {**identity_after_opening(plain), "kind": "vllm", "vllm": vllm.__version__.partition("+")[0]}
        assert identity == expected
    assert policy.gpus == (0 if not torch.cuda.is_available() else 1)


def identity_after_opening(policy: Policy) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        await policy.open()
        try:
            return policy.identity()
        finally:
            await policy.close()

    return asyncio.run(run())


def lora(base: Path, folder: Path, seed: int) -> Path:
    """A LoRA folder of rank 4 with weights large enough to change answers."""
    import peft
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"])
        adapted = peft.get_peft_model(model, config)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.2)
    adapted.save_pretrained(folder)
    return folder


def test_adapters_that_vllm_would_apply_otherwise_are_refused(folder: Path, tmp_path: Path) -> None:
    import json

    adapter = lora(folder, tmp_path / "dora", 0)
    config = json.loads((adapter / "adapter_config.json").read_text())
    for change, words in (({"use_dora": True}, "uses use_dora"), ({"r": 4096}, "has rank 4096")):
        (adapter / "adapter_config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(UsageError, match=words):
            asyncio.run(VllmPolicy(str(adapter)).open())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (EngineSettings(dtype="int8"), "unknown dtype 'int8'"),
        (EngineSettings(gpus=0), "at least 1 GPU"),
        (EngineSettings(memory=1.5), r"share of memory in \(0, 1\]"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(folder: Path, settings: EngineSettings, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        VllmPolicy(str(folder), settings=settings)


def test_another_device_than_vllm_is_built_for_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="leave --device out"):
        asyncio.run(VllmPolicy(str(folder), settings=EngineSettings(device="tpu")).open())


def test_a_model_that_vllm_cannot_start_is_refused_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    config = (copy / "config.json").read_text().replace("LlamaForCausalLM", "LamaForCausalLM")
    (copy / "config.json").write_text(config.replace('"model_type": "llama"', '"model_type": "gpt_neox_japanese"'))
    with pytest.raises(SeedBenchError, match=r"vLLM cannot serve .*its log above says why"):
        asyncio.run(VllmPolicy(str(copy)).open())
