"""What a person reads. Oracle: the lines, character by character but for the clock."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from flows.book import covered
from flows.progress import Bars, Lines, display, headline, numbers_of


def _lines(text: str) -> list[str]:
    return [re.sub(r"^ *[0-9.]+ s  ", "", line) for line in text.splitlines()]


def test_lines_say_start_and_end_and_do_not_flood() -> None:
    out = io.StringIO()
    with display(Console(file=out, width=40)) as screen:
        assert type(screen) is Lines
        screen.started("rl.code.low", "tau.code.low 0.8 -> 0.7")
        for step in range(1000):
            screen.step("rl.code.low", step, 1000, {"reward": 0.5})
        screen.note("rl.code.low: warning: [odd] text stays as it is")
        screen.ended("rl.code.low", 12.34, {"accuracy": 0.912, "tokens": 14.25, "unknown": 3, "kl": None})
        screen.failed("rl.code.high", "rl.code.high: got SIGKILL")
    assert _lines(out.getvalue()) == [
        "rl.code.low: started (tau.code.low 0.8 -> 0.7)",
        "rl.code.low: warning: [odd] text stays as it is",
        "rl.code.low: done in 12.3 s, accuracy 0.912, tokens 14.2",
        "rl.code.high: failed: got SIGKILL",
    ]


def test_a_terminal_gets_bars_that_go_when_the_stage_ends() -> None:
    out = io.StringIO()
    with display(Console(file=out, width=120, force_terminal=True)) as screen:
        assert isinstance(screen, Bars)
        screen.started("sft", "no artifact yet")
        screen.step("sft", 30, 60, {"loss": 1.5})
        assert [(task.description, task.completed, task.total) for task in screen._progress.tasks] == [("sft", 30, 60)]
        screen.ended("sft", 1.0, {"loss": 1.25})
        assert screen._progress.tasks == []
        screen.failed("merge", "never begun")
    assert "done in 1.0 s, loss 1.25" in out.getvalue()


def test_the_first_three_known_numbers_are_shown() -> None:
    metrics = {"tokens": 14.25, "reward": 0.9125, "loss": 1.0, "accuracy": 0.5, "grad_norm": 3.0}
    assert numbers_of(metrics) == "reward 0.912  accuracy 0.5  loss 1"
    assert headline({"grad_norm": 1.0}) == ""


@pytest.mark.parametrize(
    ("intervals", "length"),
    [([], 0), ([(1, 3), (2, 4)], 3), ([(5, 6), (1, 2)], 2), ([(1, 9), (2, 3)], 8), ([(1, 2), (2, 3)], 2)],
)
def test_overlapping_work_counts_once(intervals: list[tuple[float, float]], length: float) -> None:
    assert covered(intervals) == length
