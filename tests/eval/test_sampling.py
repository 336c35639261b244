"""Drawing tokens, ending responses and forming batches, without a model."""

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from scipy import stats

from seedbench.policies.base import Sampling
from seedbench.policies.batching import Batcher
from seedbench.policies.sampling import ResponseEnds, RowSampler, cut_at_stop


def draws(sampling: Sampling, logits: list[float], count: int) -> list[int]:
    sampler = RowSampler(sampling, range(count))
    return sampler.draw(sampler.cut(torch.tensor([logits] * count)), range(count)).tolist()


def test_gumbel_draws_follow_the_softmax_at_a_temperature() -> None:
    logits, temperature, count = [0.0, 1.0, 2.0, -1.0, 0.5], 0.7, 4000
    weights = [math.exp(logit / temperature) for logit in logits]
    expected = [count * weight / sum(weights) for weight in weights]
    drawn = draws(Sampling(temperature, 1), logits, count)
    observed = [drawn.count(token) for token in range(5)]
    assert stats.chisquare(observed, expected).pvalue > 0.001


@pytest.mark.parametrize(
    ("top_k", "top_p", "allowed"),
    [
        (2, 1.0, {0, 1}),
        (9, 1.0, {0, 1, 2, 3}),
        # Probabilities .4 .3 .2 .1: two tokens reach .65, three reach .75.
        (0, 0.65, {0, 1}),
        (0, 0.75, {0, 1, 2}),
        (0, 0.0, {0}),
        # The top-p mass is taken after top-k has renormalised: .4 / .7 = .571 reaches .5.
        (2, 0.5, {0}),
    ],
)
def test_top_k_and_top_p_leave_the_tokens_worked_out_by_hand(top_k: int, top_p: float, allowed: set[int]) -> None:
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    assert set(draws(Sampling(1.0, 1, top_k=top_k, top_p=top_p), logits, 400)) == allowed


def test_a_rows_noise_advances_with_each_token_and_ignores_its_neighbours() -> None:
    scores = torch.zeros(3, 50)
    together, alone = RowSampler(Sampling(1.0, 1), [1, 2, 3]), RowSampler(Sampling(1.0, 1), [2])
    first, second = (together._noise(range(3), scores) for _ in range(2))
    assert torch.equal(first[1:2], alone._noise([0], scores[:1]))
    assert torch.equal(second[1:2], alone._noise([0], scores[:1]))
    assert not torch.equal(first[1], second[1])
    assert torch.isfinite(first).all()
    drawn = [RowSampler(Sampling(1.0, 1), [1, 2, 3]).draw(scores[:1], [row]).item() for row in range(3)]
    assert drawn == first.argmax(dim=-1).tolist()


def test_log_probabilities_are_those_of_what_is_drawn_from() -> None:
    scores = torch.tensor([[math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]] * 4)
    tokens = torch.arange(4)

    def probabilities(sampling: Sampling) -> list[float]:
        sampler = RowSampler(sampling, range(4))
        return sampler.logprobs(sampler.cut(scores), tokens).exp().tolist()

    assert probabilities(Sampling(1.0, 1)) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    # At temperature 1/2 probabilities are squared: .16 .09 .04 .01 of .30.
    assert probabilities(Sampling(0.5, 1)) == pytest.approx([16 / 30, 9 / 30, 4 / 30, 1 / 30])
    assert probabilities(Sampling(1.0, 1, top_k=2)) == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert probabilities(Sampling(1.0, 1, top_p=0.75)) == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0])
    assert probabilities(Sampling(0.0, 1)) == [1, 1, 1, 1]


def test_a_response_ends_at_an_end_token_or_the_token_that_completes_a_stop() -> None:
    letters = "abcdefghij"
    ends = ResponseEnds(eos=(9,), stops=("cde", ""), decode=lambda ids: "".join(letters[number] for number in ids))
    assert [ends(range(length)) for length in range(1, 6)] == [False, False, False, False, True]
    assert ends([0, 9])
    assert not ends([4, 3, 2])
    # A stop string is looked for where it can be complete: in as many tokens as it has bytes, and a few more.
    assert ends([0] * 500 + [2, 3, 4])


def test_the_stop_that_is_complete_first_wins() -> None:
    assert cut_at_stop("a bb ccc", ["ccc", "bb"]) == ("a bb", True)
    assert cut_at_stop("a bb ccc", ["a bb ccc", "bb"]) == ("a bb", True)
    assert cut_at_stop("a bb", ["x", ""]) == ("a bb", False)


def batches_of(limit: int, questions: list[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """The batches in which questions (group, number) that arrive together are answered."""
    seen: list[list[tuple[str, int]]] = []

    def answer(batch: list[tuple[str, int]]) -> list[int | Exception]:
        seen.append(batch)
        return [ValueError("odd") if number % 2 else number for _, number in batch]

    async def run() -> list[Any]:
        with ThreadPoolExecutor(1) as worker:
            batcher = Batcher(answer, worker=worker, limit=limit, group=lambda question: question[0])
            return await asyncio.gather(*map(batcher.submit, questions), return_exceptions=True)

    results = asyncio.run(run())
    assert [result if isinstance(result, int) else -1 for result in results] == [
        -1 if number % 2 else number for _, number in questions
    ]
    return seen


def test_batches_hold_one_group_oldest_first_and_no_more_than_the_limit() -> None:
    questions = [("a", 0), ("b", 2), ("a", 3), ("a", 4), ("b", 6), ("a", 8)]
    assert batches_of(3, questions) == [
        [("a", 0), ("a", 3), ("a", 4)],
        [("b", 2), ("b", 6)],
        [("a", 8)],
    ]
    assert batches_of(1, [("a", 0), ("a", 1)]) == [[("a", 0)], [("a", 1)]]


def test_an_answering_function_that_raises_fails_its_batch_only() -> None:
    calls: list[int] = []

    def answer(batch: list[int]) -> list[int | Exception]:
        calls.append(len(batch))
        if 0 in batch:
            raise ValueError("broken")
        return list(batch)

    async def run() -> list[Any]:
        with ThreadPoolExecutor(1) as worker:
            batcher = Batcher(answer, worker=worker, limit=2, group=lambda question: None)
            return await asyncio.gather(*map(batcher.submit, range(4)), return_exceptions=True)

    results = asyncio.run(run())
    assert [type(result) for result in results] == [ValueError, ValueError, int, int]
    assert calls == [2, 2]
