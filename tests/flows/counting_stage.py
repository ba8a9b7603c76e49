"""A stage that trains nothing but does all that a training stage does: steps, metrics, checkpoints, resume, stop.

A person's hand is a file in the job's ``control`` folder, named after what to do, the node and the step:
``die.NODE.3`` (SIGKILL to itself, once), ``fail.NODE.3`` (an error, as long as it is there), ``hold.NODE.3`` (wait at
the step as long as it is there, and say so by ``held.NODE``).
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from pydantic import Field

from stages.core.config import UNKEYED, Config
from stages.core.context import StageContext
from stages.core.errors import StageFailed
from stages.core.files import read_json, write_json
from stages.core.keys import derive_seed


class CountJob(Config):
    """Output: ``total.json``, which is a function of seed, count and inputs alone."""

    node: str
    control: str = Field(json_schema_extra=UNKEYED)
    count: int = 6
    checkpoint_every: int = 2


def run(job: CountJob, context: StageContext) -> dict[str, Any]:
    total, done = sum(read_json(path / "total.json")["total"] for path in context.inputs.values()), 0
    if (found := context.checkpoints.latest()) is not None:
        done, folder = found
        total = read_json(folder / "total.json")["total"]
        context.log.event("resume", step=done)
    context.log.rewind(done)
    for step in range(done + 1, job.count + 1):
        total = (total + derive_seed(context.seed, step)) % 1_000_003
        context.log.metrics(step, job.count, {"reward": total / 1_000_003, "tokens": float(step)})
        _obey(job, context, step)
        if context.stop.is_set or step % job.checkpoint_every == 0:
            _checkpoint(context, step, total)
        if context.stop.is_set:
            raise context.stop.error()
    write_json(context.out / "total.json", {"total": total})
    return {"accuracy": total / 1_000_003, "steps_here": job.count - done}


def _checkpoint(context: StageContext, step: int, total: int) -> None:
    context.checkpoints.save(step, lambda folder: write_json(folder / "total.json", {"total": total}))
    context.log.event("checkpoint", step=step)


def _obey(job: CountJob, context: StageContext, step: int) -> None:
    def file(word: str) -> Path:
        return Path(job.control) / f"{word}.{job.node}.{step}"

    if file("die").exists():
        file("die").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if file("fail").exists():
        raise StageFailed(job.node, got=f"a planted failure at step {step}", expected="none")
    if file("hold").exists():
        (Path(job.control) / f"held.{job.node}").write_text(str(os.getpid()))
        while file("hold").exists() and not context.stop.is_set:
            time.sleep(0.01)
