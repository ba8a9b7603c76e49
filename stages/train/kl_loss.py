"""Distillation losses over the response tokens of one micro-batch (methods, section 7).

Axes: N response tokens that the model wrote, flattened over rows; V real vocabulary (padding rows already cut off).
Direction: reverse KL(student || teacher). Logits are divided by the sampling temperature before the softmax, the same
for both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

CHUNK_TOKENS = 2048
"""Tokens whose (N, V) softmax is alive at once, beside the logits themselves."""


@dataclass(frozen=True, slots=True)
class TokenKL:
    """One micro-batch."""

    loss: torch.Tensor
    """Scalar with gradient: sum of weight * per-token term."""
    kl_N: torch.Tensor
    """Full reverse KL per token in nats, or its sampled estimate; no gradient."""
    clipped: float
    """Tokens whose log-ratio was clipped (``sampled`` only)."""


def full_reverse_kl(
    student_NV: torch.Tensor, teacher_NV: torch.Tensor, weights_N: torch.Tensor, temperature: float
) -> TokenKL:
    """sum over v of P_S (log P_S - log P_T), exact over the vocabulary, in chunks of tokens.

    The gradient is written out, P_S (log P_S - log P_T - KL) on the logits: what autograd makes of the formula
    is zero only up to rounding where the two agree, and an adaptive optimiser turns rounding into full-size steps.
    """
    loss = student_NV.new_zeros(())
    values = []
    for start in range(0, len(student_NV), CHUNK_TOKENS):
        rows = slice(start, start + CHUNK_TOKENS)
        student = torch.log_softmax(student_NV[rows].float() / temperature, dim=-1)
        teacher = torch.log_softmax(teacher_NV[rows].float() / temperature, dim=-1)
        with torch.no_grad():
            probabilities, log_ratio = student.exp(), student - teacher
            kl = (probabilities * log_ratio).sum(-1)
            slope = weights_N[rows, None] * probabilities * (log_ratio - kl[:, None])
        # Its value is the KL, its gradient the slope.
        carrier = (slope * student).sum()
        loss = loss + (weights_N[rows] * kl).sum() + (carrier - carrier.detach())
        values.append(kl)
    return TokenKL(loss, torch.cat(values) if values else weights_N.new_zeros(0), 0.0)


def sampled_reverse_kl(
    student_NV: torch.Tensor,
    teacher_NV: torch.Tensor,
    token_ids_N: torch.Tensor,
    weights_N: torch.Tensor,
    temperature: float,
    r_max: float,
) -> TokenKL:
    """Policy gradient with the token advantage A = clip(log pi_T - log pi_S, -r_max, r_max), detached.

    The loss is -sum of weight * A * log pi_S; its gradient estimates that of the full reverse KL from one token.
    """
    index = token_ids_N[:, None]
    student_N = torch.log_softmax(student_NV.float() / temperature, dim=-1).gather(1, index)[:, 0]
    teacher_N = torch.log_softmax(teacher_NV.float() / temperature, dim=-1).gather(1, index)[:, 0]
    log_ratio_N = (teacher_N - student_N).detach()
    advantages_N = log_ratio_N.clamp(-r_max, r_max)
    loss = -(weights_N * advantages_N * student_N).sum()
    return TokenKL(loss, -log_ratio_N, float((log_ratio_N.abs() > r_max).sum()))
