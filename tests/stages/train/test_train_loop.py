"""Oracle: an uninterrupted run. A run that was cut off and resumed must repeat it bit for bit."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from infra.engines import build
from stages.core.context import EVENTS, METRICS, StageContext
from stages.core.errors import Interrupted, StageFailed, Terminated
from stages.core.files import read_jsonl
from stages.core.keys import derive_seed
from stages.core.ports import TrainEngine
from stages.train.batches import TrainRow, engine_batches, logprobs_of, target_logits
from stages.train.config import MicroBase, OptimizerConfig
from stages.train.loop import SKIPS_IN_A_ROW, train_loop
from stages.train.model import create_micro
from stages.train.schedule import lr_scale

TOTAL = 4
WORDS = 20
MakeContext = Callable[[Mapping[str, Path]], StageContext]


class Training:
    """A small real stage: rows drawn by step, noise from torch's generator (as dropout would), a counter of its own."""

    def __init__(self, kind: str = "muon", dtype: str = "float32") -> None:
        base = MicroBase(
            hidden=16, heads=2, kv_heads=1, layers=1, intermediate=24, context=64, dtype=dtype, init_std=0.2
        )
        self.config = OptimizerConfig(type=kind, lr=1e-2, warmup_steps=2, schedule="cosine", weight_decay=0.1)
        model = create_micro(base, WORDS, eos_id=1, pad_id=0, seed=1, device="cpu")
        self.engine: TrainEngine = build({"engine": "single"}, "cpu", model, self.config)
        self.tokens_seen = 0
        self.worst = 0.0
        self.after: Callable[[int], None] = lambda done: None
        """Called with the number of steps done at the end of each."""

    def step(self, step: int) -> Mapping[str, float]:
        draw = np.random.default_rng(derive_seed("rows", step))
        rows = []
        for length in draw.integers(3, 20, size=6):
            weights = np.full(length, 1 / 60)
            weights[0] = 0
            rows.append(TrainRow(draw.integers(2, WORDS, size=length), weights))
            self.tokens_seen += int(length)
        loss_sum = 0.0
        batches = engine_batches(self.engine, rows, 40, pad_id=0)
        for number, batch in enumerate(batches):
            logprobs_N = logprobs_of(target_logits(self.engine.model, batch), batch)
            loss = -(batch.pick(batch.weights_BT) * logprobs_N * torch.rand_like(logprobs_N)).sum()
            self.engine.backward(loss, last=number == len(batches) - 1)
            loss_sum += float(loss.detach())
        self.worst = float("nan")  # as a stage remembers a skipped step
        stats = self.engine.step(lr_scale(self.config, step, TOTAL))
        self.after(step + 1)
        return {"loss": loss_sum, "grad_norm": stats.grad_norm, "skipped": stats.skipped, "seen": self.tokens_seen}

    def state_dict(self) -> dict[str, Any]:
        return {"tokens_seen": self.tokens_seen, "worst": self.worst}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tokens_seen, self.worst = state["tokens_seen"], state["worst"]

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in self.engine.model.state_dict().items()}


def run(training: Training, context: StageContext) -> None:
    torch.manual_seed(1)
    train_loop(context, training.engine, TOTAL, training.step, training)


def logged(context: StageContext) -> list[tuple[int, int, dict[str, float]]]:
    return [(item["step"], item["total"], item["metrics"]) for item in read_jsonl(context.run_dir / METRICS)]


def events(context: StageContext) -> list[tuple[str, int]]:
    return [(item["event"], item["step"]) for item in read_jsonl(context.run_dir / EVENTS)]


@pytest.fixture
def contexts(make_context: MakeContext, tmp_path: Path) -> tuple[StageContext, StageContext]:
    """Two run folders."""
    first = make_context({})
    other = tmp_path / "other"
    other.mkdir()
    return first, dataclasses.replace(first, run_dir=other, log=type(first.log)(other))


@pytest.mark.parametrize(("kind", "dtype"), [("muon", "float32"), ("adamw", "float32"), ("adamw", "bfloat16")])
def test_stop_and_resume_repeat_the_uninterrupted_run(
    contexts: tuple[StageContext, StageContext], kind: str, dtype: str
) -> None:
    whole, cut = contexts
    reference = Training(kind, dtype)
    run(reference, whole)

    first = Training(kind, dtype)
    first.after = lambda done: cut.stop._note(signal.SIGTERM, None) if done == 2 else None
    with pytest.raises(Terminated):
        run(first, cut)
    assert events(cut) == [("checkpoint", 2)]
    second = Training(kind, dtype)
    run(second, dataclasses.replace(cut, stop=type(cut.stop)()))

    assert events(cut) == [("checkpoint", 2), ("resume", 2)]
    assert logged(cut) == logged(whole)
    assert [(step, total) for step, total, _ in logged(cut)] == [(1, TOTAL), (2, TOTAL), (3, TOTAL), (4, TOTAL)]
    expected = reference.weights()
    assert all(torch.equal(value, expected[name]) for name, value in second.weights().items())
    assert second.tokens_seen == reference.tokens_seen


def test_a_kill_after_the_checkpoint_leaves_no_step_twice(contexts: tuple[StageContext, StageContext]) -> None:
    """The metrics of steps that the kill threw away are written anew."""
    whole, cut = contexts
    run(Training(), whole)

    class Killed(Exception):
        pass

    def kill(done: int) -> None:
        if done == 3:
            raise Killed

    first = Training()
    first.after = kill
    with pytest.raises(Killed):
        run(first, dataclasses.replace(cut, checkpoint_seconds=0))
    cut.log.metrics(3, TOTAL, {"loss": 123.0})  # as if the kill had come after the log and before the checkpoint
    run(Training(), cut)
    assert logged(cut) == logged(whole)


def test_a_kill_before_the_first_checkpoint_starts_anew(contexts: tuple[StageContext, StageContext]) -> None:
    whole, cut = contexts
    run(Training(), whole)
    cut.log.metrics(1, TOTAL, {"loss": 123.0})
    run(Training(), cut)
    assert logged(cut) == logged(whole)


def test_a_state_may_hold_the_nan_of_a_skipped_step(make_context: MakeContext) -> None:
    context = dataclasses.replace(make_context({}), checkpoint_seconds=0)
    run(Training(), context)
    resumed = Training()
    train_loop(context, resumed.engine, TOTAL - 1, resumed.step, resumed)  # as many as the checkpoint has
    assert np.isnan(resumed.worst)


def test_checkpoints_follow_the_clock(make_context: MakeContext) -> None:
    always = dataclasses.replace(make_context({}), checkpoint_seconds=0)
    run(Training(), always)
    assert events(always) == [("checkpoint", 1), ("checkpoint", 2), ("checkpoint", 3)]


def test_control_c_ends_with_its_own_error(make_context: MakeContext) -> None:
    context = make_context({})
    context.stop._note(signal.SIGINT, None)
    with pytest.raises(Interrupted):
        run(Training(), context)
    assert events(context) == [("checkpoint", 1)]


def test_skipped_steps_in_a_row_end_the_stage(make_context: MakeContext) -> None:
    training = Training()
    calls = []

    def step(number: int) -> Mapping[str, float]:
        calls.append(number)
        return {"loss": float("nan"), "skipped": float(number != 2)}  # step 2 is fine: the count starts anew

    with pytest.raises(StageFailed, match="5 steps in a row"):
        train_loop(make_context({}), training.engine, 100, step)
    assert calls == list(range(3 + SKIPS_IN_A_ROW))
