"""The policy that runs a checkpoint on this machine, on a tiny random float32 model."""

import asyncio
import dataclasses
import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import ContextOverflow, PolicyFault, Response, Sampling
from seedbench.policies.generation import Row
from seedbench.policies.sampling import cut_at_stop
from seedbench.policies.transformers_ import TransformersPolicy
from seedbench.types import Message
from tests.eval.asking import GREEDY, SAMPLED, ask, loaded_parts, opened, request
from tests.tiny_model import TEMPLATE, build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


# ---- what an answer is ---------------------------------------------------------------------------------


def test_greedy_equals_a_plain_argmax_loop_without_cache_or_padding(folder: Path) -> None:
    model, tokenizer = loaded_parts(folder)
    one = request(GREEDY, 1)
    messages = [dataclasses.asdict(message) for message in one.messages]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    prompt_tokens = len(ids)
    with torch.inference_mode():
        while len(ids) < prompt_tokens + 40 and ids[-1] != tokenizer.eos_token_id:
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    answers = ask(TransformersPolicy(str(folder)), *(request(GREEDY, number) for number in range(5)))
    assert answers[1].text == tokenizer.decode(ids[prompt_tokens:], skip_special_tokens=True)
    assert answers[1].usage.prompt_tokens == prompt_tokens
    assert answers[1].usage.generated_tokens == len(ids) - prompt_tokens


def test_an_answer_that_grows_goes_on_where_it_ended(folder: Path) -> None:
    whole = ask(TransformersPolicy(str(folder)), request(GREEDY, 1))[0]
    half = whole.text[: len(whole.text) // 2]
    start = request(GREEDY, 1)
    grown = dataclasses.replace(start, messages=(*start.messages, Message("assistant", half)))
    tokenizer = loaded_parts(folder)[1]
    messages = [dataclasses.asdict(message) for message in start.messages]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) + half
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    answer = ask(TransformersPolicy(str(folder)), grown)[0]
    assert answer.usage.prompt_tokens == len(ids) > whole.usage.prompt_tokens
    model = loaded_parts(folder)[0]
    with torch.inference_mode():
        first = int(model(torch.tensor([ids])).logits[0, -1].argmax())
    assert answer.text.startswith(tokenizer.decode([first], skip_special_tokens=True))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, Sampling(1.3, 40, top_p=0.8, top_k=50)])
def test_batch_size_order_and_company_do_not_change_an_answer(folder: Path, sampling: Sampling) -> None:
    requests = [request(sampling, number) for number in range(32)]
    shuffled = random.Random(1).sample(range(32), 32)
    one, eight, all_at_once = (ask(TransformersPolicy(str(folder), batch_size=size), *requests) for size in (1, 8, 32))
    other_order = ask(TransformersPolicy(str(folder), batch_size=8), *(requests[number] for number in shuffled))
    assert all(isinstance(answer, Response) for answer in one)
    assert len({answer.text for answer in one}) > 25
    assert one == eight == all_at_once == [other_order[shuffled.index(number)] for number in range(32)]
    if sampling == SAMPLED:
        # Rows that ended before others are what padding and masks could get wrong.
        assert {answer.finish_reason for answer in one} == {"stop", "length"}


def test_the_seed_decides_a_sampled_answer(folder: Path) -> None:
    same = [request(SAMPLED, 3), request(SAMPLED, 3)]
    other = dataclasses.replace(same[0], seed=same[0].seed + 1)
    first, second, third = ask(TransformersPolicy(str(folder)), *same, other)
    assert first == second
    assert first.text != third.text


def test_different_samplings_may_wait_together(folder: Path) -> None:
    mixed = [request(sampling, number) for number in range(4) for sampling in (GREEDY, SAMPLED)]
    together = ask(TransformersPolicy(str(folder)), *mixed)
    assert together == [ask(TransformersPolicy(str(folder)), one)[0] for one in mixed]


def test_the_end_of_sequence_is_counted_and_not_shown(folder: Path) -> None:
    answers = ask(TransformersPolicy(str(folder)), *(request(SAMPLED, number) for number in range(32)))
    ended = [answer for answer in answers if answer.finish_reason == "stop"]
    assert all("<|im_end|>" not in answer.text and answer.usage.generated_tokens < 40 for answer in ended)
    assert {answer.usage.generated_tokens for answer in answers if answer not in ended} == {40}


