"""The digest cache answers as the bytes do. Oracle: hashlib on the bytes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from infra.store import digests
from infra.store.digests import DigestCache
from infra.store.local import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store")


def aged(path: Path, text: str, seconds: int = 60) -> Path:
    """A file last changed a while ago."""
    path.write_text(text)
    then = path.stat().st_mtime_ns - seconds * 10**9
    os.utime(path, ns=(then, then))
    return path


def test_digest_is_that_of_the_bytes(store: Store, tmp_path: Path) -> None:
    path = aged(tmp_path / "a.jsonl", "one")
    assert DigestCache(store).digest(path) == hashlib.sha256(b"one").hexdigest()


def test_a_known_file_is_not_read_again(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = aged(tmp_path / "a.jsonl", "one")
    first = DigestCache(store)
    digest = first.digest(path)
    first.save()

    def unread(_: Path) -> str:
        raise AssertionError("the file was read")

    monkeypatch.setattr(digests, "digest_file", unread)
    assert DigestCache(store).digest(path) == digest


def test_same_size_and_another_time_is_read_again(store: Store, tmp_path: Path) -> None:
    path = aged(tmp_path / "a.jsonl", "one")
    cache = DigestCache(store)
    cache.digest(path)
    aged(path, "two", seconds=30)
    assert cache.digest(path) == hashlib.sha256(b"two").hexdigest()


def test_a_file_changed_just_now_is_not_remembered(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("one")
    stamp = path.stat().st_mtime_ns
    cache = DigestCache(store)
    cache.digest(path)
    path.write_text("two")
    os.utime(path, ns=(stamp, stamp))  # a second change within one tick of a coarse clock
    assert cache.digest(path) == hashlib.sha256(b"two").hexdigest()


def test_a_folder_digest_follows_names_and_bytes(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "base"
    folder.mkdir()
    aged(folder / "a", "one")
    cache = DigestCache(store)
    first = cache.digest(folder)
    (folder / "a").rename(folder / "b")
    assert cache.digest(folder) != first
    (folder / "b").rename(folder / "a")
    assert cache.digest(folder) == first


def test_a_broken_cache_costs_only_time(store: Store, tmp_path: Path) -> None:
    path = aged(tmp_path / "a.jsonl", "one")
    (store.root / "cache").mkdir()
    (store.root / "cache" / "digests.json").write_text("{")
    assert DigestCache(store).digest(path) == hashlib.sha256(b"one").hexdigest()


def test_saving_creates_no_store(tmp_path: Path) -> None:
    path = aged(tmp_path / "a.jsonl", "one")
    cache = DigestCache(Store(tmp_path / "none"))
    cache.digest(path)
    cache.save()
    assert not (tmp_path / "none").exists()
