"""Advantages. Oracle: the worked values of methods 5 and of the published failures, and invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.rewards.config import BudgetOverride, CreditConfig, WarmupConfig
from stages.rewards.credit import DEAD_RANGE, Credit, advantages, lr_scale_of
from stages.rewards.group import GroupView
from stages.rewards.shaping import shape_group


def credit(ids, rewards, kind="centered", *, correct=None, over=None, eps=0.0) -> Credit:
    """A batch; a reward of None is unscored; correct is R == 1 unless said."""
    shaped_N = np.array([math.nan if reward is None else reward for reward in rewards], dtype=np.float64)
    return advantages(
        CreditConfig(type=kind, eps=eps),
        list(ids),
        shaped_N,
        ~np.isnan(shaped_N),
        shaped_N >= 1 if correct is None else np.array(correct, dtype=bool),
        np.zeros(len(rewards), dtype=bool) if over is None else np.array(over, dtype=bool),
    )


def test_equal_rewards_are_dead_and_exactly_zero():
    """[[1,1,1,1],[0,0,0,0],[1,0,1,0]] -> eight zeros, then +-0.8660 (sample std)."""
    result = credit("aaaabbbbcccc", [1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0], "grpo")
    assert result.advantages_N[:8].tolist() == [0.0] * 8
    assert result.advantages_N[8:] == pytest.approx(np.array([1, -1, 1, -1]) * 0.8660254)
    assert result.live_N.tolist() == [False] * 8 + [True] * 4
    assert result.frac_reward_zero_std == pytest.approx(2 / 3)
    assert (result.dead_all_correct, result.dead_all_wrong, result.live_groups) == (1, 1, 1)


def test_rounding_residue_is_never_divided_by():
    """Seven 0.4 and a -0.2: z-score -2.4749, within (n-1)/sqrt(n); eight 0.4: dead."""
    result = credit("a" * 8, [0.4] * 7 + [-0.2], "grpo")
    assert result.advantages_N[-1] == pytest.approx(-2.4749, abs=1e-4)
    assert np.abs(result.advantages_N).max() <= 7 / math.sqrt(8) + 1e-12
    assert credit("a" * 8, [0.1 + 0.2, 0.3] * 4, "grpo").advantages_N.tolist() == [0.0] * 8


def test_statistics_are_of_the_group_not_of_the_batch():
    result = credit("aaaabbbb", [1, 1, 1, 0, 0, 0, 0, 1], "grpo")
    assert result.advantages_N == pytest.approx([0.5, 0.5, 0.5, -1.5, -0.5, -0.5, -0.5, 1.5])


def test_unscored_rollouts_leave_the_group():
    result = credit("aaaa", [1.0, None, 0.0, 1.0])
    assert result.advantages_N == pytest.approx([1 / 3, 0, -2 / 3, 1 / 3])
    assert result.live_N.tolist() == [True, False, True, True]


def test_short_groups_do_not_mix_with_their_neighbours():
    result = credit("aaabbbb", [1, 0, 1, 0, 0, 1, 1])
    assert result.advantages_N == pytest.approx([1 / 3, -2 / 3, 1 / 3, -0.5, -0.5, 0.5, 0.5])


def test_groups_split_over_ranks_are_found_by_id():
    """Layout [A,A][A,B][B,B] and any other order of the rows give each row the same advantage."""
    ids, rewards = "aaabbb", [1, 0, 0, 1, 1, 0]
    expected = np.array([2 / 3, -1 / 3, -1 / 3, 1 / 3, 1 / 3, -2 / 3])
    assert credit(ids, rewards).advantages_N == pytest.approx(expected)
    order = [3, 0, 4, 1, 5, 2]
    mixed = credit([ids[i] for i in order], [rewards[i] for i in order])
    assert mixed.advantages_N == pytest.approx(expected[order])


def test_auto_centres_an_all_correct_group():
    assert credit("aa", [1, 0.5], "auto", correct=[True, True]).advantages_N.tolist() == [0.25, -0.25]


def test_auto_normalises_a_mixed_group():
    assert credit("aaa", [1, 0.5, 0], "auto", correct=[True, True, False]).advantages_N.tolist() == [1, 0, -1]
    with_eps = credit("aaa", [1, 0.5, 0], "auto", correct=[True, True, False], eps=1e-6)
    assert with_eps.advantages_N == pytest.approx([0.5 / 0.500001, 0, -0.5 / 0.500001], rel=1e-12)


def test_the_dead_range_is_closed():
    assert credit("aa", [0.0, DEAD_RANGE]).live_groups == 0
    assert credit("aa", [0.0, 2 * DEAD_RANGE]).live_groups == 1


def test_dead_groups_are_told_apart():
    result = credit(
        "ccwwooommsssll",
        [1, 1, 0, 0, -1, -1, -1, 0, 0, 1, None, None, 1, 0],
        correct=[1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0],
        over=[0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0],
    )
    assert result.groups == 6
    assert result.live_groups == 1
    assert (result.dead_all_correct, result.dead_all_wrong, result.dead_all_over_budget) == (1, 1, 1)
    assert (result.dead_mixed, result.dead_too_few_scored) == (1, 1)
    assert result.frac_dead_groups == pytest.approx(5 / 6)
    assert result.frac_reward_zero_std == pytest.approx(4 / 6)
    assert result.live_share == pytest.approx(1 / 6)


def test_a_batch_without_groups_has_no_live_share():
    result = credit([], [])
    assert (result.live_share, result.frac_dead_groups, result.frac_reward_zero_std) == (0, 0, 0)


@pytest.mark.parametrize(("live", "floor", "scale"), [(1, 0.5, 1), (0.5, 0.5, 1), (0.125, 0.5, 0.25), (0, 0.5, 0)])
def test_learning_rate_follows_the_live_share(live, floor, scale):
    assert lr_scale_of(live, floor) == scale


def test_a_floor_of_zero_leaves_the_learning_rate_alone():
    assert lr_scale_of(0.0, 0.0) == 1


def test_bad_batches_are_refused():
    with pytest.raises(ValueError, match="group ids"):
        credit("a", [1, 0])
    with pytest.raises(ValueError, match="finite"):
        credit("aa", [1, math.inf])


groups_of_rewards = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.sampled_from([0.0, 1.0, -1.0]), st.floats(-1, 1))),
    max_size=24,
)
kinds = st.sampled_from(["auto", "grpo", "centered"])


@given(groups_of_rewards, kinds, st.sampled_from([0.0, 1e-6]), st.randoms(use_true_random=False))
def test_no_order_of_the_batch_changes_a_bit(rows, kind, eps, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    straight = credit([i for i, _ in rows], [r for _, r in rows], kind, eps=eps)
    mixed = credit([rows[i][0] for i in order], [rows[i][1] for i in order], kind, eps=eps)
    np.testing.assert_array_equal(straight.advantages_N[order], mixed.advantages_N)
    np.testing.assert_array_equal(straight.live_N[order], mixed.live_N)


@given(groups_of_rewards, kinds, st.sampled_from([0.0, 1e-6]))
def test_advantages_are_finite_and_sum_to_zero_in_every_live_group(rows, kind, eps):
    result = credit([i for i, _ in rows], [r for _, r in rows], kind, eps=eps)
    assert np.isfinite(result.advantages_N).all()
    assert (result.advantages_N[~result.live_N] == 0).all()
    for name in "abc":
        members = np.array([i == name for i, _ in rows], dtype=bool)
        assert math.fsum(result.advantages_N[members]) == pytest.approx(0, abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0.1, 10), st.floats(-5, 5))
def test_grpo_knows_neither_scale_nor_offset_of_the_reward(rewards, scale, offset):
    """Invariant of the z-score, where the group is well alive both ways."""
    values = np.array(rewards)
    if np.ptp(values) < 0.01:
        return
    plain = credit("a" * len(values), values, "grpo").advantages_N
    moved = credit("a" * len(values), values * scale + offset, "grpo").advantages_N
    assert moved == pytest.approx(plain, abs=1e-9)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=2, max_size=8),
    st.floats(-1, 0),
    st.sampled_from(["success", "reachable"]),
    kinds,
)
def test_an_all_wrong_group_teaches_nothing_behind_a_gate(members, over_value, gate, kind):
    """Binary R: shaping, then credit, gives exactly zero whatever the lengths."""
    size = len(members)
    view = GroupView(
        rewards_G=np.zeros(size),
        correct_G=np.zeros(size, dtype=bool),
        counted_G=np.array([tokens for tokens, _ in members]),
        response_G=np.array([tokens for tokens, _ in members]),
        truncated_G=np.array([cut for _, cut in members]),
        b0_tokens=20,
        tau=1.0,
        cap_tokens=90,
        step=0,
    )
    found = shape_group(BudgetOverride(over_value=over_value), gate, WarmupConfig(), view)
    result = advantages(
        CreditConfig(type=kind), ["g"] * size, found.rewards_G, found.scored_G, view.correct_G, found.over_budget_G
    )
    assert result.advantages_N.tolist() == [0.0] * size
    assert not result.live_N.any()
