"""Shapes, gates and their composition. Oracle: the worked values of methods 4 and 6, and invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.rewards.config import BudgetOverride, NoShape, ShapeConfig, WarmupConfig
from stages.rewards.gate import acts_on, gate_warning, is_reachable
from stages.rewards.group import GroupView, exceeds, limit_tokens
from stages.rewards.shapes import SHAPES, shape
from stages.rewards.shaping import shape_group

AT_ONCE = WarmupConfig()
OVERRIDE = BudgetOverride(over_value=-1.0)
GATES = ("none", "success", "reachable")


def group(rewards, tokens, *, b0=10.0, tau=1.0, cap=10_000, truncated=None, step=0) -> GroupView:
    """A group; a reward of None is unscored."""
    rewards_G = np.array([math.nan if reward is None else reward for reward in rewards], dtype=np.float64)
    tokens_G = np.array(tokens, dtype=np.int64)
    return GroupView(
        rewards_G=rewards_G,
        correct_G=rewards_G >= 1.0,
        counted_G=tokens_G,
        response_G=tokens_G + 3,
        truncated_G=np.array([False] * len(rewards) if truncated is None else truncated),
        b0_tokens=b0,
        tau=tau,
        cap_tokens=cap,
        step=step,
    )


def shaped(config, gate, view, warmup=AT_ONCE) -> list[float]:
    return shape_group(config, gate, warmup, view).rewards_G.tolist()


def test_every_config_variant_has_a_row():
    """Invariant: the table and the config's union name the same shapes."""
    variants = ShapeConfig.__origin__.__args__
    assert {variant.model_fields["type"].default for variant in variants} == set(SHAPES)


def test_budget_override_worked_value():
    view = group([1, 1, 1], [5999, 6000, 6001], b0=4000, tau=1.5)
    assert shape(OVERRIDE, view).tolist() == [1, 1, -1]


def test_budget_override_counts_the_models_tokens_only():
    """T = 5 of a span of 9, limit 6: kept; exactly 6 kept; 7 over."""
    assert shape(OVERRIDE, group([1, 1, 1], [5, 6, 7], b0=6)).tolist() == [1, 1, -1]


@pytest.mark.parametrize(("tau", "b0", "limit"), [(0.29, 100, 29), (1.1, 10, 11), (0.07, 100, 7), (2.3, 300, 690)])
def test_exactly_the_limit_is_allowed_though_the_product_rounds(tau, b0, limit):
    """Oracle: the products in decimal."""
    assert exceeds([limit, limit + 1], limit_tokens(tau, b0, 10_000)).tolist() == [False, True]


def test_the_cap_is_a_limit_too():
    assert shape(OVERRIDE, group([1, 1], [50, 51], b0=10, tau=10, cap=50)).tolist() == [1, -1]


def test_truncated_is_over_budget_whatever_its_length():
    view = group([0, 1], [1, 1], truncated=[True, False])
    assert view.over_budget_G.tolist() == [True, False]
    assert shape(OVERRIDE, view).tolist() == [-1, 1]


def test_zero_lengths_give_finite_rewards():
    assert shaped(OVERRIDE, "none", group([0, 0, 0, 0], [0, 0, 0, 0])) == [0, 0, 0, 0]
    assert shaped(OVERRIDE, "none", group([1, 1, 1, 1], [800] * 4, b0=800)) == [1, 1, 1, 1]


def test_unscored_rollouts_stay_unscored():
    result = shape_group(OVERRIDE, "none", AT_ONCE, group([1, None, 0], [5, 50, 50]))
    assert result.scored_G.tolist() == [True, False, True]
    np.testing.assert_array_equal(result.rewards_G, [1, math.nan, -1])


# right in budget, right over, wrong in budget, wrong over
MIXED = ([1, 1, 0, 0], [5, 20, 5, 20])


@pytest.mark.parametrize(
    ("gate", "expected"),
    [("none", [1, -1, 0, -1]), ("success", [1, -1, 0, 0]), ("reachable", [1, -1, 0, 0])],
)
def test_gates_on_a_group_with_a_short_success(gate, expected):
    assert shaped(OVERRIDE, gate, group(*MIXED)) == expected


@pytest.mark.parametrize(
    ("gate", "expected"),
    [("none", [-1, 0, -1]), ("success", [-1, 0, 0]), ("reachable", [1, 0, 0])],
)
def test_gates_on_a_group_whose_only_success_is_long(gate, expected):
    """``reachable`` puts no pressure on it, and says that the group is unreachable."""
    view = group([1, 0, 0], [20, 5, 20])
    assert shaped(OVERRIDE, gate, view) == expected
    assert not shape_group(OVERRIDE, gate, AT_ONCE, view).reachable


@pytest.mark.parametrize("gate", ["success", "reachable"])
def test_graded_rewards_of_wrong_answers_keep_their_own_signal(gate):
    assert shaped(OVERRIDE, gate, group([0.5, 0.25], [20, 5])) == [0.5, 0.25]


