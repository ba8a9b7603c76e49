"""What an engine's state was written by: states of different engines, or numbers of processes, do not mix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.core.errors import ConfigError
from stages.core.files import read_json, write_json

STAMP = "engine.json"


def write_stamp(folder: Path, about: Mapping[str, Any]) -> None:
    write_json(folder / STAMP, dict(about))


def check_stamp(folder: Path, about: Mapping[str, Any]) -> None:
    """Raises:
    ConfigError: the state in ``folder`` was written by another engine or number of processes.
    """
    written = read_json(folder / STAMP)
    if written != dict(about):
        raise ConfigError(
            f"checkpoint {folder.parent.name}",
            got=_words(about),
            expected=f"{_words(written)}, which wrote it",
            fix="set resources back, or remove the run folder to start anew",
        )


def _words(about: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in about.items())
