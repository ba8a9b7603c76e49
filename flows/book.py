"""The record of the run under way: every change is on disk at once, and the clock of its stages' own work."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import psutil

from flows import runs
from flows.runs import RunRecord
from infra.store.local import Store
from stages.core.errors import NinefoldError


class Book:
    """Keeps a RunRecord; threads may share it."""

    def __init__(self, store: Store, record: RunRecord) -> None:
        self._store = store
        self._record = record
        self._lock = threading.Lock()
        self._work: list[tuple[float, float]] = []
        self.errors: dict[str, NinefoldError] = {}
        """Of the nodes that failed."""
        runs.save(store, record)

    @property
    def record(self) -> RunRecord:
        return self._record

    def node(self, node_id: str, **changes: Any) -> None:
        """Change fields of one node's record."""
        with self._lock:
            nodes = dict(self._record.nodes)
            nodes[node_id] = replace(nodes[node_id], **changes)
            self._record = replace(self._record, nodes=nodes)
            runs.save(self._store, self._record)

    def run(self, **changes: Any) -> None:
        """Change fields of the run's record."""
        with self._lock:
            self._record = replace(self._record, **changes)
            runs.save(self._store, self._record)

    def failed(self, node_id: str, error: NinefoldError) -> None:
        """A node could not be made."""
        self.errors[node_id] = error
        self.node(node_id, status="failed", reason=str(error))

    def worked(self, start: float, end: float) -> None:
        """A worker ran its stage from ``start`` to ``end``, in seconds since the epoch."""
        with self._lock:
            self._work.append((start, end))

    def overhead_s(self, now: float) -> tuple[float, float]:
        """(wall time in which no worker ran its stage, wall time), in seconds since this process began."""
        wall = now - psutil.Process().create_time()
        return wall - covered(self._work), wall


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union of (start, end) intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
