"""One stage in one process. Oracles: the exit codes of the error tree, and the files that the run folder promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from counting import HERE, ROOT

from flows.worker import job_type
from stages.core.context import ERROR, EVENTS, LOG, METRICS, RESOLVED, RESULT
from stages.core.files import read_json, read_jsonl, write_json
from stages.core.keys import derive_seed

STAGES = """
import sys
from stages.core.config import Config
from stages.core.context import StageContext

class Job(Config):
    what: str

def run(job: Job, context: StageContext):
    if job.what == "bug":
        raise KeyError("on purpose")
    if job.what == "modules":
        return {"found": sorted({"prefect", "mlflow", "torch"} & set(sys.modules))}
    import torch
    return {
        "threads": torch.get_num_threads(),
        "interop": torch.get_num_interop_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "device": context.device,
    }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "odd_stage.py").write_text(STAGES)
    (tmp_path / "torch_stage.py").write_text("import torch\n" + STAGES)
    return tmp_path


def _work(folder: Path, module: str, config: dict[str, Any]) -> int:
    resources = {"device": "cpu", "threads": 1, "engine": "single", "processes": 1, "checkpoint_seconds": 60.0}
    write_json(
        folder / RESOLVED,
        {
            "node": "node.x", "stage": "x", "module": module, "config": config, "inputs": {}, "seed": 7,
            "resources": resources,
        },
    )  # fmt: skip
    path = os.pathsep.join([str(ROOT), str(HERE), str(folder)])
    command = [sys.executable, "-m", "flows.worker", str(folder)]
    with (folder / LOG).open("w") as log:
        return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stderr=log).returncode


def _count(folder: Path, **config: Any) -> int:
    return _work(folder, "counting_stage", {"node": "node.x", "control": str(folder), "count": 3, **config})


def test_a_stage_by_hand_leaves_its_result_and_a_second_start_repeats_nothing(folder: Path) -> None:
    assert _count(folder) == 0
    total = 0
    for step in (1, 2, 3):
        total = (total + derive_seed(7, step)) % 1_000_003
    assert read_json(folder / "out" / "total.json") == {"total": total}
    result = read_json(folder / RESULT)
    assert result["summary"] == {"accuracy": total / 1_000_003, "steps_here": 3}
    assert 0 < result["seconds"] < 60
    assert _count(folder) == 0
    assert [event["event"] for event in read_jsonl(folder / EVENTS)] == ["start", "checkpoint", "done"]


def test_an_error_of_ours_keeps_its_words_and_code(folder: Path) -> None:
    (folder / "fail.node.x.3").touch()
    assert _count(folder) == 5
    error = read_json(folder / ERROR)
    assert (error["type"], error["exit_code"]) == ("StageFailed", 5)
    assert error["message"] == "node.x: got a planted failure at step 3; expected none"
    assert "counting_stage.py" in error["traceback"]
    assert not (folder / RESULT).exists()
    # Mended and started again: it goes on from step 2, the error is gone, no step stands twice.
    (folder / "fail.node.x.3").unlink()
    assert _count(folder) == 0
    assert not (folder / ERROR).exists()
    assert [record["step"] for record in read_jsonl(folder / METRICS)] == [1, 2, 3]


def test_a_stage_without_checkpoint_starts_its_metrics_anew(folder: Path) -> None:
    (folder / "fail.node.x.1").touch()
    assert _count(folder) == 5
    (folder / "fail.node.x.1").unlink()
    assert _count(folder) == 0
    assert [record["step"] for record in read_jsonl(folder / METRICS)] == [1, 2, 3]


def test_a_config_that_the_stage_does_not_take_is_bad_input(folder: Path) -> None:
    assert _count(folder, coutn=4) == 2
    assert read_json(folder / ERROR)["message"] == (
        "node.x: coutn: got an unknown key; expected a key of the schema; did you mean 'count'?"
    )


def test_a_bug_is_5_with_its_name(folder: Path) -> None:
    assert _work(folder, "odd_stage", {"what": "bug"}) == 5
    assert read_json(folder / ERROR)["message"] == "KeyError: 'on purpose'"
    assert "KeyError" in (folder / LOG).read_text()


def test_the_worker_imports_no_orchestrator_and_no_torch_of_its_own(folder: Path) -> None:
    assert _work(folder, "odd_stage", {"what": "modules"}) == 0
    assert read_json(folder / RESULT)["summary"] == {"found": []}


def test_torch_gets_its_threads_and_determinism(folder: Path) -> None:
    assert _work(folder, "torch_stage", {"what": "torch"}) == 0
    assert read_json(folder / RESULT)["summary"] == {
        "threads": 1, "interop": 1, "deterministic": True, "device": "cpu"
    }  # fmt: skip


def test_a_run_without_a_job_annotation_is_a_programming_error() -> None:
    module = ModuleType("odd")
    exec("def run(job: int, context): ...", module.__dict__)
    with pytest.raises(TypeError, match="must be annotated with a Config"):
        job_type(module)
