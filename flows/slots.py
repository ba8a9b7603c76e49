"""Places to run in: a stage waits until as many are free as it takes; the more urgent stage is served first."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stages.core.errors import Interrupted

LOOK_S = 0.2
"""How often a waiting stage looks whether it was cancelled."""


class Slots:
    """``count`` numbered slots. Nobody overtakes: a stage that takes two is not starved by those that take one."""

    def __init__(self, count: int) -> None:
        self._free = set(range(count))
        self._waiting: list[tuple[int, int]] = []
        self._turns = itertools.count()
        self._changed = threading.Condition()

    @contextmanager
    def take(self, count: int, priority: int, cancelled: Callable[[], bool]) -> Iterator[tuple[int, ...]]:
        """The numbers of ``count`` slots, held inside the block.

        Args:
            count: at most as many as there are.
            priority: the smaller goes first; equal ones in order of arrival.

        Raises:
            Interrupted: cancelled while waiting.
        """
        mine = self._wait(count, priority, cancelled)
        try:
            yield mine
        finally:
            with self._changed:
                self._free |= set(mine)
                self._changed.notify_all()

    def _wait(self, count: int, priority: int, cancelled: Callable[[], bool]) -> tuple[int, ...]:
        ticket = (priority, next(self._turns))
        with self._changed:
            heapq.heappush(self._waiting, ticket)
            try:
                while self._waiting[0] != ticket or len(self._free) < count:
                    if cancelled():
                        raise Interrupted("interrupted while waiting for a slot")
                    self._changed.wait(LOOK_S)
                mine = tuple(sorted(self._free)[:count])
                self._free -= set(mine)
                return mine
            finally:
                self._waiting.remove(ticket)
                heapq.heapify(self._waiting)
                self._changed.notify_all()
