"""Arguments and options that several commands share, and the console they print to."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

PIPE_COLUMNS = 1000
"""Widest table where the output is no terminal: a row stays on its line."""


class Code(StrEnum):
    """What a change of a stage's source files means."""

    record = "record"
    """It is shown as drift; artifacts are reused."""
    rebuild = "rebuild"
    """It counts: artifacts of other code are not reused."""


ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML config of the pipeline.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="Set one value over the config; may be repeated.", show_default=False),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NODE", help="Just these nodes, e.g. 'rl.code.*'; may be repeated.", show_default=False),
]
Until = Annotated[
    list[str] | None,
    typer.Option(metavar="NODE", help="These nodes and all they need; may be repeated.", show_default=False),
]
CodeOption = Annotated[Code, typer.Option(help="Whether changed source files only show or make new artifacts.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Target = Annotated[
    str | None,
    typer.Argument(metavar="[RUN|CONFIG]", help="Run id, its beginning, or a config; none: the newest run."),
]
StoreUrl = Annotated[
    str | None, typer.Option("--store", metavar="PATH", help="The store; else the config's, else ./store.")
]


def console() -> Console:
    """Standard output; where it is piped, tables are not folded."""
    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS, highlight=False, soft_wrap=False)


def duration(seconds: float | None) -> str:
    """``12 s``, ``3 min``, ``1.5 h``; empty for None."""
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
