"""Artifacts: whole or not at all, immutable, never reused when damaged. Oracles: the bytes on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.store.local import Artifact, Store
from stages.core import manifest
from stages.core.errors import ConfigError, CorruptArtifact, StoreError
from stages.core.files import write_json

ABOUT = {"node": "rl.code.low", "seconds": 3.5}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def fill(store: Store, key: str = "k1", text: str = "weights") -> Path:
    out = store.work_dir(key) / "out"
    (out / "logs").mkdir(parents=True)
    (out / "model.bin").write_text(text)
    (out / "logs" / "events.jsonl").write_text("{}\n")
    return out


def commit(store: Store, key: str = "k1", text: str = "weights") -> Artifact:
    return store.commit("rl", key, fill(store, key, text), ABOUT)


def test_commit_then_find_gives_the_same_artifact(store: Store) -> None:
    made = commit(store)
    found = store.find("rl", "k1")
    assert found == made
    assert found is not None
    assert (found.path / "model.bin").read_text() == "weights"
    assert (found.node, found.seconds) == ("rl.code.low", 3.5)
    assert not (store.work_dir("k1") / "out").exists()


def test_what_was_never_made_is_none_not_an_error(store: Store) -> None:
    assert store.find("rl", "k1") is None


def test_logs_do_not_enter_the_digest(store: Store) -> None:
    first = commit(store, "k1")
    out = fill(store, "k2")
    (out / "logs" / "events.jsonl").write_text('{"t": 1}\n')
    second = store.commit("rl", "k2", out, ABOUT)
    assert first.digest == second.digest


def test_a_second_commit_adopts_the_first(store: Store) -> None:
    first = commit(store, text="first")
    second = commit(store, text="second")
    assert second.digest == first.digest
    assert (second.path / "model.bin").read_text() == "first"


def test_a_commit_replaces_a_damaged_artifact_and_keeps_it_aside(store: Store) -> None:
    first = commit(store, text="first")
    (first.path / "model.bin").unlink()
    second = commit(store, text="second")
    assert (second.path / "model.bin").read_text() == "second"
    assert [path.name.split("-")[0] for path in (store.root / "damaged" / "rl").iterdir()] == ["k1"]


def delete(artifact: Artifact) -> None:
    (artifact.path / "model.bin").unlink()


def truncate(artifact: Artifact) -> None:
    (artifact.path / "model.bin").write_text("weigh")


def flip(artifact: Artifact) -> None:
    (artifact.path / "model.bin").write_text("wEights")


def add(artifact: Artifact) -> None:
    (artifact.path / "extra.bin").write_text("x")


def lose_manifest(artifact: Artifact) -> None:
    (artifact.path / manifest.MANIFEST).unlink()


def break_manifest(artifact: Artifact) -> None:
    (artifact.path / manifest.MANIFEST).write_text('{"files": ')


def forge_manifest(artifact: Artifact) -> None:
    files = [{**item, "sha256": "0" * 64} for item in artifact.manifest["files"]]
    write_json(artifact.path / manifest.MANIFEST, {**artifact.manifest, "files": files})


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (delete, "missing: model.bin"),
        (truncate, "size: model.bin"),
        (flip, "changed: model.bin"),
        (add, "foreign: extra.bin"),
        (lose_manifest, "missing: manifest.json"),
        (break_manifest, "a manifest"),
        (forge_manifest, "manifest.json"),
    ],
)
def test_damage_is_named_and_never_reused(store: Store, damage: Callable[[Artifact], None], named: str) -> None:
    damage(commit(store))
    with pytest.raises(CorruptArtifact, match=named):
        store.find("rl", "k1")


def test_verify_finds_a_flipped_byte_under_an_old_time_stamp(store: Store) -> None:
    artifact = commit(store)
    path = artifact.path / "model.bin"
    before = path.stat()
    flip(artifact)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns - 10**9))
    assert store.find("rl", "k1") is not None  # the cheap look believes size and time
    assert store.verify(artifact) == ["changed: model.bin"]


def test_a_manifest_copied_to_another_key_is_refused(store: Store) -> None:
    artifact = commit(store)
    artifact.path.rename(artifact.path.with_name("k2"))
    with pytest.raises(CorruptArtifact, match="that of rl/k1"):
        store.find("rl", "k2")


@pytest.mark.parametrize("fails_at", ["write_json", "fsync_path"])
def test_a_failure_before_the_rename_commits_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    out = fill(store)
    monkeypatch.setattr(f"infra.store.local.{fails_at}", full)
    with pytest.raises(OSError, match="No space left"):
        store.commit("rl", "k1", out, ABOUT)
    assert store.find("rl", "k1") is None
    assert (out / "model.bin").exists()


def test_artifacts_lists_good_and_damaged_but_no_other_folder(store: Store) -> None:
    commit(store, "k1")
    lose_manifest(commit(store, "k2"))
    store.runs_dir.mkdir()
    first, second = store.artifacts()
    assert isinstance(first, Artifact)
    assert first.key == "k1"
    assert isinstance(second, CorruptArtifact)


def test_history_has_one_record_a_commit(store: Store) -> None:
    commit(store, "k1")
    commit(store, "k2")
    assert [(item["key"], item["node"], item["seconds"]) for item in store.history()] == [
        ("k1", "rl.code.low", 3.5),
        ("k2", "rl.code.low", 3.5),
    ]


def test_open_takes_paths_and_file_urls_only() -> None:
    assert Store.open("a/b").root == Path("a/b")
    assert Store.open("file:///a/b").root == Path("/a/b")
    with pytest.raises(ConfigError, match="expected a local path or file://") as error:
        Store.open("s3://bucket/x")
    assert error.value.exit_code == 2


def test_a_store_that_cannot_be_written_names_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match=r"expected a folder that can be written.*--set store=PATH") as error:
        Store(tmp_path / "file" / "store").check_writable()
    assert error.value.exit_code == 2


def test_a_writable_store_is_made_and_left_empty(store: Store) -> None:
    store.check_writable()
    assert list(store.root.iterdir()) == []
