"""Packed scoring against scoring sample by sample, and which samples are packed at all."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from seedbench_trainers import packed
from seedbench_trainers.packed import score_packed, takes_rows
from seedbench_trainers.records import Sample, in_context
from seedbench_trainers.scoring import TokenScorer, score
from tests.tiny_model import build
from tests.train.test_scoring import _gemma, _llama, _lora_on_head, _qwen

VOCABULARY = 97
RANDOM = np.random.default_rng(5)


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> TokenScorer:
    """The tests' tiny random model."""
    from transformers import AutoModelForCausalLM

    folder = build(tmp_path_factory.mktemp("packed"))
    return TokenScorer(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))


def _tokens(count: int) -> list[int]:
    return [int(token) for token in RANDOM.integers(0, VOCABULARY, size=count)]


def _sample(*pieces: tuple[str, list[int]]) -> Sample:
    """A sample of pieces (seen or said, ids)."""
    ids: list[int] = []
    spans = []
    for kind, piece in pieces:
        if kind == "said":
            spans.append((len(ids), len(ids) + len(piece)))
        ids += piece
    count = sum(end - start for start, end in spans)
    return Sample(np.asarray(ids, dtype=np.int32), tuple(spans), np.zeros(count, dtype=np.float32))


def _windows(count: int, shared: int = 50, rest: int = 20, said: int = 7) -> list[Sample]:
    """A prefix, then prompts and answers of odd lengths."""
    prefix = _tokens(shared)
    return [_sample(("seen", prefix + _tokens(rest + 3 * n)), ("said", _tokens(said + n % 3))) for n in range(count)]


def _restrict(sample: Sample) -> Sample:
    sizes = range(sample.length)
    sample.allowed = tuple(
        tuple(sorted({int(sample.ids[p]), *_tokens(size % 5)})) for p, size in zip(sample.positions, sizes, strict=True)
    )
    return sample


def _plan_of(scorer: TokenScorer, samples: Sequence[Sample], tokens: int = 4096, shared: int = 32) -> list[set[int]]:
    """Members of the rows that are made."""
    fed = [sample.ids[:-1] for sample in samples]
    return [set(row.members) for row in packed._plan(fed, packed._relative_width(scorer), tokens, shared)]


def _check(scorer: TokenScorer, samples: Sequence[Sample], *, tokens: int = 4096, shared: int = 32) -> list[int]:
    """Compare with `score`; returns the (padded) tokens of every pass of the decoder."""
    expected = score(scorer, samples, tokens=100_000, temperature=0.8)
    takes_rows(scorer)
    passes: list[int] = []
    states = scorer.states

    def counted(ids: torch.Tensor, *layout: Any) -> torch.Tensor:
        passes.append(ids.numel())
        return states(ids, *layout)

    with patch.object(scorer, "states", counted):
        found = score_packed(scorer, samples, tokens=tokens, temperature=0.8, min_shared=shared)
    assert len(found) == len(samples)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, atol=1.6e-4, rtol=0)
    return passes


def test_a_group_with_one_prompt_is_one_row(scorer: TokenScorer) -> None:
    prompt = _tokens(120)
    samples = [_sample(("seen", prompt), ("said", _tokens(5 + n % 4))) for n in range(8)]
    assert _plan_of(scorer, samples) == [set(range(8))]
    # 120 once, and of each answer all but its last token: 2 * (4 + 5 + 6 + 7)
    assert _check(scorer, samples) == [120 + 44]


