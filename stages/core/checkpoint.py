"""Checkpoints inside a stage: written aside, verified by reading back, renamed; the older one goes only then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from stages.core import manifest
from stages.core.errors import CorruptArtifact, StageFailed
from stages.core.files import fsync_path, write_json

PREFIX = "step-"
KEEP = 2


class Checkpoints:
    """The numbered checkpoints of one stage under ``root``.

    A checkpoint counts when its manifest verifies; the order is that of the step inside the manifest, never a time or a
    name. Newest-first search skips a damaged one and says so through ``warn``.
    """

    def __init__(self, root: Path, warn: Callable[[str], None]) -> None:
        self._root = root
        self._warn = warn

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Have ``write`` fill a folder, prove it and put it in place as the checkpoint of ``step``.

        Raises:
            StageFailed: what was written does not read back; older checkpoints are untouched.
            OSError: the disk is full or read-only; likewise.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        aside = self.aside(step)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            write(aside)
            for path in aside.rglob("*"):
                fsync_path(path)
            write_json(aside / manifest.MANIFEST, manifest.build(aside, step=step))
            found = manifest.problems(aside, manifest.read(aside) or {}, full=True)
            if found:
                raise StageFailed(str(aside), got=found[0], expected="a checkpoint that reads back as written")
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        target = self._root / f"{PREFIX}{step}"
        shutil.rmtree(target, ignore_errors=True)
        aside.rename(target)
        fsync_path(self._root)
        for _, old in self._complete()[KEEP:]:
            shutil.rmtree(old)
        return target

    def aside(self, step: int) -> Path:
        """The folder that ``save`` hands to ``write``: where other ranks write their parts of the same checkpoint."""
        return self._root / f".{PREFIX}{step}.tmp"

    def latest(self) -> tuple[int, Path] | None:
        """(step, folder) of the newest checkpoint whose every byte verifies, or None where there is none."""
        for step, folder in self._complete():
            found = manifest.problems(folder, manifest.read(folder) or {}, full=True)
            if not found:
                return step, folder
            self._warn(f"checkpoint {folder.name} is damaged ({found[0]}) and is passed over")
        return None

    def _complete(self) -> list[tuple[int, Path]]:
        """Checkpoints with a manifest, newest first."""
        found = []
        for folder in self._root.glob(f"{PREFIX}*"):
            try:
                about = manifest.read(folder)
            except CorruptArtifact as error:
                self._warn(str(error))
                continue
            if about is None or not isinstance(about.get("step"), int):
                self._warn(f"checkpoint {folder.name} is incomplete and is passed over")
                continue
            found.append((int(about["step"]), folder))
        return sorted(found, reverse=True)
