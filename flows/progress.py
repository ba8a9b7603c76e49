"""What a person sees while a run goes on: a bar a running stage in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

SHOWN = ("reward", "accuracy", "loss", "kl", "tokens")
"""Metrics on a bar, in this order, where the stage has them; at most three."""
HEADLINE = ("accuracy", "tokens", "loss", "kl", "pass_rate", "mean_b0_tokens", "gates", "passed")
"""Numbers of a result that are said when a stage ends, where it has them."""


class Display(Protocol):
    """Shows the stages of a run; called from any thread."""

    def started(self, node: str, why: str) -> None: ...

    def step(self, node: str, step: int, total: int, metrics: Mapping[str, float]) -> None: ...

    def ended(self, node: str, seconds: float, summary: Mapping[str, Any]) -> None: ...

    def failed(self, node: str, message: str) -> None: ...

    def note(self, message: str) -> None:
        """A line for the user, e.g. a stage's warning."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Lines(Display):
    """One line when a stage starts and one when it ends: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def started(self, node: str, why: str) -> None:
        self.note(f"{node}: started{f' ({why})' if why else ''}")

    def step(self, node: str, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """Steps are in metrics.jsonl; a log is not flooded with them."""

    def ended(self, node: str, seconds: float, summary: Mapping[str, Any]) -> None:
        numbers = headline(summary)
        self.note(f"{node}: done in {seconds:.1f} s{f', {numbers}' if numbers else ''}")

    def failed(self, node: str, message: str) -> None:
        self.note(f"{node}: failed: {message.removeprefix(f'{node}: ')}")

    def note(self, message: str) -> None:
        with self._lock:
            self._console.print(
                f"{time.monotonic() - self._began:7.1f} s  {escape(message)}", soft_wrap=True, highlight=False
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class Bars(Lines):
    """A live bar a running stage, below the lines of those that ended."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def started(self, node: str, why: str) -> None:
        self._tasks[node] = self._progress.add_task(node, total=None, numbers="starting")

    def step(self, node: str, step: int, total: int, metrics: Mapping[str, float]) -> None:
        self._progress.update(self._tasks[node], completed=step, total=total, numbers=numbers_of(metrics))

    def ended(self, node: str, seconds: float, summary: Mapping[str, Any]) -> None:
        self._progress.remove_task(self._tasks.pop(node))
        super().ended(node, seconds, summary)

    def failed(self, node: str, message: str) -> None:
        if node in self._tasks:
            self._progress.remove_task(self._tasks.pop(node))
        super().failed(node, message)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def display(console: Console) -> Display:
    """Bars in a terminal, else lines."""
    return Bars(console) if console.is_terminal else Lines(console)


def numbers_of(metrics: Mapping[str, float]) -> str:
    """``reward 0.91  tokens 14.2``: the first three of SHOWN that are there."""
    known = [name for name in SHOWN if name in metrics][:3]
    return "  ".join(f"{name} {metrics[name]:.3g}" for name in known)


def headline(summary: Mapping[str, Any]) -> str:
    """``accuracy 0.93, tokens 14.2``: the numbers of HEADLINE that are there."""
    return ", ".join(f"{name} {_short(summary[name])}" for name in HEADLINE if summary.get(name) is not None)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
