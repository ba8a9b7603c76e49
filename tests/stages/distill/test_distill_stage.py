"""Oracles: teachers equal to the student, the uninterrupted run, hand-worked balances."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.core.errors import DataError, Terminated
from stages.core.files import read_jsonl
from stages.distill.balance import running_gaps, token_weights
from stages.distill.config import Balance, DistillConfig, DistillJob
from stages.distill.effort import largest_cosine, refresh
from stages.distill.stage import run
from stages.distill.teachers import Teachers
from stages.tasks.config import CellConfig
from stages.train.model import load_tokenizer
from tests.stages.training import PROMPT, WORDS, StopAfter, context, domain, metrics_of, weights_of, write_problems

CELLS = (CellConfig(domain="sums", effort="low"), CellConfig(domain="sums", effort="max"))


def job(**fields: Any) -> DistillJob:
    values = {"steps": 3, "rollouts_per_cell": 4, "warm_start": {"rollouts_per_cell": 6, "steps": 2, "batch_rows": 4}}
    return DistillJob(
        distill=DistillConfig.model_validate(values | fields),
        cells=CELLS,
        conditioned_teachers=False,
        specs={"sums": domain()},
        prompt=PROMPT,
    )


@pytest.fixture
def inputs(tmp_path: Path, make_model_folder: Callable[..., Path]) -> dict[str, Path]:
    def folder(name: str, seed: int) -> Path:
        return make_model_folder(name, seed=seed, words=WORDS, prompt=PROMPT, init_std=0.4)

    return {
        "model": folder("cold", 0),
        "teacher.sums.low": folder("low", 1),
        "teacher.sums.max": folder("max", 2),
        "problems.sums": write_problems(tmp_path / "problems.jsonl"),
    }


@pytest.mark.parametrize("mode", ["full", "sampled"])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path, inputs: dict[str, Path], mode: str) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(job(mode=mode), context(whole, inputs))
    with pytest.raises(Terminated):
        run(job(mode=mode), context(cut, inputs, stop=StopAfter(cut, 3)))
    run(job(mode=mode), context(cut, inputs))
    assert weights_of(cut) == weights_of(whole)
    assert metrics_of(cut) == metrics_of(whole)


@pytest.mark.parametrize("mode", ["full", "sampled"])
def test_a_teacher_equal_to_the_student_teaches_nothing(tmp_path: Path, inputs: dict[str, Path], mode: str) -> None:
    """The teachers see the student's own prompts here, effort message and all."""
    inputs |= {"teacher.sums.low": inputs["model"], "teacher.sums.max": inputs["model"]}
    same = job(mode=mode, warm_start=None, fresh_effort_embeddings="never").model_copy(
        update={"conditioned_teachers": True}
    )
    run(same, context(tmp_path / "self", inputs))
    assert [numbers["kl"] for _, numbers in metrics_of(tmp_path / "self")] == [0.0] * 3
    assert [numbers["loss"] for _, numbers in metrics_of(tmp_path / "self")] == [0.0] * 3


def test_distillation_brings_every_cell_nearer_to_its_own_teacher(tmp_path: Path, inputs: dict[str, Path]) -> None:
    optimizer = {"lr": 1e-2}
    run(job(steps=80, warm_start=None, optimizer=optimizer), context(tmp_path / "near", inputs))
    numbers = [values for _, values in metrics_of(tmp_path / "near")]
    for cell in ("kl.sums.low", "kl.sums.max"):
        assert numbers[-1][cell] < 0.5 * numbers[0][cell]
    assert any(record["event"] == "alarm" for record in read_jsonl(tmp_path / "near" / "events.jsonl"))


def test_a_cell_without_a_teacher_is_refused_before_the_first_step(tmp_path: Path, inputs: dict[str, Path]) -> None:
    del inputs["teacher.sums.max"]
    with pytest.raises(DataError, match=r"cell sums\.max: got no teacher"):
        run(job(), context(tmp_path / "missing", inputs))
    assert metrics_of(tmp_path / "missing") == []


