"""Following the two logs of a run folder while a worker writes them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.core.context import EVENTS, METRICS


@dataclass(frozen=True, slots=True)
class News:
    """What was appended since the last look."""

    events: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    rewound: bool
    """The metrics file was cut back by a resumed stage: ``metrics`` starts again from its first record."""


class Tail:
    """Both logs of ``run_dir``, from their first records on."""

    def __init__(self, run_dir: Path) -> None:
        self._events = _FileTail(run_dir / EVENTS)
        self._metrics = _FileTail(run_dir / METRICS)

    def poll(self) -> News:
        """Whole lines only; a line in the making is read the next time. Missing files are empty."""
        events, _ = self._events.poll()
        metrics, rewound = self._metrics.poll()
        return News(events, metrics, rewound)


class _FileTail:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def poll(self) -> tuple[list[dict[str, Any]], bool]:
        """(new records, whether the file was replaced since the last look)."""
        try:
            handle = self._path.open("rb")
        except FileNotFoundError:
            return [], False
        with handle:
            about = os.fstat(handle.fileno())
            replaced = self._inode not in (0, about.st_ino) or about.st_size < self._offset
            if replaced:
                self._offset = 0
            self._inode = about.st_ino
            handle.seek(self._offset)
            data = handle.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()], replaced
