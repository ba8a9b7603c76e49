"""Token-level clipped ratio (methods, section 5), over tensors of one shape.

Every weight is already divided by the global denominator of its aggregation (see ``aggregation_weights``), so that the
sum over micro-batches and ranks is the loss, however the batch was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stages.rewards.config import LossConfig


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Sums over the tokens of one micro-batch, to be added up and divided once."""

    loss: torch.Tensor
    """Scalar with gradient."""
    clipped: float
    """Tokens whose ratio was clipped against their advantage."""
    log_ratio: float
    """Sum of log pi(behaviour) - log pi(now): over the tokens, an estimate of their KL."""


def clipped_ratio(
    config: LossConfig,
    logprobs: torch.Tensor,
    behaviour: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
) -> PolicyLoss:
    """-sum of weight * min(ratio * A, clip(ratio, 1 - eps_low, 1 + eps_high) * A).

    Args:
        logprobs: under the weights being trained, at the sampling temperature.
        behaviour: as the sampler reported them.
        weights: 0 on tokens that are not trained.
    """
    trained = weights > 0
    # Bounded before exp, so that value and gradient stay finite however far the policy has moved.
    log_ratio = torch.where(trained, logprobs - behaviour, 0.0).clamp(-20.0, 20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - config.eps_low, 1 + config.eps_high)
    objective = torch.minimum(ratio * advantages, clipped * advantages)
    with torch.no_grad():
        at_work = trained & (clipped * advantages < ratio * advantages)
    return PolicyLoss(-(weights * objective).sum(), float(at_work.sum()), float(-log_ratio.detach().sum()))


def aggregation_weights(
    config: LossConfig, lengths: Sequence[int], total_tokens: float, total_rollouts: float
) -> list[float]:
    """The weight of each trained token of rollouts with these many trained tokens, one number a rollout.

    Args:
        lengths: trained tokens of this rank's live rollouts.
        total_tokens: over all live rollouts of all ranks.
        total_rollouts: number of live rollouts of all ranks.
    """
    if config.aggregation == "token_mean":
        return [1.0 / total_tokens for _ in lengths]
    if config.aggregation == "sequence_mean":
        return [1.0 / (total_rollouts * length) if length else 0.0 for length in lengths]
    assert config.constant_tokens is not None
    return [1.0 / (total_rollouts * config.constant_tokens) for _ in lengths]
