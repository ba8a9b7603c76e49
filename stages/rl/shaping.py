"""From a batch of rollouts to advantages: budgets, tau, shape, gate and credit, over records only.

Axes: N rollouts of the batch; a group is the rollouts of one problem, found by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stages.core.records import Budget, FloatArray, Rollout
from stages.rewards.credit import Credit, advantages
from stages.rewards.group import BoolArray, GroupView, limit_tokens
from stages.rewards.shaping import shape_group
from stages.rl.config import RLJob


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A batch with its credit."""

    shaped_N: FloatArray
    """Shaped reward; NaN where unscored."""
    correct_N: BoolArray
    over_budget_N: BoolArray
    limit_N: FloatArray
    """Limit in force in tokens: min(tau * b0, cap)."""
    reachable_groups: int
    groups: int
    credit: Credit

    @property
    def unreachable_share(self) -> float:
        return 1 - self.reachable_groups / self.groups


def judge(job: RLJob, budgets: Mapping[str, Budget], rollouts: Sequence[Rollout], tau: float, step: int) -> Judged:
    """Shape every group and give credit.

    Args:
        budgets: by problem id; holds every problem of the batch.
        tau: multiplier in force.
        step: optimiser step, from 0.
    """
    size = len(rollouts)
    shaped_N, limit_N = np.zeros(size), np.zeros(size)
    correct_N, over_N, scored_N = (np.zeros(size, dtype=bool) for _ in range(3))
    members: dict[str, list[int]] = {}
    for index, rollout in enumerate(rollouts):
        members.setdefault(rollout.group, []).append(index)
    reachable = 0
    for indices in members.values():
        group = view([rollouts[index] for index in indices], budgets, job, tau, step)
        shaped = shape_group(job.rl.shape, job.rl.gate, job.rl.warmup, group)
        shaped_N[indices] = shaped.rewards_G
        scored_N[indices] = shaped.scored_G
        correct_N[indices] = group.correct_G
        over_N[indices] = shaped.over_budget_G
        limit_N[indices] = limit_tokens(tau, group.b0_tokens, group.cap_tokens)
        reachable += shaped.reachable
    credit = advantages(job.rl.credit, [rollout.group for rollout in rollouts], shaped_N, scored_N, correct_N, over_N)
    return Judged(shaped_N, correct_N, over_N, limit_N, reachable, len(members), credit)


def view(rollouts: Sequence[Rollout], budgets: Mapping[str, Budget], job: RLJob, tau: float, step: int) -> GroupView:
    """One group as the shapes see it."""
    rewards = np.array([np.nan if rollout.reward is None else rollout.reward for rollout in rollouts])
    return GroupView(
        rewards_G=rewards,
        correct_G=rewards >= job.spec.success_threshold,
        counted_G=np.array([rollout.counts.counted for rollout in rollouts], dtype=np.int64),
        response_G=np.array([rollout.counts.trainable for rollout in rollouts], dtype=np.int64),
        truncated_G=np.array([rollout.counts.truncated for rollout in rollouts]),
        b0_tokens=budgets[rollouts[0].problem.id].b0_tokens,
        tau=tau,
        cap_tokens=job.spec.cap_tokens,
        step=step,
    )


def batch_metrics(rollouts: Sequence[Rollout], judged: Judged) -> dict[str, float]:
    """The numbers of one step, raw and shaped apart. Shares are of rollouts unless they say groups."""
    scored = [index for index, rollout in enumerate(rollouts) if rollout.reward is not None]
    tokens = np.array([rollout.counts.counted for rollout in rollouts], dtype=np.float64)
    credit = judged.credit
    values = {
        "tokens": float(tokens.mean()),
        "tokens_p50": float(np.percentile(tokens, 50)),
        "tokens_p90": float(np.percentile(tokens, 90)),
        "answer_tokens": float(np.mean([rollout.counts.answer for rollout in rollouts])),
        "over_budget_share": float(judged.over_budget_N.mean()),
        "truncated_share": float(np.mean([rollout.counts.truncated for rollout in rollouts])),
        "unscored_share": 1 - len(scored) / len(rollouts),
        "unreachable_share": judged.unreachable_share,
        "dead_group_share": credit.frac_dead_groups,
        "dead_all_wrong_share": credit.dead_all_wrong / credit.groups,
        "dead_all_correct_share": credit.dead_all_correct / credit.groups,
        "dead_all_over_budget_share": credit.dead_all_over_budget / credit.groups,
        "frac_reward_zero_std": credit.frac_reward_zero_std,
        "live_share": credit.live_share,
    }
    if scored:
        values["reward"] = float(np.mean([rollouts[index].reward for index in scored]))
        values["accuracy"] = float(judged.correct_N[scored].mean())
        values["shaped_reward"] = float(judged.shaped_N[scored].mean())
    return values
