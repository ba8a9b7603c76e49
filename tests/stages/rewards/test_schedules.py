"""Warm-up, tau and its clock, collapse watch. Oracle: hand-worked values and invariants."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.rewards.collapse import CollapseState, has_collapsed, observe
from stages.rewards.config import CollapseWatch, TauAnnealing, WarmupConfig
from stages.rewards.schedules import length_weight, next_clock, tau_at


def test_warm_up_is_off_before_w_and_on_from_w():
    assert [length_weight(WarmupConfig(steps=3), step) for step in range(5)] == [0, 0, 0, 1, 1]
    assert length_weight(WarmupConfig(), 0) == 1


def test_ramp_rises_in_equal_parts():
    warmup = WarmupConfig(steps=2, ramp_steps=3)
    assert [length_weight(warmup, step) for step in range(7)] == [0, 0, 0.25, 0.5, 0.75, 1, 1]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("linear", [4, 3.4, 2.8, 2.2, 1.6]), ("geometric", [4, 3.1810, 2.5298, 2.0119, 1.6])],
)
def test_tau_moves_from_start_to_end(kind, expected):
    """4 -> 1.6 in 4 steps; geometric factor 0.4^(1/4)."""
    annealing = TauAnnealing(steps=4, kind=kind)
    assert [tau_at(annealing, 4, 1.6, clock) for clock in range(5)] == pytest.approx(expected, abs=1e-4)


def test_cosine_tau_is_half_way_in_the_middle():
    annealing = TauAnnealing(steps=4, kind="cosine")
    taus = [tau_at(annealing, 4, 2, clock) for clock in range(5)]
    assert taus == pytest.approx([4, 3 + 2**-0.5, 3, 3 - 2**-0.5, 2])


def test_tau_without_annealing_is_the_cells_own():
    assert tau_at(TauAnnealing(), 4, 1.6, 0) == 1.6


@given(
    st.sampled_from(["linear", "cosine", "geometric"]),
    st.integers(0, 30),
    st.floats(0.1, 10),
    st.floats(0.1, 10),
    st.integers(0, 40),
)
def test_tau_stays_between_its_ends_and_holds(kind, steps, start, end, clock):
    annealing = TauAnnealing(steps=steps, kind=kind)
    tau = tau_at(annealing, start, end, clock)
    assert min(start, end) - 1e-9 <= tau <= max(start, end) + 1e-9
    if clock >= steps:
        assert tau == end


def test_the_clock_stands_while_too_many_groups_are_unreachable():
    annealing = TauAnnealing(steps=10, hold_above_unreachable=0.5)
    clocks, clock = [], 0
    for share in (0.0, 0.5, 0.51, 0.9, 0.2):
        clock = next_clock(annealing, clock, share)
        clocks.append(clock)
    assert clocks == [1, 2, 2, 2, 3]


def test_a_hold_share_of_one_never_holds():
    assert next_clock(TauAnnealing(), 4, 1.0) == 5


def watch_over(watch, accuracies) -> list[bool]:
    state, alarms = CollapseState(), []
    for step, accuracy in enumerate(accuracies):
        state = observe(watch, state, step, accuracy)
        alarms.append(has_collapsed(watch, state))
    return alarms


def test_collapse_needs_patience_steps_in_a_row():
    """Start 0.8, share 0.5: the line is 0.4, and exactly 0.4 is not below it."""
    watch = CollapseWatch(share=0.5, patience_steps=2)
    assert watch_over(watch, [0.8, 0.39, 0.4, 0.39, 0.39, 0.1]) == [False, False, False, False, True, True]


def test_a_start_at_zero_never_alarms():
    assert not any(watch_over(CollapseWatch(patience_steps=1), [0.0] * 5))


def test_the_best_step_is_the_first_of_equals():
    state = CollapseState()
    for step, accuracy in enumerate([0.5, 0.9, 0.9, 0.2]):
        state = observe(CollapseWatch(), state, step, accuracy)
    assert (state.best, state.best_step, state.start) == (0.9, 1, 0.5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(0, 29))
def test_a_watch_restored_from_json_goes_on_as_if_never_stopped(accuracies, cut):
    watch = CollapseWatch(patience_steps=2)
    state = resumed = CollapseState()
    for step, accuracy in enumerate(accuracies):
        state = observe(watch, state, step, accuracy)
        if step == cut:
            resumed = CollapseState(**json.loads(json.dumps(asdict(resumed))))
        resumed = observe(watch, resumed, step, accuracy)
    assert resumed == state
