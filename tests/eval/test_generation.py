"""What generation reuses must not be seen in what it gives: tokens, log-probabilities, texts."""

import dataclasses
import functools
import itertools
import math
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from scipy import stats

from seedbench.policies.base import Response, Sampled, Sampling
from seedbench.policies.choices import ChoiceTree
from seedbench.policies.generation import Generator, Row
from seedbench.policies.states import KeptStates, Network
from seedbench.policies.transformers_ import TransformersPolicy
from tests.eval.asking import GREEDY, SAMPLED, ask, loaded_parts, request
from tests.eval.conversing import converse, loaded, teacher_forced, without_logprobs
from tests.tiny_model import build

SHORT = Sampling(temperature=1.0, max_new_tokens=16)
CHOICES = ("go to desk 1", "go to desk 10", "go to drawer 2", "look", "take the apple 3", "open the fridge 1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("models") / "tiny")


def policy(folder: Path, cache_gib: float = 2.0, batch_size: int = 8) -> TransformersPolicy:
    return TransformersPolicy(str(folder), batch_size=batch_size, record=True, cache_gib=cache_gib)


def tokens(answer: Response) -> Sampled:
    assert answer.sampled is not None
    return answer.sampled


def count_feeds(model: Any) -> list[torch.Tensor]:
    """The attention masks (B, C) of the new columns of every pass that `model` makes from now on."""
    masks: list[torch.Tensor] = []
    forward = model.forward

    @functools.wraps(forward)
    def counted(*args: Any, **kwargs: Any) -> Any:
        masks.append(kwargs["attention_mask"][:, -kwargs["input_ids"].shape[1] :].clone())
        return forward(*args, **kwargs)

    model.forward = counted
    return masks


# ---- conversations -------------------------------------------------------------------------------------


@pytest.mark.parametrize("choices", [(), CHOICES], ids=["free", "choices"])
@pytest.mark.parametrize("sampling", [dataclasses.replace(SHORT, temperature=0.0), SHORT], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", ["chat", "window", "completion"])
def test_reuse_changes_nothing(folder: Path, kind: str, sampling: Sampling, choices: tuple[str, ...]) -> None:
    plain = converse(policy(folder, cache_gib=0.0, batch_size=1), sampling, kind, choices=choices)
    model, _ = loaded_parts(folder)
    assert len({tokens(answer).ids for episode in plain for answer in episode}) > (2 if choices else 12)
    for cache_gib, batch_size in ((0.0, 8), (2.0, 1), (2.0, 8), (20_000 / 2**30, 8)):
        other = converse(policy(folder, cache_gib, batch_size), sampling, kind, choices=choices)
        assert without_logprobs(other) == without_logprobs(plain)
        for answer in (answer for episode in other for answer in episode):
            expected = teacher_forced(model, answer, sampling.temperature or 1.0)
            if sampling.temperature == 0.0:
                expected = [0.0] * len(expected)
            assert tokens(answer).logprobs == pytest.approx(expected, abs=1e-5)


def test_a_conversation_feeds_each_token_once(folder: Path) -> None:
    parts = loaded(folder)
    masks = count_feeds(parts.model)

    def serve(cache_gib: float) -> int:
        masks.clear()
        serving = TransformersPolicy.serving(
            parts, name="x", identity={}, batch_size=8, record=True, cache_gib=cache_gib
        )
        conversations.append(converse(serving, SHORT, "chat", episodes=4))  # no two alike
        return int(sum(mask.sum() for mask in masks))

    conversations: list[list[list[Response]]] = []
    kept, anew = serve(2.0), serve(0.0)
    answers = [tokens(episode[-1]) for episode in conversations[0]]
    assert kept == sum(len(answer.prompt) + len(answer.ids) - 1 for answer in answers)  # the last is never fed
    turns = [tokens(answer) for episode in conversations[1] for answer in episode]
    assert anew == sum(len(turn.prompt) + len(turn.ids) - 1 for turn in turns)
    # Each turn's prompt begins with what was fed and drawn before it, whatever the text would be tokenised to.
    for episode in conversations[0]:
        for before, after in itertools.pairwise(episode):
            said = (*tokens(before).prompt, *tokens(before).ids)
            assert tokens(after).prompt[: len(said)] == said


def test_a_window_feeds_the_shared_head_once(folder: Path) -> None:
    parts = loaded(folder)
    masks = count_feeds(parts.model)
    serving = TransformersPolicy.serving(parts, name="x", identity={}, batch_size=8, record=True)
    answers = converse(serving, SHORT, "window", episodes=1, turns=2)[0]
    first, second = map(tokens, answers)
    common = next(at for at, (a, b) in enumerate(zip(first.prompt, second.prompt, strict=False)) if a != b)
    assert common > 20
    fed = int(sum(mask.sum() for mask in masks))
    assert fed == len(first.prompt) + len(first.ids) - 1 + len(second.prompt) - common + len(second.ids) - 1


def test_equal_prompts_are_read_once(folder: Path) -> None:
    masks: list[torch.Tensor] = []
    parts = loaded(folder)
    generator = Generator(parts, record=True)
    group = [Row([5, 6, 7, 8, 9], seed) for seed in range(8)]
    alone = [generator.generate([row], SHORT)[0] for row in (*group, Row([9, 8], 3))]
    masks = count_feeds(parts.model)
    together = generator.generate([*group, Row([9, 8], 3)], SHORT)
    assert [mask.sum().item() for mask in masks[:2]] == [5, 2]  # unlike lengths: groups of their own
    assert len(masks[2]) == 9
    assert [one.ids for one in together] == [one.ids for one in alone]
    assert [p for one in together for p in one.logprobs] == pytest.approx(
        [p for one in alone for p in one.logprobs], abs=1e-5
    )
    assert len({tuple(one.ids) for one in together}) == 9


def test_rows_that_have_ended_leave_the_batch(folder: Path) -> None:
    parts = loaded(folder)
    masks = count_feeds(parts.model)
    generated = Generator(parts).generate([Row([5 + seed, 6, 7], seed) for seed in range(16)], Sampling(1.0, 60))
    lengths = sorted(len(one.ids) for one in generated)
    assert lengths[0] < 30 < lengths[-1]
    for step, mask in enumerate(masks[1:], start=1):
        alive = sum(length > step for length in lengths)
        assert alive == mask.sum()
        assert len(mask) * 3 < alive * 4 or len(mask) == alive


def test_kept_memory_is_bounded_and_forgotten(folder: Path) -> None:
    def layers(length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(torch.ones(1, length, 1), torch.ones(1, length, 1))]  # 8 bytes a token

    kept = KeptStates(limit=80)
    kept.put("a", [1, 2, 3, 4], layers(4))
    kept.put("b", [1, 2, 3, 4], layers(4))
    kept.put("c", [1, 2, 3, 4], layers(4))  # 96 bytes: the oldest goes
    assert kept.take("a", [1, 2, 3]) is None
    found = kept.take("b", [1, 2, 9, 4])
    assert found is not None
    assert found[0][0].shape == (1, 2, 1)
    assert kept.take("b", [1, 2, 9, 4]) is None  # taken is gone
    whole = kept.take("c", [1, 2, 3, 4])
    assert whole is not None
    assert whole[0][0].shape == (1, 3, 1)  # the last token is always fed
    kept.put("d", [1, 2], layers(2))
    kept.put("d", [1, 2], layers(2))
    assert kept.take("d", [7, 2]) is None  # nothing in common
    kept.put("e", [1] * 11, layers(11))  # more than all
    assert kept.take("e", [1] * 12) is None
    kept.put("f", [1], layers(1))
    kept.forget("f")
    kept.forget("f")
    kept.put("g", [1], layers(1))
    kept.clear()
    assert (kept.take("f", [1, 1]), kept.take("g", [1, 1]), kept._size) == (None, None, 0)


# ---- choices -------------------------------------------------------------------------------------------


def test_an_answer_is_a_choice_drawn_in_proportion_along_the_tree(folder: Path) -> None:
    parts = loaded(folder)
    tree = ChoiceTree(parts.tokenizer, CHOICES)
    prompt = parts.tokenizer("You are in the middle of a room.")["input_ids"]

    def probability(choice: str) -> float:
        path = tree.path(choice)
        answer = Response(sampled=Sampled(tuple(prompt), path, (), tree.allowed_along(path)))
        return math.exp(sum(teacher_forced(parts.model, answer, 1.0)))

    expected = [probability(choice) for choice in CHOICES]
    assert sum(expected) == pytest.approx(1.0, abs=1e-5)
    rows = [Row(prompt, seed, tree) for seed in range(1500)]
    generated = Generator(parts, record=True).generate(rows, SHORT)
    drawn = [tree.text(one.ids) for one in generated]
    counts = [drawn.count(choice) for choice in CHOICES]
    assert sum(counts) == 1500
    assert all(one.ended for one in generated)
    likely = [index for index, share in enumerate(expected) if share * 1500 >= 5]
    assert len(likely) > 2
    observed = [counts[index] for index in likely] + [1500 - sum(counts[index] for index in likely)]
    shares = [expected[index] for index in likely]
    rest = 1 - sum(shares)
    if rest * 1500 < 5:
        observed.pop()
        scale = sum(observed) / sum(shares)
        assert stats.chisquare(observed, [scale * share for share in shares]).pvalue > 0.001
    else:
        assert stats.chisquare(observed, [1500 * share for share in (*shares, rest)]).pvalue > 0.001
    for text, one in list(zip(drawn, generated, strict=True))[:50]:
        assert text is not None
        assert sum(one.logprobs) == pytest.approx(math.log(expected[CHOICES.index(text)]), abs=1e-4)


def test_forced_runs_are_fed_together_and_a_single_choice_asks_nothing(folder: Path) -> None:
    parts = loaded(folder)
    tree = ChoiceTree(parts.tokenizer, ["open the fridge 1", "take the apple 3 from desk 1"])
    run = tree.forced([])
    masks = count_feeds(parts.model)
    generator = Generator(parts, record=True)
    (one,) = generator.generate([Row([5, 6, 7], 0, tree)], Sampling(1.0, 40))
    assert tree.text(one.ids) is not None
    assert [mask.shape[1] for mask in masks] == [3 + len(run)]  # one draw: what follows is forced to the end
    masks.clear()
    single = ChoiceTree(parts.tokenizer, ["look"])
    (only,) = generator.generate([Row([5, 6, 7], 0, single)], Sampling(1.0, 40))
    assert (tuple(only.ids), only.ended, set(only.logprobs)) == (single.path("look"), True, {0.0})
    assert masks == []


def test_free_and_restricted_rows_may_share_a_batch(folder: Path) -> None:
    parts = loaded(folder)
    tree = ChoiceTree(parts.tokenizer, CHOICES)
    rows = [Row([5 + seed, 6, 7], seed, tree if seed % 2 else None) for seed in range(10)]
    generator = Generator(parts)
    together = generator.generate(rows, SHORT)
    assert [one.ids for one in together] == [generator.generate([row], SHORT)[0].ids for row in rows]


def test_a_choice_is_given_as_it_is_written_and_stops_do_not_cut_it(folder: Path) -> None:
    choices = ("<action>look</action> done", "<action>go</action> done")
    sampling = dataclasses.replace(SHORT, stop=("</action>",))
    asked = dataclasses.replace(request(sampling), choices=choices)
    (answer,) = ask(policy(folder), asked)
    assert answer.text in choices
    assert answer.finish_reason == "stop"
    assert len(tokens(answer).allowed) == len(tokens(answer).ids) == answer.usage.generated_tokens
    short = dataclasses.replace(asked, sampling=Sampling(1.0, 3))
    (cut,) = ask(policy(folder), short)
    assert (cut.finish_reason, cut.usage.generated_tokens) == ("length", 3)
    assert any(choice.startswith(cut.text) for choice in choices)


# ---- recorded tokens -----------------------------------------------------------------------------------


def test_tokens_are_recorded_only_where_asked_for(folder: Path) -> None:
    (plain,) = ask(TransformersPolicy(str(folder)), request(SAMPLED))
    (recorded,) = ask(policy(folder), request(SAMPLED))
    assert plain.sampled is None
    assert dataclasses.replace(recorded, sampled=None) == plain
    assert len(tokens(recorded).prompt) == plain.usage.prompt_tokens


def test_recorded_tokens_hold_the_whole_response_and_its_end(folder: Path) -> None:
    _, tokenizer = loaded_parts(folder)
    answers = ask(policy(folder), *(request(SAMPLED, number) for number in range(16)))
    ends = [tokens(answer).ids[-1] == tokenizer.eos_token_id for answer in answers]
    assert ends == [answer.finish_reason == "stop" for answer in answers]
    assert set(ends) == {True, False}
    text = answers[0].text
    stop = text[8:10]
    stopping = dataclasses.replace(SAMPLED, stop=(stop,))
    (stopped,) = ask(policy(folder), request(stopping))
    whole = tokenizer.decode(tokens(stopped).ids)
    assert whole.startswith(stopped.text)
    assert stopped.text.endswith(stop)
    assert tokens(stopped).ids == tokens(answers[0]).ids[: len(tokens(stopped).ids)]


def test_log_probabilities_are_those_of_the_cut_distribution(folder: Path) -> None:
    sampling = Sampling(0.7, 12, top_k=5, top_p=0.9)
    (answer,) = ask(policy(folder), request(sampling))
    model, _ = loaded_parts(folder)
    sequence = torch.tensor([[*tokens(answer).prompt, *tokens(answer).ids]])
    with torch.inference_mode():
        logits = model(sequence).logits[0, len(tokens(answer).prompt) - 1 : -1]
    for row, token, logprob in zip(logits, tokens(answer).ids, tokens(answer).logprobs, strict=True):
        best = (row / 0.7).topk(5)
        shares = best.values.softmax(-1).tolist()
        kept: list[float] = []
        while sum(kept) < 0.9:  # the fewest that reach top-p
            kept.append(shares[len(kept)])
        place = best.indices.tolist().index(token)
        assert logprob == pytest.approx(math.log(kept[place] / sum(kept)), abs=1e-5)


# ---- models --------------------------------------------------------------------------------------------


def other_model(kind: str) -> Any:
    """A small random model of another architecture, with the tiny tokenizer's vocabulary."""
    import transformers

    common = {"vocab_size": 400, "initializer_range": 0.15, "eos_token_id": 1, "bos_token_id": None}
    sized = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
    }  # fmt: skip
    library: Any = transformers
    torch.manual_seed(0)
    if kind == "gpt2":
        config = library.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=256, **common)
        return library.GPT2LMHeadModel(config).eval()
    if kind == "sliding":
        return library.MistralForCausalLM(library.MistralConfig(sliding_window=6, **common, **sized)).eval()
    if kind == "dynamic":
        rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
        return library.LlamaForCausalLM(library.LlamaConfig(rope_parameters=rope, **common, **sized)).eval()
    return library.Qwen2ForCausalLM(library.Qwen2Config(**common, **sized)).eval()


