"""One stage for its own sake. Oracles: the counting stage's own total, and a temporary folder that is empty again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from counting import HERE, ROOT, until
from counting_stage import CountJob

from flows.config import ResourcesConfig
from flows.once import run_once
from stages.core.errors import StageFailed
from stages.core.files import read_json
from stages.core.keys import derive_seed


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders go; also holds for processes."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(HERE)]))
    return folder


def count(control: Path, inputs: Mapping[str, Path] | None = None) -> AbstractContextManager[Path]:
    job = CountJob(node="count", control=str(control), count=2)
    return run_once("count", "counting_stage", job, inputs or {}, 5, ResourcesConfig())


def test_the_result_is_there_inside_the_block_and_nothing_after_it(tmp_path: Path, temporary: Path) -> None:
    with count(tmp_path) as out:
        assert read_json(out / "total.json")["total"] == sum(derive_seed(5, step) for step in (1, 2)) % 1_000_003
        assert len(list(temporary.iterdir())) == 1
    assert list(temporary.iterdir()) == []


def test_the_error_of_a_stage_crosses_as_it_is(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "fail.count.1").touch()
    with pytest.raises(StageFailed) as raised, count(tmp_path):
        pass
    assert str(raised.value) == "count: got a planted failure at step 1; expected none"
    assert "Traceback" in raised.value.__notes__[0]  # shown under NINEFOLD_DEBUG
    assert list(temporary.iterdir()) == []


def test_an_end_without_a_word_is_a_failed_stage(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "die.count.2").touch()
    with pytest.raises(StageFailed, match=r"^count: got ended by SIGKILL; its last line: nothing"), count(tmp_path):
        pass
    assert list(temporary.iterdir()) == []


def test_a_fault_of_the_program_is_a_failed_stage(tmp_path: Path, temporary: Path) -> None:
    with pytest.raises(StageFailed, match=r"^FileNotFoundError: .*total\.json"), count(tmp_path, {"parent": tmp_path}):
        pass
    assert list(temporary.iterdir()) == []


COMMAND = """
import sys
from counting_stage import CountJob
from flows.config import ResourcesConfig
from flows.once import run_once

with run_once("x", "counting_stage", CountJob(node="count", control=sys.argv[1]), {}, 5, ResourcesConfig()):
    pass
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_ends_worker_and_files(number: signal.Signals, code: int, tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "hold.count.1").touch()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    held = tmp_path / "held.count"
    try:
        until(lambda: held.exists() and held.read_text() != "")
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    assert list(temporary.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(held.read_text()), 0)