def test_reachable_is_success_for_a_shape_without_budget():
    correct_G, over_G = np.array([True, False]), np.array([False, False])
    assert acts_on("reachable", correct_G, over_G).tolist() == acts_on("success", correct_G, over_G).tolist()
    assert shaped(NoShape(), "reachable", group([1, 0.5], [99, 99])) == [1, 0.5]


def test_a_truncated_success_does_not_make_a_group_reachable():
    assert not is_reachable(np.array([True]), np.array([True]))
    assert not shape_group(OVERRIDE, "reachable", AT_ONCE, group([1], [1], truncated=[True])).reachable


def test_only_success_with_a_negative_over_value_draws_a_warning():
    """Oracle: the one pair that collapsed in the published trials."""
    warned = [
        (gate, value) for gate in GATES for value in (0.0, -1.0) if gate_warning(gate, BudgetOverride(over_value=value))
    ]
    assert warned == [("success", -1.0)]
    assert gate_warning("success", NoShape()) is None


@pytest.mark.parametrize(("step", "expected"), [(0, 1.0), (1, 0.0), (2, -1.0), (3, -1.0)])
def test_warm_up_mixes_raw_and_shaped(step, expected):
    """r = R + w (shaped - R), w 0, 1/2, 1: R = 1, shaped = -1."""
    view = group([1, 1], [5, 20], step=step)
    assert shaped(OVERRIDE, "reachable", view, WarmupConfig(steps=1, ramp_steps=1)) == [1.0, expected]


def test_a_group_view_refuses_what_cannot_be():
    with pytest.raises(ValueError, match="shapes"):
        group([1, 0], [1])
    with pytest.raises(ValueError, match="finite"):
        group([math.inf], [1])
    view = group([None], [1])
    with pytest.raises(ValueError, match="unscored"):
        GroupView(**{name: getattr(view, name) for name in view.__slots__} | {"correct_G": np.array([True])})


rewards = st.one_of(st.none(), st.sampled_from([0.0, 1.0]), st.floats(0, 1))
members = st.lists(st.tuples(rewards, st.integers(0, 200), st.booleans()), min_size=1, max_size=10)
overrides = st.floats(-1, 0).map(lambda value: BudgetOverride(over_value=value))
shapes = st.one_of(st.just(NoShape()), overrides)


def view_of(found, tau=1.0, b0=50.0) -> GroupView:
    return group([r for r, _, _ in found], [t for _, t, _ in found], truncated=[c for _, _, c in found], tau=tau, b0=b0)


@given(members, shapes, st.sampled_from(GATES), st.randoms(use_true_random=False))
def test_shaping_commutes_with_a_permutation_of_the_group(found, config, gate, random):
    order = list(range(len(found)))
    random.shuffle(order)
    straight = shape_group(config, gate, AT_ONCE, view_of(found)).rewards_G[order]
    permuted = shape_group(config, gate, AT_ONCE, view_of([found[i] for i in order])).rewards_G
    np.testing.assert_array_equal(straight, permuted)


@given(members, shapes, st.sampled_from(GATES), st.floats(1e-3, 1e3), st.floats(0, 1e6))
def test_nan_marks_the_unscored_alone_and_rewards_stay_in_bounds(found, config, gate, tau, b0):
    view = view_of(found, tau, b0)
    result = shape_group(config, gate, AT_ONCE, view)
    np.testing.assert_array_equal(np.isnan(result.rewards_G), ~view.scored_G)
    scored = result.rewards_G[view.scored_G]
    assert (scored <= view.rewards_G[view.scored_G]).all()
    assert (scored >= -1).all()


@given(members, overrides, st.sampled_from(["success", "reachable"]))
def test_wrong_answers_are_never_shaped_behind_a_gate(found, config, gate):
    view = view_of(found)
    wrong_G = view.scored_G & ~view.correct_G
    result = shape_group(config, gate, AT_ONCE, view)
    np.testing.assert_array_equal(result.rewards_G[wrong_G], view.rewards_G[wrong_G])


@given(members, overrides)
def test_reachable_never_ranks_every_success_below_a_failure(found, config):
    """What the gate is for: where something is right, the best right answer is at least as good as any wrong one."""
    view = view_of(found)
    rewards_G = shape_group(config, "reachable", AT_ONCE, view).rewards_G
    wrong_G = view.scored_G & ~view.correct_G
    if view.correct_G.any() and wrong_G.any():
        assert rewards_G[view.correct_G].max() >= rewards_G[wrong_G].max()


@given(st.integers(0, 200), st.integers(0, 200), st.floats(-1, 0))
def test_budget_override_never_rises_with_length(first, second, over_value):
    shorter, longer = sorted((first, second))
    rewards_G = shape(BudgetOverride(over_value=over_value), group([1, 1], [shorter, longer], b0=50))
    assert rewards_G[0] >= rewards_G[1]