def test_a_stop_string_stays_and_what_follows_is_cut(folder: Path) -> None:
    _, tokenizer = loaded_parts(folder)
    plain = ask(TransformersPolicy(str(folder)), *(request(GREEDY, number) for number in range(8)))
    stop = plain[0].text[10:14]
    sampling = dataclasses.replace(GREEDY, stop=("never there", stop))
    stopped = ask(TransformersPolicy(str(folder)), *(request(sampling, number) for number in range(8)))
    for before, after in zip(plain, stopped, strict=True):
        expected, found = cut_at_stop(before.text, [stop])
        assert after.text == expected
        assert after.finish_reason == ("stop" if found else before.finish_reason)
        assert not found or after.usage.generated_tokens < before.usage.generated_tokens
    assert stopped[0].text.endswith(stop)
    assert any(not answer.text.endswith(stop) for answer in stopped)
    # The first answer's count is the shortest run of its tokens that spells the stop string.
    model, _ = loaded_parts(folder)
    messages = [dataclasses.asdict(message) for message in request(GREEDY, 0).messages]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")
    tokens = model.generate(**prompt, max_new_tokens=40, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    counts = [n for n in range(1, 41) if stop in tokenizer.decode(tokens[:n])]
    assert stopped[0].usage.generated_tokens == counts[0]


def test_the_checkpoints_own_sampling_defaults_are_ignored(folder: Path, copy: Path) -> None:
    path = copy / "generation_config.json"
    defaults = {"do_sample": True, "temperature": 5.0, "top_k": 3, "repetition_penalty": 9.0, "min_length": 99}
    path.write_text(json.dumps({**json.loads(path.read_text()), **defaults}))
    requests = [request(sampling, number) for number in range(4) for sampling in (GREEDY, SAMPLED)]
    assert ask(TransformersPolicy(str(copy)), *requests) == ask(TransformersPolicy(str(folder)), *requests)


def test_the_tokenizers_end_token_counts_where_the_generation_config_names_another(folder: Path, copy: Path) -> None:
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))
    assert opened(TransformersPolicy(str(copy)))["eos_token_ids"] == [0, 1]
    assert opened(TransformersPolicy(str(folder)))["eos_token_ids"] == [1]


# ---- limits and faults ---------------------------------------------------------------------------------


def test_a_prompt_over_the_protocols_or_the_models_limit_overflows(folder: Path) -> None:
    tokens = ask(TransformersPolicy(str(folder)), request())[0].usage.prompt_tokens
    fits, too_long, too_much, beside = ask(
        TransformersPolicy(str(folder)),
        request(dataclasses.replace(GREEDY, max_prompt_tokens=tokens)),
        request(dataclasses.replace(GREEDY, max_prompt_tokens=tokens - 1)),
        request(dataclasses.replace(GREEDY, max_new_tokens=4097 - tokens)),
        request(dataclasses.replace(GREEDY, max_prompt_tokens=tokens), 0),
    )
    assert isinstance(fits, Response)
    assert fits == beside
    assert isinstance(too_long, ContextOverflow)
    assert str(too_long) == f"the prompt has {tokens} tokens, the protocol allows {tokens - 1}."
    assert isinstance(too_much, ContextOverflow)
    assert f"{tokens} prompt tokens and {4097 - tokens} new ones" in str(too_much)
    assert "4096" in str(too_much)


def ask_broken(policy: TransformersPolicy, broken: Callable[..., Any], count: int) -> list[Any]:
    """As `ask`, with `broken(original, rows, sampling)` in place of the generator's generate."""

    async def run() -> list[Any]:
        await policy.open()
        generator: Any = policy._ready().generator
        original = generator.generate
        generator.generate = lambda rows, sampling: broken(original, rows, sampling)
        requests = (request(SAMPLED, number) for number in range(count))
        try:
            return await asyncio.gather(*(policy.act(one) for one in requests), return_exceptions=True)
        finally:
            await policy.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory: 9 bytes")]
)
def test_out_of_memory_halves_the_batch_and_keeps_the_answers(folder: Path, error: Exception) -> None:
    sizes: list[int] = []

    def at_most_two(original: Callable[..., Any], rows: list[Row], sampling: Sampling) -> Any:
        sizes.append(len(rows))
        if len(rows) > 2:
            raise error
        return original(rows, sampling)

    policy = TransformersPolicy(str(folder), batch_size=8)
    answers = ask_broken(policy, at_most_two, 12)
    assert answers == ask(TransformersPolicy(str(folder)), *(request(SAMPLED, n) for n in range(12)))
    assert sizes == [8, 4, 2, 2, 4, 2, 2, 2, 2]


def test_out_of_memory_for_one_prompt_is_its_fault_alone(folder: Path) -> None:
    def long_ones(original: Callable[..., Any], rows: list[Row], sampling: Sampling) -> Any:
        if max(len(row.prompt) for row in rows) > 50:
            raise MemoryError
        return original(rows, sampling)

    answers = ask_broken(TransformersPolicy(str(folder), batch_size=4), long_ones, 3)
    assert isinstance(answers[0], Response)
    assert isinstance(answers[1], PolicyFault)
    assert "single prompt" in str(answers[1])


def test_an_engine_error_is_a_fault_of_its_batch(folder: Path) -> None:
    def broken(original: Callable[..., Any], rows: list[Row], sampling: Sampling) -> Any:
        raise ValueError("no \x1b[1msuch kernel")

    answers = ask_broken(TransformersPolicy(str(folder)), broken, 2)
    assert [str(answer) for answer in answers] == ["generation failed (ValueError: no <1b>[1msuch kernel)."] * 2


