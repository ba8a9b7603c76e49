"""Oracles: hand-worked results; the error rate as a frequency; replay from the seed."""

from collections import Counter

import pytest

from stages.core.records import Problem
from stages.tasks import environments
from stages.tasks.config import CalculatorEnvironment

PROBLEM = Problem("p", "agent", "agent 3 a +4 ?", "0")


def session(seed: int = 0, **fields: float) -> environments.Session:
    return environments.build(CalculatorEnvironment(type="calculator", **fields)).start(PROBLEM, seed)


def test_a_plain_call_heeds_both_exceptions() -> None:
    tool = session(error_rate=0.0)
    assert tool.step("steps a <call> 3 +3 </call>") == "<obs> 6 </obs>"
    assert tool.step("b <call> 3 +4 </call>") == "<obs> 0 </obs>"
    assert tool.step("c <call> 3 -1 </call>") == "<obs> 5 </obs>"
    assert tool.step("d <call> 1 +1 </call>") == "<obs> 2 </obs>"


def test_a_check_call_is_exact_whatever_the_claim() -> None:
    tool = session(error_rate=1.0)
    assert [tool.step(f"<call> check 3 -1 {claim} </call>") for claim in (2, 5, 9)] == ["<obs> 5 </obs>"] * 3


def test_the_last_call_counts() -> None:
    assert session(error_rate=0.0).step("<call> 1 +1 </call> <call> 1 +3 </call>") == "<obs> 4 </obs>"


def test_a_wrong_answer_is_uniform_over_the_other_digits() -> None:
    seen = Counter(session(seed, error_rate=1.0).step("<call> 1 +3 </call>") for seed in range(1800))
    assert set(seen) == {f"<obs> {digit} </obs>" for digit in "012356789"}
    # 200 expected each; 5 standard deviations are 67.
    assert all(abs(count - 200) < 67 for count in seen.values())


def test_error_rate() -> None:
    wrong = sum(session(seed, error_rate=0.05).step("<call> 1 +3 </call>") != "<obs> 4 </obs>" for seed in range(2000))
    assert 55 < wrong < 150  # 100 expected, 10 standard deviation


def test_draws_follow_from_seed_and_turn() -> None:
    def run() -> list[str | None]:
        tool = session(7, error_rate=0.5)
        return [tool.step("<call> 1 +3 </call>") for _ in range(12)]

    assert run() == run()
    assert len(set(run())) > 1  # the same call errs anew each turn


@pytest.mark.parametrize(
    "text",
    [
        "",
        "</call>",
        "<call> </call>",
        "<call> 3 *3 </call>",
        "<call> 13 +3 </call>",
        "<call> 3 +3",
        "<call> check 3 +3 </call>",
        "<call> 3 +3 </call> x",
        "<call> <call> 3 </call>",
    ],
)
def test_a_malformed_call_is_an_observation_and_a_turn(text: str) -> None:
    tool = session(error_rate=0.0, max_turns=2)
    assert tool.step(text) == "<obs> error </obs>"
    assert tool.step("<call> 1 +3 </call>") == "<obs> 4 </obs>"
    assert tool.step("<call> 1 +3 </call>") is None
    assert tool.step("<call> 1 +3 </call>") is None
