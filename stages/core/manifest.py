"""The manifest of a folder: every file's size and SHA-256, and a digest of the content.

``logs/`` is listed but left out of the content digest: events and metrics carry times, and two runs with one result
must have the same digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stages.core.errors import CorruptArtifact
from stages.core.files import read_json
from stages.core.keys import digest_file, digest_of

MANIFEST = "manifest.json"
LOGS = "logs/"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a folder."""

    path: str
    """Relative to the folder, with forward slashes."""
    size: int
    """Bytes."""
    sha256: str


def scan(folder: Path) -> list[FileEntry]:
    """Every file below ``folder`` but the manifest itself, sorted by path."""
    return [
        FileEntry(path.relative_to(folder).as_posix(), path.stat().st_size, digest_file(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).as_posix() != MANIFEST
    ]


def content_digest(files: list[FileEntry]) -> str:
    """SHA-256 over the sorted (path, sha256) pairs outside ``logs/``."""
    return digest_of([[item.path, item.sha256] for item in files if not item.path.startswith(LOGS)])


def build(folder: Path, **about: Any) -> dict[str, Any]:
    """The manifest of ``folder`` with ``about`` beside its files."""
    files = scan(folder)
    return {**about, "digest": content_digest(files), "files": [asdict(item) for item in files]}


def read(folder: Path) -> dict[str, Any] | None:
    """The manifest of ``folder``, or None where the folder holds no finished artifact.

    Raises:
        CorruptArtifact: the manifest is there but is not a manifest.
    """
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        manifest = read_json(path)
        entries(manifest)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptArtifact(
            str(path), got=repr(error), expected="a manifest", fix="remove the folder to have it made again"
        ) from None
    return dict(manifest)


def entries(manifest: Mapping[str, Any]) -> list[FileEntry]:
    return [FileEntry(**item) for item in manifest["files"]]


def problems(folder: Path, manifest: Mapping[str, Any], *, full: bool) -> list[str]:
    """What differs between ``folder`` and its manifest: missing, resized, changed and foreign files, one line each.

    Args:
        full: read every byte; else sizes only.
    """
    found = []
    listed = entries(manifest)
    for item in listed:
        path = folder / item.path
        if not path.is_file():
            found.append(f"missing: {item.path}")
        elif path.stat().st_size != item.size:
            found.append(f"size: {item.path} has {path.stat().st_size} bytes, not {item.size}")
        elif full and digest_file(path) != item.sha256:
            found.append(f"changed: {item.path}")
    if content_digest(listed) != manifest["digest"]:
        found.append("changed: manifest.json (its digest does not follow from its files)")
    known = {item.path for item in listed} | {MANIFEST}
    found += [
        f"foreign: {path.relative_to(folder).as_posix()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).as_posix() not in known
    ]
    return found
