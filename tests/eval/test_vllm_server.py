"""`vllm serve` behind the OpenAI policy, for evaluation and for training, on a tiny random float32 model."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed (docs/vllm.md)")

import torch

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import ContextOverflow, Response, Sampling
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import load
from seedbench.policies.openai import OpenAIPolicy
from seedbench.policies.sampling import RowSampler
from seedbench.policies.transformers_ import TransformersPolicy
from seedbench_trainers.engines.served import Served
from tests.eval.asking import GREEDY, ask, request
from tests.tiny_model import build
from tests.vllm_server import PARITY, expected_logprobs, serving

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Heads of 32: vLLM's attention on CPUs takes no smaller ones.
    return build(tmp_path_factory.mktemp("models") / "tiny", heads=2)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with serving(folder, "tiny", folder.parent / "server.log") as address:
        yield address


def whole(answer: Response) -> Response:
    """The answer without a last character that is not complete: the server leaves its bytes out of the text."""
    return dataclasses.replace(answer, text=answer.text.rstrip("\ufffd"))


@pytest.mark.parametrize("sampling", [GREEDY, dataclasses.replace(GREEDY, stop=("a", "the"))])
def test_greedy_answers_are_those_of_the_transformers_policy(server: str, folder: Path, sampling: Sampling) -> None:
    requests = [request(sampling, number) for number in range(12)]
    answers = ask(OpenAIPolicy(server, record=True), *requests)
    assert [whole(answer) for answer in answers] == [
        whole(answer) for answer in ask(TransformersPolicy(str(folder), record=True), *requests)
    ]


def test_recorded_log_probabilities_are_those_of_the_distribution_drawn_from(server: str, folder: Path) -> None:
    sampling = Sampling(0.6, 30, top_k=40)
    model = load(locate(str(folder)), device="cpu", dtype="float32").model
    answers = ask(OpenAIPolicy(server, record=True), *(request(sampling, number) for number in range(4)))
    for answer in answers:
        said = answer.sampled
        with torch.inference_mode():
            logits = model(torch.tensor([[*said.prompt, *said.ids]])).logits[0, len(said.prompt) - 1 : -1]
        scores = RowSampler(sampling, [0]).cut(logits.float())
        expected = scores.log_softmax(-1).gather(1, torch.tensor(said.ids)[:, None])[:, 0]
        assert torch.allclose(torch.tensor(said.logprobs), expected, atol=PARITY)


def test_what_is_too_long_overflows_and_what_is_unknown_is_named(server: str) -> None:
    long = dataclasses.replace(GREEDY, max_new_tokens=4090)
    (answer,) = ask(OpenAIPolicy(server), request(long, 1))
    assert isinstance(answer, ContextOverflow)
    with pytest.raises(UsageError, match=r"does not serve the model 'tony' \(did you mean 'tiny'\?\): it serves tiny"):
        ask(OpenAIPolicy(f"{server}#tony"), request(GREEDY))


def test_after_an_update_log_probabilities_and_answers_are_those_of_the_new_weights(
    server: str, folder: Path, tmp_path: Path
) -> None:
    other = build(tmp_path / "other", seed=1, heads=2)
    engine = Served(server, str(folder))
    asked = [request(GREEDY, number, "You open the fridge 1. " * 40 + str(number)) for number in range(3)]
    before = ask(engine.policy(name="x", identity={}, record=True), *asked)
    ids = [*before[0].sampled.prompt, *before[0].sampled.ids]
    try:
        engine.update(other)
        assert engine.logprobs(ids) == pytest.approx(expected_logprobs(other, ids), abs=PARITY)
        after = ask(engine.policy(name="x", identity={}, record=True), *asked)
        expected = ask(TransformersPolicy(str(other), record=True), *asked)
        assert [whole(answer) for answer in after] == [whole(answer) for answer in expected]
        assert [answer.text for answer in after] != [answer.text for answer in before]
    finally:
        engine.update(folder)
    assert engine.logprobs(ids) == pytest.approx(expected_logprobs(folder, ids), abs=PARITY)


def test_weights_that_do_not_fit_never_reach_the_server(server: str, folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(SeedBenchError, match="cannot be read"):
        Served(server, str(folder)).update(copy)
    with pytest.raises(SeedBenchError, match=r"did not take the new weights \(ConnectError\)"):
        Served("http://127.0.0.1:9/v1", str(folder)).update(folder)
