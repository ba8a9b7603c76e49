"""The store: finished stage outputs as immutable folders, and what surrounds them.

root/<stage>/<key>/     an artifact: files, and manifest.json written last
root/work/<key>/        the run folder of an unfinished stage; stays until the stage is committed
root/runs/<run_id>/     one record a pipeline run
root/refs/, attempts/   what each pipeline's nodes used last, and which attempt they are at
root/leases/            one lock a key
root/damaged/           artifacts that were replaced because their bytes were not as written
root/cache/             digests of data files
root/history.jsonl      one line a commit, for estimates
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.core import manifest
from stages.core.errors import ConfigError, CorruptArtifact, StoreError
from stages.core.files import append_jsonl, fsync_path, read_jsonl, write_json
from stages.core.keys import digest_file

WORK = "work"
RUNS = "runs"
REFS = "refs"
ATTEMPTS = "attempts"
LEASES = "leases"
DAMAGED = "damaged"
CACHE = "cache"
HISTORY = "history.jsonl"
RESERVED = frozenset({WORK, RUNS, REFS, ATTEMPTS, LEASES, DAMAGED, CACHE})
"""Folder names under the root that are not stages."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A finished stage output."""

    stage: str
    key: str
    path: Path
    digest: str
    """SHA-256 over the content, ``logs/`` left out: what the keys of its children are made from."""
    manifest: Mapping[str, Any]

    @property
    def node(self) -> str:
        """Id of the plan node that made it first."""
        return str(self.manifest["node"])

    @property
    def seconds(self) -> float:
        """Wall time that its making took."""
        return float(self.manifest["seconds"])


class Store:
    """All methods are safe beside other processes; two writers of one key are kept apart by its lease."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def open(cls, url: str) -> Store:
        """The store at a local path or a ``file://`` URL; nothing is created yet.

        Raises:
            ConfigError: another scheme.
        """
        scheme, separator, path = url.partition("://")
        if not separator:
            return cls(Path(url).expanduser())
        if scheme != "file" or not path.startswith("/"):
            raise ConfigError(
                "store", got=f"'{url}'", expected="a local path or file:///path", fix="point store at a folder"
            )
        return cls(Path(path))

    def check_writable(self) -> None:
        """Prove that files can be made here, by making one.

        Raises:
            StoreError: they cannot.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root) as handle:
                handle.write(b"x")
        except OSError as error:
            raise StoreError(
                f"store {self.root}",
                got=error.strerror or str(error),
                expected="a folder that can be written",
                fix="free or unlock it, or point at another with --set store=PATH",
            ) from None

    @property
    def runs_dir(self) -> Path:
        return self.root / RUNS

    def work_dir(self, key: str) -> Path:
        """The run folder of the stage that makes ``key``; the caller creates and fills it."""
        return self.root / WORK / key

    def discard_work(self, key: str) -> None:
        """Remove the run folder of a committed stage."""
        shutil.rmtree(self.work_dir(key), ignore_errors=True)

    def path(self, stage: str, key: str) -> Path:
        return self.root / stage / key

    def find(self, stage: str, key: str) -> Artifact | None:
        """The artifact, or None where there is none.

        Sizes are compared, and every file that was touched since the manifest is read in full; ``verify`` reads all.

        Raises:
            CorruptArtifact: it exists but is not what its manifest says; it is never reused.
        """
        artifact = self._read(stage, key)
        if artifact is None:
            return None
        found = manifest.problems(artifact.path, artifact.manifest, full=False) or _touched(artifact)
        if found:
            raise _corrupt(artifact.path, found)
        return artifact

    def verify(self, artifact: Artifact, *, full: bool = True) -> list[str]:
        """What differs between the artifact and its manifest, one line each; empty: nothing.

        Args:
            full: read every byte; else sizes only.
        """
        return manifest.problems(artifact.path, artifact.manifest, full=full)

    def artifacts(self) -> Iterator[Artifact | CorruptArtifact]:
        """Every artifact by stage and key, unverified; where a manifest is missing or broken, the error instead."""
        if not self.root.is_dir():
            return
        for stage in sorted(self.root.iterdir()):
            if not stage.is_dir() or stage.name in RESERVED or stage.name.startswith("."):
                continue
            for folder in sorted(stage.iterdir()):
                try:
                    artifact = self._read(stage.name, folder.name)
                except CorruptArtifact as error:
                    yield error
                    continue
                if artifact is not None:
                    yield artifact

    def commit(self, stage: str, key: str, out: Path, about: Mapping[str, Any]) -> Artifact:
        """Turn ``out`` into the artifact ``stage``/``key``: files to disk, manifest last, then one rename.

        Where a whole artifact of this key stands already it is adopted and ``out`` is dropped; a damaged one is moved
        to ``damaged/`` first. A kill at any point leaves either no artifact or a whole one.

        Args:
            out: a folder on the store's file system, e.g. ``work_dir(key) / "out"``.
            about: goes into the manifest; at least ``node`` and ``seconds``.

        Raises:
            OSError: the disk is full or read-only; nothing is committed.
        """
        for path in sorted(out.rglob("*")):
            fsync_path(path)
        write_json(out / manifest.MANIFEST, manifest.build(out, stage=stage, key=key, **about))
        target = self.path(stage, key)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            try:
                adopted = self.find(stage, key)
            except CorruptArtifact:
                adopted = None
            if adopted is not None:
                shutil.rmtree(out)
                return adopted
            self._set_aside(target)
        out.rename(target)
        fsync_path(target.parent)
        append_jsonl(
            self.root / HISTORY,
            {"t": time.time(), "stage": stage, "key": key, "node": about["node"], "seconds": about["seconds"]},
        )
        committed = self._read(stage, key)
        assert committed is not None  # it was renamed into place just now
        return committed

    def history(self) -> list[dict[str, Any]]:
        """One record a commit, oldest first: ``t``, ``stage``, ``node``, ``key``, ``seconds``."""
        return list(read_jsonl(self.root / HISTORY))

    def _read(self, stage: str, key: str) -> Artifact | None:
        path = self.path(stage, key)
        if not path.exists():
            return None
        about = manifest.read(path)
        if about is None:
            raise _corrupt(path, ["missing: manifest.json"])
        if (about.get("stage"), about.get("key")) != (stage, key):
            raise _corrupt(path, [f"moved: manifest.json is that of {about.get('stage')}/{about.get('key')}"])
        return Artifact(stage, key, path, str(about["digest"]), about)

    def _set_aside(self, target: Path) -> None:
        folder = self.root / DAMAGED / target.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        target.rename(folder / f"{target.name}-{time.time_ns()}")


def _touched(artifact: Artifact) -> list[str]:
    """Changed files among those written after the manifest, which was written last."""
    sealed_ns = (artifact.path / manifest.MANIFEST).stat().st_mtime_ns
    return [
        f"changed: {item.path}"
        for item in manifest.entries(artifact.manifest)
        if (artifact.path / item.path).stat().st_mtime_ns >= sealed_ns
        and digest_file(artifact.path / item.path) != item.sha256
    ]


def _corrupt(path: Path, found: list[str]) -> CorruptArtifact:
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return CorruptArtifact(
        f"artifact {path}",
        got="; ".join(found[:3]) + more,
        expected="what its manifest says",
        fix="run the pipeline to have it made again",
    )
