"""``ninefold data micro``."""

from __future__ import annotations

import filecmp
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from stages.tasks import micro as domains

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Write the micro domains.")


@app.callback()
def data() -> None:
    """Write the micro domains."""


@app.command()
def micro(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("data/micro"),
    seed: Annotated[int, typer.Option(help="Decides every row.")] = 0,
) -> None:
    """Write problems, held-out problems and demonstrations of the three micro domains as JSONL.

    Files that are already as they should be are left alone, time stamps and all.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as aside:
        domains.write(Path(aside), seed=seed)
        made = sorted(path for path in Path(aside).rglob("*") if path.is_file())
        written = [path for path in made if _put(path, out / path.relative_to(aside))]
    print(f"{out}: {len(written)} files written, {len(made) - len(written)} were there")


def _put(made: Path, target: Path) -> bool:
    """Move ``made`` to ``target`` unless the same bytes are there."""
    if target.is_file() and filecmp.cmp(made, target, shallow=False):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    made.replace(target)
    return True
