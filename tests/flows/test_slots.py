"""Who gets a slot when. Oracle: hand-worked orders of arrival."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from counting import until

from flows.slots import Slots
from stages.core.errors import Interrupted


class Crowd:
    """Threads that take slots and keep them until told; ``got`` is the order in which they were served."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.got: list[str] = []
        self._go = {name: threading.Event() for name in "abcd"}
        self._threads: list[threading.Thread] = []

    def come(self, name: str, count: int, priority: int, *, waits: bool) -> None:
        def work() -> None:
            with self._slots.take(count, priority, lambda: False) as mine:
                assert len(mine) == count
                self.got.append(name)
                self._go[name].wait()

        before = len(self._slots._waiting)
        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()
        until(lambda: len(self._slots._waiting) > before if waits else name in self.got)

    def has_served(self, count: int) -> bool:
        return len(self.got) >= count

    def leave(self, *names: str) -> None:
        for name in names:
            self._go[name].set()

    def end(self) -> None:
        self.leave(*"abcd")
        for thread in self._threads:
            thread.join()


def test_the_more_urgent_goes_first_and_equals_in_order_of_arrival() -> None:
    crowd = Crowd(Slots(1))
    crowd.come("a", 1, 0, waits=False)
    crowd.come("b", 1, 5, waits=True)
    crowd.come("c", 1, 2, waits=True)
    crowd.come("d", 1, 5, waits=True)
    for served, name in enumerate("acb", start=1):
        crowd.leave(name)
        until(partial(crowd.has_served, served + 1))
    crowd.end()
    assert crowd.got == ["a", "c", "b", "d"]


def test_one_that_takes_two_is_not_starved_by_those_that_take_one() -> None:
    crowd = Crowd(Slots(2))
    crowd.come("a", 1, 1, waits=False)
    crowd.come("b", 2, 1, waits=True)
    crowd.come("c", 1, 1, waits=True)
    assert crowd.got == ["a"]
    crowd.leave("a")
    until(lambda: "b" in crowd.got)
    assert crowd.got == ["a", "b"]
    crowd.leave("b")
    until(lambda: "c" in crowd.got)
    crowd.end()


def test_slots_have_numbers_and_come_back() -> None:
    slots = Slots(2)
    with slots.take(1, 0, lambda: False) as first, slots.take(1, 0, lambda: False) as second:
        assert (first, second) == ((0,), (1,))
    with slots.take(2, 0, lambda: False) as both:
        assert both == (0, 1)


def test_a_cancelled_one_leaves_the_queue() -> None:
    slots = Slots(1)
    with slots.take(1, 0, lambda: False):
        with pytest.raises(Interrupted), slots.take(1, 0, lambda: True):
            raise AssertionError("it was served")
        assert slots._waiting == []
