"""Files that survive a kill: written aside, flushed to disk, renamed; JSON lines appended whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def fsync_path(path: Path) -> None:
    """Flush a file or a folder entry to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` atomically: a reader sees the old file or the new one, never a part."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with aside.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    aside.replace(path)
    fsync_path(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by ``value`` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def append_jsonl(path: Path, record: Any) -> None:
    """Append one record as one line with one write, so that a kill leaves at most one broken last line."""
    line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read_jsonl(path: Path) -> Iterator[Any]:
    """The records of a JSONL file that this program wrote; a line broken off by a kill ends it."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as handle:
        for line in handle:
            if not line.endswith("\n"):
                return
            yield json.loads(line)
