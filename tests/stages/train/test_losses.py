"""Oracles: hand-worked values of the methods, autograd on the written-out formula, and invariance to the cut."""

from __future__ import annotations

import math

import pytest
import torch

from stages.rewards.config import LossConfig
from stages.train.kl_loss import full_reverse_kl, sampled_reverse_kl
from stages.train.policy_loss import aggregation_weights, clipped_ratio

TEACHER = torch.tensor([[0.8, 0.2]]).log()
STUDENT = torch.tensor([[0.5, 0.5]]).log()
ONE = torch.ones(1)


def test_direction_is_reverse() -> None:
    # KL(student || teacher) = .5 ln(.5/.8) + .5 ln(.5/.2) = .223144; the forward one would be .192745.
    assert float(full_reverse_kl(STUDENT, TEACHER, ONE, 1.0).loss) == pytest.approx(0.223144, abs=1e-6)


def test_full_gradient_is_that_of_the_formula_written_out() -> None:
    logits = torch.tensor([[0.3, -1.2]], dtype=torch.float64, requires_grad=True)
    full_reverse_kl(logits, TEACHER.double(), ONE.double(), 1.0).loss.backward()
    p = 1 / (1 + math.exp(-1.5))
    ratio_0, ratio_1 = math.log(p / 0.8), math.log((1 - p) / 0.2)
    kl = p * ratio_0 + (1 - p) * ratio_1
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([p * (ratio_0 - kl), (1 - p) * (ratio_1 - kl)], abs=1e-6)


def test_self_distillation_is_exactly_zero() -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 11)
    ids, weights = torch.arange(5), torch.ones(5)
    full = full_reverse_kl(logits, logits, weights, 0.7)
    sampled = sampled_reverse_kl(logits, logits, ids, weights, 0.7, 5.0)
    assert float(full.loss) == 0.0
    assert full.kl_N.abs().max() == 0.0
    assert float(sampled.loss) == 0.0


def test_sampled_advantage_is_clipped_and_detached() -> None:
    # log pi_T -0.5, log pi_S -2.0, r_max 1 -> advantage +1: the loss is +2.0 and its gradient that of -log pi_S.
    student = torch.tensor([[-2.0, math.log(1 - math.exp(-2.0))]], requires_grad=True)
    teacher = torch.tensor([[-0.5, math.log(1 - math.exp(-0.5))]])
    result = sampled_reverse_kl(student, teacher, torch.tensor([0]), ONE, 1.0, 1.0)
    result.loss.backward()
    assert float(result.loss.detach()) == pytest.approx(2.0, abs=1e-5)
    assert result.clipped == 1.0
    assert student.grad is not None
    assert student.grad[0].tolist() == pytest.approx([-(1 - math.exp(-2.0)), 1 - math.exp(-2.0)], abs=1e-5)


def test_sampled_gradient_with_a_detached_weight_has_the_published_value() -> None:
    # Logits [.5, -.5], token 0, teacher probability .9: gradient of the undetached form would be +-.140162.
    logits = torch.tensor([[0.5, -0.5]], requires_grad=True)
    teacher = torch.tensor([[0.9, 0.1]]).log()
    sampled_reverse_kl(logits, teacher, torch.tensor([0]), ONE, 1.0, math.inf).loss.backward()
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-0.055913, 0.055913], abs=1e-5)


def test_both_are_divided_by_the_sampling_temperature() -> None:
    # Logits [2, 0] at temperature .5: log-prob of token 0 is -0.018150.
    student = torch.tensor([[2.0, 0.0]])
    uniform = torch.zeros(1, 2)
    result = sampled_reverse_kl(student, uniform, torch.tensor([0]), ONE, 0.5, math.inf)
    assert float(result.kl_N[0]) == pytest.approx(-0.018150 - math.log(0.5), abs=1e-5)


def policy(logprobs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor) -> float:
    return float(clipped_ratio(LossConfig(), logprobs, torch.zeros_like(logprobs), advantages, weights).loss)


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "loss"),
    [
        (math.log(1.1), 1.0, -1.1),  # inside the band
        (math.log(1.5), 1.0, -1.2),  # too far up: clipped at 1 + .2
        (math.log(1.5), -1.0, 1.5),  # too far up with a negative advantage: not clipped
        (math.log(0.5), -1.0, 0.8),  # too far down: clipped at 1 - .2
        (math.log(0.5), 1.0, -0.5),
    ],
)
def test_clipped_ratio(log_ratio: float, advantage: float, loss: float) -> None:
    assert policy(torch.tensor([log_ratio]), torch.tensor([advantage]), ONE) == pytest.approx(loss, abs=1e-6)


def test_a_huge_log_ratio_stays_finite_in_value_and_gradient() -> None:
    logprobs = torch.tensor([100.0, 5.0], requires_grad=True)
    loss = clipped_ratio(LossConfig(), logprobs, torch.zeros(2), torch.tensor([-1.0, 1.0]), torch.ones(2)).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()


def test_tokens_without_weight_leave_no_trace() -> None:
    behaviour, advantages = torch.zeros(2), torch.ones(2)
    weights = torch.tensor([1.0, 0.0])
    plain = clipped_ratio(LossConfig(), torch.tensor([0.1, 0.0]), behaviour, advantages, weights)
    wild = clipped_ratio(LossConfig(), torch.tensor([0.1, -50.0]), behaviour, advantages, weights)
    assert float(plain.loss) == float(wild.loss)
    assert plain.log_ratio == wild.log_ratio


@pytest.mark.parametrize(("aggregation", "expected"), [("token_mean", 1.5), ("sequence_mean", 2.0), ("constant", 0.75)])
def test_aggregations(aggregation: str, expected: float) -> None:
    # A: one token of loss 3; B: three tokens of loss 1 each; constant length 4.
    config = LossConfig(aggregation=aggregation, constant_tokens=4)  # type: ignore[arg-type]
    a, b = aggregation_weights(config, [1, 3], total_tokens=4, total_rollouts=2)
    assert 3 * a + 3 * b == pytest.approx(expected)
