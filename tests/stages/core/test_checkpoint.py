"""Oracle: what was written last and verifies is what comes back; nothing damaged ever does (cases C01, C02, C04)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stages.core.checkpoint import Checkpoints
from stages.core.errors import StageFailed


def fill(text: str):
    return lambda folder: (folder / "weights").write_text(text)


def test_latest_is_ordered_by_step_not_by_time_or_name(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, warn=lambda _: None)
    for step in (900, 950, 1000):
        checkpoints.save(step, fill(str(step)))
    os.utime(tmp_path / "step-950", (2e9, 2e9))
    found = checkpoints.latest()
    assert found is not None
    assert found[0] == 1000
    assert {path.name for path in tmp_path.iterdir()} == {"step-950", "step-1000"}


def test_damaged_and_unfinished_checkpoints_are_passed_over_and_named(tmp_path: Path) -> None:
    warnings: list[str] = []
    checkpoints = Checkpoints(tmp_path, warn=warnings.append)
    checkpoints.save(10, fill("ten"))
    checkpoints.save(20, fill("twenty"))
    (tmp_path / "step-20" / "weights").write_text("half")
    (tmp_path / "step-30").mkdir()
    found = checkpoints.latest()
    assert found is not None
    assert found[0] == 10
    assert any("step-20" in text for text in warnings)
    assert any("step-30" in text for text in warnings)


def test_a_write_that_fails_leaves_the_older_checkpoint_and_no_remains(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, warn=lambda _: None)
    checkpoints.save(1, fill("one"))

    def full_disk(folder: Path) -> None:
        (folder / "weights").write_text("part")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        checkpoints.save(2, full_disk)
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
    assert checkpoints.latest() == (1, tmp_path / "step-1")


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "absent", warn=lambda _: None).latest() is None


def test_what_does_not_read_back_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.core.manifest.problems", lambda *_, **__: ["changed: weights"])
    with pytest.raises(StageFailed, match="changed: weights"):
        Checkpoints(tmp_path, warn=lambda _: None).save(1, fill("one"))
    assert list(tmp_path.iterdir()) == []
