"""The formulas of the losses against numbers worked out by hand, and their gradients."""

import math

import pytest
import torch

from seedbench_trainers.losses import clipped_ratio, kl, masked_mean, reduce_term, sequence_mean

LN = math.log


def _row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float32)


def test_clipped_ratio_takes_the_worse_of_both_and_bounds_it_below() -> None:
    ratios = (1.1, 1.5, 0.5, 1.5, 0.5, 4.0)
    advantage = _row(2.0, 2.0, 2.0, -2.0, -2.0, -2.0)
    logp = _row(*map(LN, ratios)).requires_grad_(True)
    surrogate = clipped_ratio(logp, torch.zeros(1, 6), advantage, low=0.2, high=0.3, dual=3.0)
    # -min(r A, clip A): 1.1*2; cut at 1.3*2; 0.5*2; 1.5*-2; cut at 0.8*-2; 4*-2, but at least 3*-2.
    torch.testing.assert_close(surrogate.values, _row(-2.2, -2.6, -1.0, 3.0, 1.6, 6.0))
    torch.testing.assert_close(surrogate.ratio, _row(*ratios))
    assert surrogate.clipped.tolist() == [[0, 1, 0, 0, 1, 1]]
    assert not surrogate.ratio.requires_grad
    surrogate.values.sum().backward()  # type: ignore[no-untyped-call]
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad, _row(-2.2, 0.0, -1.0, 3.0, 0.0, 0.0))  # -A r where nothing is cut


def test_without_dual_clip_a_huge_ratio_counts_in_full() -> None:
    surrogate = clipped_ratio(_row(LN(4)), _row(0.0), _row(-2.0), low=0.2, high=0.2)
    torch.testing.assert_close(surrogate.values, _row(8.0))
    assert surrogate.clipped.item() == 0


def test_at_the_sampling_policy_the_gradient_is_the_policy_gradient() -> None:
    logp = _row(-1.0, -2.0).requires_grad_(True)
    surrogate = clipped_ratio(logp, logp.detach(), _row(1.5, -0.5), 0.2, 0.2, 3.0)
    surrogate.values.sum().backward()  # type: ignore[no-untyped-call]
    assert logp.grad is not None
    assert logp.grad.tolist() == [[-1.5, 0.5]]
    assert surrogate.clipped.sum() == 0


def test_ratios_beyond_float32_stay_finite() -> None:
    surrogate = clipped_ratio(_row(0.0, -300.0), _row(-300.0, 0.0), _row(1.0, 1.0), 0.2, 0.2)
    torch.testing.assert_close(surrogate.values, _row(-1.2, -math.exp(-20)))


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [
        ("k1", LN(2), 1.0),
        ("k2", LN(2) ** 2 / 2, LN(2)),  # half the square; its derivative is logp - ref
        ("k3", 0.5 - 1 + LN(2), 0.5),  # exp(-ln 2) - 1 + ln 2; its derivative is 1 - exp(ref - logp)
    ],
)
def test_kl_estimators(estimator: str, value: float, gradient: float) -> None:
    logp = _row(LN(0.8)).requires_grad_(True)
    values = kl(logp, _row(LN(0.4)), estimator)  # type: ignore[arg-type]
    torch.testing.assert_close(values, _row(value))
    values.sum().backward()  # type: ignore[no-untyped-call]
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad, _row(gradient))


def test_k1_and_k3_average_to_the_exact_divergence() -> None:
    policy, reference = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.3, 0.3, 0.4]])
    exact = (policy * (policy / reference).log()).sum()
    for estimator in ("k1", "k3"):
        mean = (policy * kl(policy.log(), reference.log(), estimator)).sum()
        torch.testing.assert_close(mean, exact)


def test_kl_clamp_cuts_large_values_and_their_gradient() -> None:
    logp = _row(-5.0, -1.0).requires_grad_(True)
    values = kl(logp, _row(0.0, 0.0), "k3", clamp=10.0)
    torch.testing.assert_close(values, _row(10.0, math.e - 2))  # exp(5) - 6 is 142
    values.sum().backward()  # type: ignore[no-untyped-call]
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad, _row(0.0, 1 - math.e))
    assert kl(_row(5.0), _row(0.0), "k1", clamp=2.0).item() == 2.0
    assert kl(_row(-5.0), _row(0.0), "k1", clamp=2.0).item() == -2.0


VALUES = torch.tensor([[1.0, 2.0, 3.0], [10.0, 99.0, 99.0], [99.0, 99.0, 99.0]])
MASK = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def test_means_over_tokens_and_over_sequences() -> None:
    assert masked_mean(VALUES, MASK).item() == 4.0  # 16 / 4
    assert sequence_mean(VALUES, MASK).item() == 6.0  # (2 + 10) / 2: the empty row does not count
    assert masked_mean(VALUES, torch.zeros(3, 3)).item() == 0.0
    assert sequence_mean(VALUES, torch.zeros(3, 3)).item() == 0.0


def test_reduce_term_adds_up_over_micro_batches() -> None:
    for average, mean in (("token", 4.0), ("sequence", 6.0)):
        parts = [reduce_term(VALUES[i : i + 1], MASK[i : i + 1], average) for i in range(3)]  # type: ignore[arg-type]
        total, count = (sum(column) for column in zip(*parts, strict=True))
        assert float(total / count) == mean


def test_weights_weigh_the_sum_and_not_the_count() -> None:
    weights = torch.tensor([[0.5, 0.0, 2.0]])
    total, count = reduce_term(VALUES[:1], weights, "token")
    assert (total.item(), count.item()) == (6.5, 2.0)
    total, count = reduce_term(VALUES[:1], weights, "sequence")
    assert (total.item(), count.item()) == (3.25, 1.0)


@pytest.mark.parametrize("average", ["token", "sequence"])
def test_masked_tokens_have_exactly_no_gradient(average: str) -> None:
    torch.manual_seed(0)
    logp = torch.randn(3, 3).requires_grad_(True)
    old, ref, advantage = torch.randn(3, 3), torch.randn(3, 3), torch.randn(3, 3)
    values = clipped_ratio(logp, old, advantage, 0.9, 9.0).values + kl(logp, ref, "k3")
    reduce_term(values, MASK, average)[0].backward()  # type: ignore[arg-type, no-untyped-call]
    assert logp.grad is not None
    assert ((logp.grad == 0) == (MASK == 0)).all()
