"""The one training loop: resume, step, log, checkpoint, stop. What a step does is the stage's own.

Steps are numbered by how many are done: metrics and checkpoints of the first optimiser step carry 1, those of the last
``total``. A stage's ``step`` function is called with the number done before it, 0 to ``total - 1``.

A checkpoint holds what the engine saves, ``state.json`` and each rank's torch generators; every other draw of a stage
is addressed by seed and step, so a resumed run repeats the uninterrupted one bit for bit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from stages.core.context import StageContext
from stages.core.errors import StageFailed
from stages.core.files import read_json, write_text
from stages.core.ports import TrainEngine

SKIPS_IN_A_ROW = 5
"""So many steps in a row without finite loss and gradient end the stage."""
STATE = "state.json"
ENGINE = "engine"


class LoopState(Protocol):
    """A stage's own state beside model and optimiser, as JSON values (NaN allowed), the same on every rank."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def train_loop(
    context: StageContext,
    engine: TrainEngine,
    total: int,
    step: Callable[[int], Mapping[str, float]],
    state: LoopState | None = None,
) -> None:
    """Run ``step`` until ``total`` optimiser steps are done, from the newest checkpoint where there is one.

    Args:
        step: does one optimiser step and returns its metrics; ``skipped`` among them, where > 0, says that loss or
            gradient was not finite.

    Raises:
        Interrupted, Terminated: a signal came; a checkpoint was written.
        StageFailed: ``SKIPS_IN_A_ROW`` steps in a row were skipped.
    """
    done, skips = _resume(context, engine, state)
    saved_at = time.monotonic()
    while done < total:
        values = step(done)
        done += 1
        context.log.metrics(done, total, values)
        skips = skips + 1 if values.get("skipped", 0) > 0 else 0
        if skips >= SKIPS_IN_A_ROW:
            raise StageFailed(
                f"step {done}",
                got=f"{skips} steps in a row whose loss or gradient is not finite",
                expected="finite numbers",
                fix="lower the learning rate or look at the data",
            )
        due = done < total and time.monotonic() - saved_at >= context.checkpoint_seconds
        # Rank 0's clock decides for all; a stop holds whichever rank it came to.
        due_on_ranks, stops = engine.sum_over_ranks([due * (engine.rank == 0), context.stop.is_set])
        if due_on_ranks or stops:
            _checkpoint(context, engine, done, skips, state)
            saved_at = time.monotonic()
        if stops:
            raise context.stop.error()


def _resume(context: StageContext, engine: TrainEngine, state: LoopState | None) -> tuple[int, int]:
    """Take up the newest checkpoint; (steps done, steps skipped in a row)."""
    found = context.checkpoints.latest()
    if found is None:
        context.log.rewind(0)
        return 0, 0
    done, folder = found
    engine.load_state(folder / ENGINE)
    saved = read_json(folder / STATE)
    if state is not None:
        state.load_state_dict(saved["stage"])
    _load_generators(folder / _generators(engine))
    context.log.rewind(done)
    context.log.event("resume", step=done)
    return done, int(saved["skips"])


def _checkpoint(context: StageContext, engine: TrainEngine, done: int, skips: int, state: LoopState | None) -> None:
    """All ranks write into one folder; rank 0 makes it and, when all have written, proves it and puts it in place."""
    checkpoints = context.checkpoints

    def write(folder: Path) -> None:
        if engine.rank == 0:
            (folder / ENGINE).mkdir()
            about = {"skips": skips, "stage": state.state_dict() if state is not None else {}}
            # Not strict JSON: a stage may remember the NaN of a skipped step.
            write_text(folder / STATE, json.dumps(about))
        _barrier(engine)
        engine.save_state(folder / ENGINE)
        _save_generators(folder / _generators(engine))
        _barrier(engine)

    if engine.rank == 0:
        checkpoints.save(done, write)
    else:
        write(checkpoints.aside(done))
    _barrier(engine)
    context.log.event("checkpoint", step=done)


def _barrier(engine: TrainEngine) -> None:
    engine.sum_over_ranks([0.0])


def _generators(engine: TrainEngine) -> str:
    return f"generators-{engine.rank}.pt"


def _save_generators(path: Path) -> None:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    torch.save(states, path)


def _load_generators(path: Path) -> None:
    states = torch.load(path, weights_only=True)
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
