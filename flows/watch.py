"""Following one worker: its logs go to the display and to the tracker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.progress import Display
from infra.tracking.mlflow import Status
from infra.tracking.stage_run import StageRun
from infra.tracking.tail import Tail
from stages.core.context import EVENTS
from stages.core.files import read_jsonl

SAID = frozenset({"warning", "alarm"})
"""Events that a person is told of at once."""


class Watch:
    """Polled by the thread that waits for the worker. ``stage_run`` is None where nothing is tracked."""

    def __init__(self, node: str, run_dir: Path, stage_run: StageRun | None, display: Display) -> None:
        self._node = node
        self._tail = Tail(run_dir)
        self._stage_run = stage_run
        self._display = display
        self._old_events = sum(1 for _ in read_jsonl(run_dir / EVENTS))
        self.began: float | None = None
        """When this worker began its stage's own work, in seconds since the epoch; None: not yet."""
        self.heard = 0.0
        """When something was last heard of it."""
        self.last_event = "none"

    def poll(self) -> None:
        news = self._tail.poll()
        # A resumed stage's log begins with what earlier workers said.
        old, self._old_events = self._old_events, max(0, self._old_events - len(news.events))
        for event in news.events[old:]:
            self._take(event)
        for record in news.metrics[-1:]:
            self.heard = max(self.heard, record["t"])
            self._display.step(self._node, record["step"], record["total"], record["metrics"])
        if self._stage_run is not None:
            self._stage_run.note(news)

    def finish(self, status: Status, summary: Mapping[str, Any]) -> None:
        """End the stage's run in the tracker."""
        if self._stage_run is not None:
            self._stage_run.finish(status, summary)

    def _take(self, event: Mapping[str, Any]) -> None:
        self.heard = event["t"]
        step = f" at step {event['step']}" if "step" in event else ""
        self.last_event = f"{event['event']}{step}"
        if event["event"] == "start":
            self.began = event["t"]
        if event["event"] in SAID:
            self._display.note(f"{self._node}: {event['event']}: {event.get('message', '')}")
