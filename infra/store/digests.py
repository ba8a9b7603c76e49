"""SHA-256 of data files, remembered by (path, size, modification time) so that planning does not read them again."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from infra.store.local import CACHE, Store
from stages.core.files import read_json, write_json
from stages.core.keys import digest_file, digest_of

SETTLED_NS = 2_000_000_000
"""A file changed this recently is not remembered: it could change again within one tick of the clock."""


class DigestCache:
    """Only a cache: without it, or with a broken one, the same digests come out, slower."""

    def __init__(self, store: Store) -> None:
        self._path = store.root / CACHE / "digests.json"
        self._known: dict[str, list[Any]] = {}
        self._changed = False
        with contextlib.suppress(OSError, ValueError):
            self._known = dict(read_json(self._path))

    def digest(self, path: Path) -> str:
        """SHA-256 (hex) of a file's bytes, or of the (relative path, SHA-256) pairs of a folder's files.

        Raises:
            OSError: it cannot be read.
        """
        if path.is_dir():
            files = sorted(item for item in path.rglob("*") if item.is_file())
            return digest_of([[item.relative_to(path).as_posix(), self.digest(item)] for item in files])
        stat = path.stat()
        name = str(path.resolve())
        known = self._known.get(name)
        if known is not None and known[:2] == [stat.st_size, stat.st_mtime_ns]:
            return str(known[2])
        digest = digest_file(path)
        if time.time_ns() - stat.st_mtime_ns > SETTLED_NS:
            self._known[name] = [stat.st_size, stat.st_mtime_ns, digest]
            self._changed = True
        return digest

    def save(self) -> None:
        """Write what was learned, where the store exists and can be written; planning alone never creates a store."""
        if self._changed and self._path.parent.parent.is_dir():
            with contextlib.suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)
                write_json(self._path, self._known)
                self._changed = False
