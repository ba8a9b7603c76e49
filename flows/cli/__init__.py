"""The command line: one table of commands, each imported when it is called, and the one place where errors end."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from stages.core.errors import NinefoldError

DEBUG = "NINEFOLD_DEBUG"
"""Set to 1: an error also shows where it came from."""

CONTEXT = {"help_option_names": ["-h", "--help"]}

ABOUT = """From a base model to one checkpoint that thinks as much as it is asked to.

Exit codes: 0 done, 2 bad input or config, 3 gates failed, 4 awaiting approval, 5 a stage failed, 6 skipped (another
run holds the work), 130 Ctrl-C, 143 terminated."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives: a function, or a ``typer.Typer`` with commands of its own."""

    module: str
    attribute: str
    help: str


COMMANDS: dict[str, Entry] = {
    "run": Entry("flows.cli.run", "run", "Make everything that a config asks for."),
    "plan": Entry("flows.cli.plan", "plan", "Show what a run would make or reuse, and why."),
    "retrain": Entry("flows.cli.run", "retrain", "Train some specialists anew, then what depends on them."),
    "status": Entry("flows.cli.inspect", "status", "Show a run, stage by stage."),
    "compare": Entry("flows.cli.compare", "compare", "Show accuracy and tokens of specialists and student."),
    "report": Entry("flows.cli.inspect", "report", "Print the path of a run's report."),
    "rollouts": Entry("flows.cli.inspect", "rollouts", "Read a specialist's rollouts with their rewards."),
    "lineage": Entry("flows.cli.lineage", "lineage", "Trace an artifact back to data and code."),
    "verify": Entry("flows.cli.inspect", "verify", "Read every artifact and compare it with its manifest."),
    "generate": Entry("flows.cli.model", "generate", "Sample from a checkpoint at an effort."),
    "evaluate": Entry("flows.cli.model", "evaluate", "Measure a checkpoint on held-out problems."),
    "ui": Entry("flows.cli.run", "ui", "Start a light MLflow server on the recorded runs."),
    "config": Entry("flows.cli.config", "app", "Print the schema of configs, show or check one."),
    "data": Entry("flows.cli.data", "app", "Write the micro domains."),
}


class LazyGroup(TyperGroup):
    """Knows the commands by name and help; imports the module of the one that is called."""

    def __init__(self) -> None:
        stubs: dict[str, Any] = {name: TyperCommand(name, help=entry.help) for name, entry in COMMANDS.items()}
        super().__init__(
            name="ninefold", commands=stubs, help=ABOUT, no_args_is_help=True, context_settings=dict(CONTEXT)
        )

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        assert name is not None  # an unknown name has raised a usage error with the nearest one
        return name, load_command(name), rest


def load_command(name: str) -> Any:
    """The click command of one row of the table."""
    entry = COMMANDS[name]
    target = getattr(importlib.import_module(entry.module), entry.attribute)
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name, context_settings=dict(CONTEXT))(target)
        target = app
    return typer.main.get_command(target)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code; an error of ours is one line on stderr, never a traceback."""
    try:
        LazyGroup().main(args=args, prog_name="ninefold")
    except NinefoldError as error:
        code = _say(error, str(error), error.exit_code)
    except OSError as error:
        # Outside of a stage: a folder or file that the user named, as unusable as a store would be.
        where = f"{error.filename}: " if error.filename else ""
        code = _say(error, f"{where}{error.strerror or error}", 2)
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0
    _flush()
    sys.exit(code)


def _say(error: BaseException, line: str, code: int) -> int:
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(error)
    print(f"error: {line}", file=sys.stderr)
    return code


def _flush() -> None:
    """Flush now, so that a reader that went away (``| head``) is met here and not by the interpreter's own words."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
