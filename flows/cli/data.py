"""``ninefold data micro``."""

from __future__ import annotations

import filecmp
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.plan.fingerprint import SOURCE_ROOT, code_of
from stages.core import manifest
from stages.core.files import read_json, write_json
from stages.tasks import micro as generator

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
    about = {"seed": seed, "code": code_of(generator.__name__, SOURCE_ROOT)}
    if _is_there(out, about):
        print(f"{out}: all files are there")
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as aside:
        generator.write(Path(aside), seed=seed)
        listed = manifest.build(Path(aside), **about)
        written = [item.path for item in manifest.entries(listed) if _put(Path(aside, item.path), out / item.path)]
    write_json(out / manifest.MANIFEST, listed)
    print(f"{out}: {len(written)} files written, {len(listed['files']) - len(written)} were there")


def _is_there(out: Path, about: dict[str, Any]) -> bool:
    """Whether an earlier call with the same seed and generator wrote what is there: making the rows takes seconds."""
    try:
        listed = read_json(out / manifest.MANIFEST)
        return about.items() <= listed.items() and not manifest.problems(out, listed, full=True)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _put(made: Path, target: Path) -> bool:
    """Move ``made`` to ``target`` unless the same bytes are there."""
    if target.is_file() and filecmp.cmp(made, target, shallow=False):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    made.replace(target)
    return True
