"""What a stage sees of the world: its folders, its inputs, its seed, its logs and its ports.

A run folder (the seam between flow and worker) holds::

    resolved.json   written by the flow: node, stage, config, inputs, seed, resources
    events.jsonl    appended by the worker: {"t", "event", ...}
    metrics.jsonl   appended by the worker: {"t", "step", "total", "metrics": {name: number}}
    ckpt/           checkpoints
    out/            the artifact in the making; out/logs/rollouts.jsonl holds rollouts to read
    result.json     written by the worker last: {"summary", "seconds"}
    error.json      written instead when the stage could not finish
"""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.core.checkpoint import Checkpoints
from stages.core.errors import Interrupted, NinefoldError, Terminated
from stages.core.files import append_jsonl, read_jsonl, write_text
from stages.core.ports import Ports

EVENTS = "events.jsonl"
METRICS = "metrics.jsonl"
RESOLVED = "resolved.json"
RESULT = "result.json"
ERROR = "error.json"
LOG = "worker.log"
ROLLOUTS = "out/logs/rollouts.jsonl"


class Log:
    """The two append-only logs of a run folder. Only rank 0 writes."""

    def __init__(self, run_dir: Path, *, quiet: bool = False) -> None:
        self._run_dir = run_dir
        self._quiet = quiet

    def event(self, event: str, **fields: Any) -> None:
        """Append an event: ``start``, ``resume``, ``checkpoint``, ``warning``, ``alarm``, ``done``."""
        if not self._quiet:
            append_jsonl(self._run_dir / EVENTS, {"t": time.time(), "event": event, **fields})

    def warn(self, message: str) -> None:
        self.event("warning", message=message)

    def metrics(self, step: int, total: int, values: Mapping[str, float]) -> None:
        """Append one step's numbers; what is not finite is left out and counted in ``nonfinite``."""
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        if len(finite) < len(values):
            finite["nonfinite"] = float(len(values) - len(finite))
        if not self._quiet:
            append_jsonl(self._run_dir / METRICS, {"t": time.time(), "step": step, "total": total, "metrics": finite})

    def rollouts(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Keep rollouts for a person to read; each record has a ``step``."""
        if self._quiet:
            return
        path = self._run_dir / ROLLOUTS
        path.parent.mkdir(parents=True, exist_ok=True)
        for record in records:
            append_jsonl(path, record)

    def rewind(self, step: int) -> None:
        """Drop what was logged after ``step``: a resumed stage writes it again, and no step may stand twice."""
        if self._quiet:
            return
        for path in (self._run_dir / METRICS, self._run_dir / ROLLOUTS):
            if path.exists():
                kept = [record for record in read_jsonl(path) if record["step"] <= step]
                write_text(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))


class StopSignal:
    """Turns SIGTERM and SIGINT into a flag that a stage looks at between steps."""

    def __init__(self) -> None:
        self._number = 0

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self._number = number

    @property
    def is_set(self) -> bool:
        return self._number != 0

    def error(self) -> NinefoldError:
        """The error that ends the stage after its checkpoint."""
        if self._number == signal.SIGINT:
            return Interrupted("interrupted", fix="run the same command to go on from the checkpoint")
        return Terminated("terminated", fix="run the same command to go on from the checkpoint")


@dataclass(frozen=True, slots=True)
class StageContext:
    """Handed to ``run(config, context)`` of every stage."""

    run_dir: Path
    inputs: Mapping[str, Path]
    """Artifact folders and data files by the name that the plan gave them."""
    seed: int
    """Already mixed with the attempt: a new attempt draws anew."""
    device: str
    """``cpu``, ``cuda``, ``cuda:1``, ``mps``."""
    ports: Ports
    log: Log
    stop: StopSignal = field(default_factory=StopSignal)
    rank: int = 0
    world_size: int = 1
    checkpoint_seconds: float = 60.0
    """A training stage checkpoints at the first step that ends this long after the last checkpoint."""

    @property
    def out(self) -> Path:
        """Where the artifact's files go."""
        return self.run_dir / "out"

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.run_dir / "ckpt", self.log.warn)
