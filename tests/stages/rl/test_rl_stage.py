"""Oracles: the uninterrupted run, hand-worked groups, and the weights of a group that carries no signal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.core.errors import DataError, StageFailed, Terminated
from stages.core.files import read_jsonl
from stages.core.keys import digest_file
from stages.core.records import Budget, Problem, Rollout, Sampled, TokenCounts, Verdict
from stages.rl.config import RLConfig, RLJob
from stages.rl.shaping import batch_metrics, judge
from stages.rl.stage import run
from stages.rollout.budgets import write_parquet
from tests.stages.training import PROMPT, StopAfter, cold_start, context, domain, metrics_of, weights_of, write_problems


def job(**fields: Any) -> RLJob:
    rl = {"steps": 4, "problems_per_step": 6, "rollouts": 4, "collapse": {"patience_steps": 99}}
    return RLJob(
        **{
            "rl": RLConfig.model_validate(rl | fields.pop("rl", {})),
            "domain": "sums",
            "effort": "low",
            "tau": 1.0,
            "tau_start": 1.0,
            "conditioned": False,
            "spec": domain(),
            "prompt": PROMPT,
        }
        | fields
    )


def budget(problem_id: str, b0: float = 4.0) -> Budget:
    return Budget(problem_id, "sums", b0, 4, 2, 0.5, "medium", "p50", "none", b0, b0, 1.0)


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cold_start(tmp_path_factory.mktemp("cold") / "run")


@pytest.fixture
def inputs(tmp_path: Path, cold: Path) -> dict[str, Path]:
    (tmp_path / "budget").mkdir()
    write_parquet(tmp_path / "budget" / "budgets.parquet", [budget(f"p{index}") for index in range(12)])
    return {
        "model": cold,
        "budget": tmp_path / "budget",
        "problems": write_problems(tmp_path / "problems.jsonl"),
    }


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path, inputs: dict[str, Path]) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(job(), context(whole, inputs))
    with pytest.raises(Terminated):
        run(job(), context(cut, inputs, stop=StopAfter(cut, 2)))
    run(job(), context(cut, inputs))
    assert weights_of(cut) == weights_of(whole)
    assert metrics_of(cut) == metrics_of(whole)
    logged = [list(read_jsonl(folder / "out" / "logs" / "rollouts.jsonl")) for folder in (cut, whole)]
    assert logged[0] == logged[1]


def test_training_shortens_what_is_over_budget_and_stays_right(tmp_path: Path, inputs: dict[str, Path]) -> None:
    """A quick answer takes 1 token, steps take 3; with a limit of 2 the quick one wins."""
    config = {"steps": 25, "problems_per_step": 12, "optimizer": {"lr": 3e-3}}
    run(job(rl=config, tau=0.5, tau_start=0.5), context(tmp_path / "run", inputs))
    numbers = [values for _, values in metrics_of(tmp_path / "run")]
    assert numbers[0]["tokens"] > 1.8
    assert numbers[-1]["tokens"] < 1.4
    assert numbers[-1]["accuracy"] > numbers[0]["accuracy"]


def test_a_batch_of_dead_groups_leaves_every_weight_alone(tmp_path: Path, inputs: dict[str, Path]) -> None:
    # No answer is ever 9, so every group is all wrong; the gate lets no length term act on wrong ones.
    inputs["problems"].write_text(re.sub('"answer": "."', '"answer": "9"', inputs["problems"].read_text()))
    run(job(), context(tmp_path / "dead", inputs))
    assert weights_of(tmp_path / "dead") == digest_file(inputs["model"] / "model.safetensors")
    assert all(numbers["dead_all_wrong_share"] == 1.0 for _, numbers in metrics_of(tmp_path / "dead"))


def test_accuracy_that_falls_away_stops_the_stage(
    tmp_path: Path, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter([0.8, 0.3, 0.3, 0.3])
    plain = batch_metrics
    monkeypatch.setattr("stages.rl.stage.batch_metrics", lambda *a: plain(*a) | {"accuracy": next(accuracies)})
    with pytest.raises(StageFailed, match=r"rl\.sums\.low: got accuracy 0\.30 after a start at 0\.80"):
        run(job(rl={"collapse": {"share": 0.5, "patience_steps": 2}}), context(tmp_path / "fall", inputs))


def test_budgets_of_other_problems_are_refused(tmp_path: Path, inputs: dict[str, Path]) -> None:
    write_parquet(inputs["budget"] / "budgets.parquet", [budget("p0"), budget("elsewhere")])
    with pytest.raises(DataError, match="2 budgets of which 1 are of problems of"):
        run(job(), context(tmp_path / "other", inputs))


def test_a_cap_that_binds_for_most_problems_is_refused(tmp_path: Path, inputs: dict[str, Path]) -> None:
    with pytest.raises(DataError, match=r"sums\.low"):
        run(job(tau=3.0), context(tmp_path / "cap", inputs))


def rollout(problem: str, reward: float | None, counted: int, *, truncated: bool = False) -> Rollout:
    ids = np.arange(counted + 1)
    return Rollout(
        problem=Problem(problem, "sums", "x", "y"),
        group=f"0/{problem}",
        sample=0,
        effort=None,
        prompt_ids=np.array([1]),
        sampled=Sampled(ids, np.ones_like(ids), np.zeros(len(ids)), "length" if truncated else "stop"),
        counts=TokenCounts(counted, 1, counted + 1, truncated),
        verdict=Verdict(reward),
        answer_text="",
        temperature=1.0,
    )


def test_judging_a_batch_by_hand() -> None:
    # Limit 1 * 4 tokens, over_value -1, gate reachable. Group a: right in budget, right but long, wrong, unscored.
    # Group b has no right answer in budget: it is unreachable, so its long right answer keeps its 1.
    rollouts = [
        rollout("a", 1.0, 4),
        rollout("b", 1.0, 6),
        rollout("a", 1.0, 5),
        rollout("b", 0.0, 2),
        rollout("a", 0.0, 9),
        rollout("a", None, 1),
    ]
    judged = judge(job(), {name: budget(name) for name in "ab"}, rollouts, tau=1.0, step=0)
    np.testing.assert_array_equal(judged.shaped_N, [1, 1, -1, 0, 0, np.nan])
    assert judged.unreachable_share == 0.5
    # Group a: mean 0, sample deviation 1. Group b: mean .5, deviation 1/sqrt(2).
    np.testing.assert_allclose(judged.credit.advantages_N, [1, 0.5**0.5, -1, -(0.5**0.5), 0, 0], atol=1e-5)
    numbers = batch_metrics(rollouts, judged)
    assert numbers["reward"] == numbers["accuracy"] == pytest.approx(0.6)
    assert numbers["shaped_reward"] == pytest.approx(0.2)
    assert numbers["unscored_share"] == pytest.approx(1 / 6)
    assert numbers["over_budget_share"] == pytest.approx(0.5)