def test_a_teacher_with_other_tokens_is_refused_by_the_first_difference(
    tmp_path: Path, inputs: dict[str, Path], make_model_folder: Callable[..., Path]
) -> None:
    inputs["teacher.sums.low"] = make_model_folder("foreign", words=("sum 1 2 3 4", "quick slow"), prompt=PROMPT)
    with pytest.raises(
        DataError, match=r"teacher of sums\.low: got token 'slow' with id \d+; expected the student's id None"
    ):
        run(job(), context(tmp_path / "foreign", inputs))


def test_each_cell_gets_its_own_teacher_and_only_one_is_in_memory(inputs: dict[str, Path]) -> None:
    folders = {cell.name: inputs[f"teacher.{cell.name}"] for cell in CELLS}
    teachers = Teachers(folders, load_tokenizer(inputs["model"]), "cpu")
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        low, high, again = (teachers.model(name)(ids).logits for name in ("sums.low", "sums.max", "sums.low"))
    assert torch.equal(low, again)
    assert not torch.equal(low, high)
    assert teachers.model("sums.low") is teachers.model("sums.max")
    with pytest.raises(DataError, match=r"teacher of sums\.mid: got none"):
        teachers.model("sums.mid")


def test_uniform_balance_gives_every_cell_the_same_share_whatever_its_tokens() -> None:
    weights = token_weights(Balance(gap_exponent=0), {"low": 10, "max": 40}, {})
    assert weights["low"] * 10 == pytest.approx(0.5)
    assert weights["max"] * 40 == pytest.approx(0.5)


def test_the_gap_moves_weight_to_the_cell_that_is_behind() -> None:
    # Gaps .3 and .1, mean .2: factors 1.5 and .5, so shares .75 and .25.
    weights = token_weights(Balance(), {"low": 10, "max": 40}, {"low": 0.3, "max": 0.1})
    assert weights["low"] * 10 == pytest.approx(0.75)
    assert weights["max"] * 40 == pytest.approx(0.25)


def test_token_balance_leaves_shares_as_they_are_and_an_empty_cell_out() -> None:
    weights = token_weights(Balance(target="tokens", gap_exponent=0), {"low": 10, "max": 40, "none": 0}, {})
    assert weights == {"low": pytest.approx(1 / 50), "max": pytest.approx(1 / 50)}


def test_a_gap_is_followed_within_bounds() -> None:
    # Factor 20 at the most and .05 at the least: shares 20 / 20.05 and .05 / 20.05, not 1 and 0.
    gaps = {f"c{index}": 0.0 for index in range(40)} | {"far": 1.0}
    weights = token_weights(Balance(), dict.fromkeys(gaps, 1.0), gaps)
    assert weights["far"] / weights["c0"] == pytest.approx(20 / 0.05)


def test_running_gaps_keep_what_was_not_measured() -> None:
    assert running_gaps({"a": 1.0, "b": 2.0}, {"a": 2.0, "c": 3.0}) == {"a": pytest.approx(1.2), "b": 2.0, "c": 3.0}


def test_parallel_effort_words_are_seen_and_get_directions_of_their_own() -> None:
    torch.manual_seed(0)
    embedding = torch.randn(20, 64)
    embedding[2], embedding[3] = embedding[1] * 0.5, embedding[1] + 0.01
    words = {"low": (1,), "high": (2,), "max": (3,)}
    assert largest_cosine(embedding, words) > 0.99
    others = embedding[4:].clone()
    refresh(embedding, words, range(4, 20), seed=1)
    assert largest_cosine(embedding, words) < 0.5
    assert torch.equal(embedding[4:], others)
    expected = 1.5 * others.norm(dim=-1).mean()
    assert embedding[1:4].norm(dim=-1).tolist() == pytest.approx([float(expected)] * 3, rel=1e-5)