@pytest.mark.parametrize(("kind", "plain"), [("gpt2", True), ("qwen2", True), ("sliding", False), ("dynamic", False)])
def test_other_architectures_generate_what_transformers_does(folder: Path, kind: str, plain: bool) -> None:
    model = other_model(kind)
    parts = loaded(folder, model)
    assert Network(parts).plain is plain
    lengths = (40, 9, 9, 24)
    prompts = [[(7 * row + place) % 390 + 5 for place in range(length)] for row, length in enumerate(lengths)]
    greedy = Sampling(0.0, 20)
    generator = Generator(parts, cache_bytes=2**30)
    rows = [Row(prompt, 0, episode=number) for number, prompt in enumerate(prompts)]
    for _ in range(2):  # the second time from what was kept, where that is sound
        generated = generator.generate(rows, greedy)
    width = max(lengths)
    padded = torch.tensor([[1] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    expected = model.generate(padded, attention_mask=mask, max_new_tokens=20, do_sample=False, pad_token_id=1)
    for one, row in zip(generated, expected[:, width:].tolist(), strict=True):
        assert one.ids == row[: len(one.ids)]
        assert one.ended == (one.ids[-1] == 1)
        assert one.ended or len(one.ids) == 20
    tree = ChoiceTree(parts.tokenizer, CHOICES)
    chosen = [Row(prompt, seed, tree) for seed, prompt in enumerate(prompts)]
    together = generator.generate(chosen, SHORT)
    assert all(tree.text(one.ids) in CHOICES for one in together)
    if kind != "dynamic":  # there the longest row scales the others' rotations
        assert [one.ids for one in together] == [generator.generate([row], SHORT)[0].ids for row in chosen]


def test_a_lora_model_generates_what_its_merged_weights_do(folder: Path) -> None:
    import peft

    parts = loaded(folder)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(parts.model, config).eval()
    assert Network(loaded(folder, adapted)).plain
    serving = TransformersPolicy.serving(loaded(folder, adapted), name="x", identity={}, batch_size=8, record=True)
    answers = converse(serving, SHORT, "chat")
    with torch.inference_mode():
        for answer in (answer for episode in answers for answer in episode):
            assert tokens(answer).logprobs == pytest.approx(teacher_forced(adapted, answer, 1.0), abs=1e-5)
    merged = adapted.merge_and_unload()
    again = TransformersPolicy.serving(loaded(folder, merged), name="x", identity={}, batch_size=8, record=True)
    assert without_logprobs(converse(again, SHORT, "chat")) == without_logprobs(answers)


# ---- a model that is trained in between ----------------------------------------------------------------


def test_serving_leaves_the_model_to_its_owner(folder: Path) -> None:
    parts = loaded(folder)
    parts.model.train()
    serving = TransformersPolicy.serving(parts, name="mine", identity={"kind": "trained"}, batch_size=8, record=True)
    assert serving.identity() == {"kind": "trained", "name": "mine"}
    optimiser = torch.optim.SGD(parts.model.parameters(), lr=0.05)
    texts = []
    for _ in range(2):
        answers = converse(serving, GREEDY, "chat", episodes=2, turns=2)
        assert parts.model.training
        for answer in (answer for episode in answers for answer in episode):
            fresh = Generator(parts).generate([Row(tokens(answer).prompt, 0)], GREEDY)[0]
            assert tuple(fresh.ids) == tokens(answer).ids  # of the weights as they are now, nothing kept from before
        texts.append([answer.text for episode in answers for answer in episode])
        sequence = torch.tensor([[*tokens(answers[0][0]).prompt, *tokens(answers[0][0]).ids]])
        loss = parts.model(sequence, labels=sequence).loss
        optimiser.zero_grad()
        loss.backward()
        assert all(parameter.grad is not None for parameter in parts.model.parameters())
        optimiser.step()
    assert texts[0] != texts[1]


def test_a_set_event_ends_a_batch_before_its_next_token(folder: Path) -> None:
    cancelled = Event()
    parts = loaded(folder)
    cancelled.set()
    (one,) = Generator(parts, cancelled=cancelled).generate([Row([5, 6], 0)], GREEDY)
    assert (one.ids, one.ended) == ([], False)
