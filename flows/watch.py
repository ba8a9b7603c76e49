"""Following one worker: its logs go to the display and to the tracker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.progress import Display
from infra.launch.process import Process
from infra.tracking.mlflow import Status
from infra.tracking.stage_run import StageRun
from infra.tracking.tail import Tail

SAID = frozenset({"warning", "alarm"})
"""Events that a person is told of at once..."""
SAID_AT_MOST = 3
"""...this many of one stage; the others are counted."""


class Watch:
    """Polled by the thread that waits for the worker.

    Args:
        old_events: how many events earlier workers left in the run folder.
    """

    def __init__(
        self, node: str, run_dir: Path, process: Process, stage_run: StageRun, display: Display, old_events: int
    ) -> None:
        self.node = node
        self.process = process
        self.stage_run = stage_run
        self._tail = Tail(run_dir)
        self._display = display
        self._old_events = old_events
        self.began: float | None = None
        """When this worker began its stage's own work, in seconds since the epoch; None: not yet."""
        self.heard = 0.0
        """When something was last heard of it."""
        self.last_event = "none"
        self._said = 0

    def poll(self) -> None:
        news = self._tail.poll()
        # A resumed stage's log begins with what earlier workers said.
        old, self._old_events = self._old_events, max(0, self._old_events - len(news.events))
        for event in news.events[old:]:
            self._take(event)
        for record in news.metrics[-1:]:
            self.heard = max(self.heard, record["t"])
            self._display.step(self.node, record["step"], record["total"], record["metrics"])
        self.stage_run.note(news)

    def finish(self, status: Status, summary: Mapping[str, Any]) -> None:
        """End the stage's run in the tracker."""
        if self._said > SAID_AT_MOST:
            self._display.note(f"{self.node}: {self._said - SAID_AT_MOST} more warnings are in its events.jsonl")
        self.stage_run.finish(status, summary)

    def _take(self, event: Mapping[str, Any]) -> None:
        self.heard = event["t"]
        step = f" at step {event['step']}" if "step" in event else ""
        self.last_event = f"{event['event']}{step}"
        if event["event"] == "start":
            self.began = event["t"]
        if event["event"] in SAID:
            self._said += 1
        if event["event"] in SAID and self._said <= SAID_AT_MOST:
            self._display.note(f"{self.node}: {event['event']}: {event.get('message', '')}")