def test_windows_of_several_tasks_in_any_order(scorer: TokenScorer) -> None:
    samples = [sample for shared in (80, 41, 33) for sample in _windows(8, shared, rest=5)]
    order = RANDOM.permutation(len(samples))
    tasks = [{position for position, index in enumerate(order) if index // 8 == task} for task in range(3)]
    shuffled = [samples[index] for index in order]
    rows = _plan_of(scorer, shuffled)
    assert all(any(row <= task for task in tasks) for row in rows)
    assert tasks[0] in rows
    assert sum(_check(scorer, shuffled)) < sum(len(sample.ids) for sample in samples)


def test_skills_at_the_end_of_one_prompt(scorer: TokenScorer) -> None:
    prompt, said = _tokens(150), _tokens(9)
    plain = _sample(("seen", prompt), ("said", said))
    samples = [in_context(plain, prompt + _tokens(11 + 2 * n)) for n in range(8)]
    assert _plan_of(scorer, samples) == [set(range(8))]
    _check(scorer, samples)


def test_conversations_that_begin_alike_even_in_their_answers(scorer: TokenScorer) -> None:
    prompt, first, seen = _tokens(60), _tokens(10), _tokens(30)
    samples = [
        _sample(("seen", prompt), ("said", first), ("seen", seen), ("said", _tokens(4 + n)), ("seen", _tokens(6)),
                ("said", _tokens(5)))
        for n in range(4)
    ]  # fmt: skip
    samples.append(_sample(("seen", prompt), ("said", first[:6] + _tokens(3))))
    assert len(_plan_of(scorer, samples)) == 1
    _check(scorer, samples)


def test_equal_and_nested_samples(scorer: TokenScorer) -> None:
    prompt, said = _tokens(64), _tokens(6)
    samples = [
        _sample(("seen", prompt), ("said", said)),
        _sample(("seen", prompt), ("said", said)),
        _sample(("seen", prompt), ("said", said[:1])),
        _sample(("seen", prompt), ("said", [*said, 8, 9])),
    ]
    assert _plan_of(scorer, samples) == [{0, 1, 2, 3}]
    assert _check(scorer, samples)[0] < 2 * 64


@pytest.mark.parametrize("some", [False, True], ids=["all", "some"])
def test_restricted_tokens(scorer: TokenScorer, some: bool) -> None:
    samples = _windows(6, shared=70)
    for number, sample in enumerate(samples):
        if number % 2 or not some:
            _restrict(sample)
    assert _plan_of(scorer, samples)
    _check(scorer, samples)


def test_rows_keep_to_the_budget(scorer: TokenScorer) -> None:
    samples = [sample for _ in range(3) for sample in _windows(8, shared=60, rest=4)]
    longest = max(len(sample.ids) for sample in samples)
    for tokens in (200, 260, 400, 1000):
        assert longest < tokens
        passes = _check(scorer, samples, tokens=tokens)
        assert max(passes) <= tokens
    assert _check(scorer, samples, tokens=1) == sorted((len(sample.ids) - 1 for sample in samples), reverse=True)


def test_without_anything_to_share_nothing_is_packed(scorer: TokenScorer) -> None:
    apart = [_sample(("seen", [n, *_tokens(50 + n)]), ("said", _tokens(6))) for n in range(7)]
    assert _plan_of(scorer, apart) == []
    _check(scorer, apart)
    few = _windows(4, shared=31, rest=1, said=4)
    assert _plan_of(scorer, few) == []
    assert _plan_of(scorer, few, shared=31)
    assert score_packed(scorer, [], tokens=64, temperature=1.0) == []


def test_a_short_prefix_before_long_rests_does_not_pay(scorer: TokenScorer) -> None:
    assert _plan_of(scorer, _windows(2, shared=40, rest=900)) == []


def test_the_plan_is_the_cheapest_cut() -> None:
    """Against every cut of eight sorted sequences, for several widths."""
    fed = [np.asarray(sorted_ids, dtype=np.int32) for sorted_ids in _sequences()]
    for width in (1.0, 20.0, 300.0):
        rows = packed._plan(fed, width, 60, 3)
        grouped = {index for row in rows for index in row.members}
        found = sum(row.size * width + row.size**2 for row in rows)
        found += sum(len(one) * width + len(one) ** 2 / 2 for i, one in enumerate(fed) if i not in grouped)
        assert found == pytest.approx(_cheapest(fed, width))


def _sequences() -> list[list[int]]:
    return sorted([1] * share + [2] * (share % 2) + _tokens(4 + share) for share in (2, 3, 5, 5, 8, 9, 12, 1))


def _cheapest(fed: Sequence[Any], width: float) -> float:
    """By trying all 128 cuts."""
    costs = []
    for cuts in range(2**7):
        edges = [0, *(n + 1 for n in range(7) if cuts >> n & 1), 8]
        costs.append(sum(_cost(fed[a:b], width) for a, b in pairwise(edges)))
    return min(costs)


def _cost(part: Sequence[Any], width: float) -> float:
    if len(part) == 1:
        return len(part[0]) * width + len(part[0]) ** 2 / 2
    shared = 0
    while all(shared < len(one) and one[shared] == part[0][shared] for one in part):
        shared += 1
    size = sum(map(len, part)) - (len(part) - 1) * shared
    return size * width + size**2 if shared >= 3 and size <= 60 else float("inf")


@pytest.mark.parametrize("make", [_llama, _qwen, _lora_on_head])
def test_other_models(make: Any) -> None:
    scorer = TokenScorer(make())
    scorer.model.train()
    samples = _windows(5, shared=45)
    _check(scorer, samples)
    assert scorer.packs
    assert scorer.model.training


def _eager() -> Any:
    model = _llama()
    model.set_attn_implementation("eager")
    return model


def _unplaced() -> Any:
    """A model to which positions mean nothing: every rest would stand at its place in the row."""
    model = _llama()
    forward = model.model.forward
    model.model.forward = lambda position_ids=None, **given: forward(**given)
    return model


@pytest.mark.parametrize("make", [_gemma, _eager, _unplaced])
def test_models_that_take_no_such_rows_are_scored_one_by_one(make: Any) -> None:
    scorer = TokenScorer(make())
    assert not takes_rows(scorer)
    _check(scorer, _windows(4, shared=45))


def test_the_tools_pack(scorer: TokenScorer, tmp_path: Path) -> None:
    from types import SimpleNamespace

    from seedbench_trainers.distributed import World
    from seedbench_trainers.toolbox import Toolbox

    tools = Toolbox.__new__(Toolbox)
    tools.config = SimpleNamespace(  # type: ignore[assignment]
        update=SimpleNamespace(tokens=64), rollout=SimpleNamespace(temperature=0.8)
    )
    tools._world = World()
    samples = _windows(8, shared=100, rest=2, said=4)
    with patch.object(packed, "_pass", wraps=packed._pass) as used:
        found = tools._score(scorer, samples)
    assert used.called
    for one, other in zip(found, score(scorer, samples, tokens=999, temperature=0.8), strict=True):
        np.testing.assert_allclose(one, other, atol=1.6e-4)