def test_a_cancelled_request_does_not_disturb_the_others(folder: Path) -> None:
    async def run() -> list[Any]:
        policy = TransformersPolicy(str(folder), batch_size=2)
        await policy.open()
        tasks = [asyncio.create_task(policy.act(request(SAMPLED, number))) for number in range(6)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[4].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        await policy.close()
        return answers

    answers = asyncio.run(run())
    calm = ask(TransformersPolicy(str(folder)), *(request(SAMPLED, number) for number in range(6)))
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [n in (1, 4) for n in range(6)]
    assert [answers[n] for n in (0, 2, 3, 5)] == [calm[n] for n in (0, 2, 3, 5)]


def test_closing_ends_a_batch_that_is_running(folder: Path) -> None:
    long = request(Sampling(temperature=0.0, max_new_tokens=2000))

    async def run() -> list[Any]:
        policy = TransformersPolicy(str(folder))
        await policy.open()
        steps: list[int] = []
        generator = policy._ready().generator
        loaded = generator._loaded
        # Without an end token nothing but closing ends the batch early.
        generator._loaded = dataclasses.replace(loaded, eos=())
        forward = loaded.model.forward
        began = asyncio.Event()
        loop = asyncio.get_running_loop()

        def counted(*args: Any, **kwargs: Any) -> Any:
            steps.append(1)
            loop.call_soon_threadsafe(began.set)
            return forward(*args, **kwargs)

        loaded.model.forward = counted
        task = asyncio.create_task(policy.act(long))
        await began.wait()
        await policy.close()
        (answer,) = await asyncio.gather(task, return_exceptions=True)
        policy._worker.shutdown(wait=True)
        return [answer, len(steps)]

    answer, steps = asyncio.run(run())
    assert isinstance(answer, asyncio.CancelledError)
    assert steps < 2000


# ---- the chat template ---------------------------------------------------------------------------------


def test_thinking_reaches_a_template_that_knows_it(folder: Path) -> None:
    samplings = (dataclasses.replace(GREEDY, thinking=mode) for mode in ("default", "on", "off"))
    answers = ask(TransformersPolicy(str(folder)), *(request(sampling) for sampling in samplings))
    default, on, off = (answer.usage.prompt_tokens for answer in answers)
    assert default == on < off


def set_template(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)


def test_thinking_cannot_be_turned_on_in_a_template_without_the_switch(copy: Path) -> None:
    set_template(copy, TEMPLATE.replace("enable_thinking", "something_else"))
    samplings = (dataclasses.replace(GREEDY, thinking=mode) for mode in ("default", "on", "off"))
    default, on, off = ask(TransformersPolicy(str(copy)), *(request(sampling) for sampling in samplings))
    assert default == off
    assert isinstance(on, UsageError)


def test_a_template_that_refuses_the_messages_stops_the_run(copy: Path) -> None:
    set_template(copy, "{{ raise_exception('no system role') }}")
    (error,) = ask(TransformersPolicy(str(copy)), request())
    assert isinstance(error, SeedBenchError)
    assert "no system role" in str(error)


def test_a_tokenizer_of_another_model_stops_the_run(copy: Path, tmp_path: Path) -> None:
    model, _ = loaded_parts(copy)
    model.resize_token_embeddings(50)
    model.save_pretrained(copy)
    (error,) = ask(TransformersPolicy(str(copy)), request())
    assert isinstance(error, SeedBenchError)
    assert "does not belong to its weights" in str(error)


# ---- identity ------------------------------------------------------------------------------------------


def test_identity_is_the_contents_and_not_the_place(folder: Path, copy: Path) -> None:
    here = opened(TransformersPolicy(str(folder), name="same"))
    there = opened(TransformersPolicy(str(copy), name="same", batch_size=3, device="cpu"))
    assert here == there
    assert here["weights_sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert (here["kind"], here["dtype"], here["name"]) == ("transformers", "float32", "same")
    text = json.dumps(here)
    assert str(folder.parent) not in text
    assert "+cpu" not in text
    assert opened(TransformersPolicy(f"{folder}/"))["name"] == "tiny"


def test_identity_tells_weights_template_tokenizer_and_precision_apart(
    folder: Path, copy: Path, tmp_path: Path
) -> None:
    base = opened(TransformersPolicy(str(folder), name="x"))

    def changed(policy: TransformersPolicy) -> set[str]:
        other = opened(policy)
        return {key for key in base if base[key] != other[key]}

    other_weights = build(tmp_path / "other", seed=1)
    assert changed(TransformersPolicy(str(other_weights), name="x")) == {"weights_sha256"}
    assert changed(TransformersPolicy(str(folder), name="x", dtype="bfloat16")) == {"dtype"}
    set_template(copy, TEMPLATE + " ")
    assert changed(TransformersPolicy(str(copy), name="x")) == {"chat_template_sha256"}
    set_template(copy, TEMPLATE)
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    tokenizer["model"]["merges"].pop()
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert changed(TransformersPolicy(str(copy), name="x")) == {"tokenizer_sha256"}


def test_identity_is_unknown_before_open(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="not open"):
        TransformersPolicy(str(folder)).identity()


def test_importing_the_policies_loads_no_model_library() -> None:
    code = (
        "import sys, seedbench.policies.transformers_, seedbench.policies.openai, seedbench.models; "
        "print([name for name in ('torch', 'transformers', 'scipy', 'huggingface_hub') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
