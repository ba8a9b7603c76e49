"""The whole program on a model that trains in seconds: Prefect, MLflow, workers, sandbox, report, all of it.

Oracles: a run that was killed in the middle of a specialist ends with the content of one that was not; the network log
of every process stays empty; the tracker shows one parent and a child a node.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from mlflow.tracking import MlflowClient

from stages.core.context import METRICS
from stages.core.files import read_jsonl

HERE = Path(__file__).parent
CONFIG = HERE / "small.yaml"
FORMS = ("quick </think> {answer}", "steps {a} {b} </think> {answer}")
DIGITS = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3)]


def write_domain(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)

    def answer(a: int, b: int) -> str:
        return str(a + b) if name == "sums" else f"return {a + b} * x"

    def problem(split: str, a: int, b: int) -> dict[str, object]:
        tests = [[x, (a + b) * x] for x in (0, 1, 5)]
        row = {"id": f"{split}{a}{b}", "prompt": f"{name} {a} {b}", "answer": answer(a, b), "difficulty": "easy"}
        return row | ({"tests": tests} if name == "code" else {})

    def demonstration(index: int, a: int, b: int) -> dict[str, object]:
        text = FORMS[index].format(a=a, b=b, answer=answer(a, b))
        return {"id": f"d{index}{a}{b}", "prompt": f"{name} {a} {b}", "response": text}

    files = {
        "problems": [problem("p", a, b) for a, b in DIGITS],
        "heldout": [problem("h", b, a) for a, b in DIGITS],
        "demonstrations": [demonstration(index, a, b) for a, b in DIGITS for index in range(len(FORMS))],
    }
    for part, rows in files.items():
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the data."""
    folder = tmp_path_factory.mktemp("pipeline")
    for name in ("sums", "code"):
        write_domain(folder / "data" / name, name)
    return folder


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(HERE / "guard"), str(HERE.parents[1])])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "NETWORK_LOG": str(home / "network.log"),
        "OMP_NUM_THREADS": "1",
        "PREFECT_HOME": str(home / "prefect"),  # migrated once for all runs
    }
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *arguments],
        cwd=home,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ninefold(home: Path, *arguments: str) -> str:
    """Run to the end; returns what was printed."""
    process = start(home, *arguments)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    return output


def digests(store: Path) -> dict[str, str]:
    """Content digest of every artifact by node."""
    manifests = [json.loads(path.read_text()) for path in store.glob("*/*/manifest.json")]
    return {manifest["node"]: manifest["digest"] for manifest in manifests}


def kill_in(home: Path, node: str, steps: int) -> None:
    """SIGKILL the whole run's flow once ``node`` has logged so many steps, and see its workers end with it."""
    process = start(home, "run", str(CONFIG), "--set", "store=killed")
    try:
        for _ in process.stdout or ():  # a line a stage: wakes up often enough, and blocks where nothing happens
            if _steps_of(home / "killed" / "work", node) >= 0:
                break
        watched = psutil.Process(process.pid).children(recursive=True)
        while _steps_of(home / "killed" / "work", node) < steps:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(watched, timeout=60)
        assert alive == []
    finally:
        process.kill()
        process.communicate()  # closes the pipe as well


def _steps_of(work: Path, node: str) -> int:
    """Steps that the node's run folder has logged; -1: no such folder yet."""
    for resolved in work.glob("*/resolved.json"):
        if json.loads(resolved.read_text())["node"] == node:
            return len(list(read_jsonl(resolved.parent / METRICS)))
    return -1


@pytest.fixture(scope="module")
def finished(home: Path) -> Path:
    """A run that nothing disturbed."""
    output = ninefold(home, "run", str(CONFIG), "--set", "store=whole")
    assert "16 made" in output
    return home / "whole"


def test_nothing_turned_to_the_network(finished: Path, home: Path) -> None:
    log = home / "network.log"
    assert not log.exists(), log.read_text()


def test_the_tracker_has_one_parent_and_a_child_a_node(finished: Path) -> None:
    client = MlflowClient(f"sqlite:///{finished / 'mlflow.db'}")
    (experiment,) = [item for item in client.search_experiments() if item.name == "ninefold"]
    runs = client.search_runs([experiment.experiment_id])
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len(runs) - len(children) == 1
    assert {run.data.tags["node"] for run in children} == set(digests(finished))
    curves = client.get_metric_history(
        next(run.info.run_id for run in children if run.data.tags["node"] == "rl.sums.max"), "accuracy"
    )
    assert sorted(point.step for point in curves) == list(range(1, 13))
    version = client.get_model_version_by_alias("ninefold", "champion")
    assert version.source.endswith("/model")


def test_a_killed_run_ends_as_the_undisturbed_one(finished: Path, home: Path) -> None:
    kill_in(home, "rl.sums.max", steps=3)
    before = {path: path.stat().st_mtime_ns for path in (home / "killed").glob("sft/*/manifest.json")}
    assert len(before) == 1
    output = ninefold(home, "run", str(CONFIG), "--set", "store=killed")
    assert "rl.sums.max" in output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert digests(home / "killed") == digests(finished)


def test_a_second_run_makes_nothing_and_starts_nothing(finished: Path, home: Path) -> None:
    script = (
        "import sys; from flows.cli import main\ntry: main()\nfinally: print(*sorted(sys.modules), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, "run", str(CONFIG), "--set", "store=whole"],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert not {"prefect", "mlflow", "torch"} & set(result.stderr.split())


def test_one_changed_tau_plans_that_cell_and_what_follows(finished: Path, home: Path) -> None:
    output = ninefold(home, "plan", str(CONFIG), "--set", "store=whole", "--set", "tau.code.low=0.9", "--json")
    planned = {row["node"]: row["reason"] for row in json.loads(output)["rows"] if row["status"] == "run"}
    assert set(planned) == {
        "rl.code.low",
        "distill",
        "evaluate.code.low",
        "evaluate.distill",
        "evaluate",
        "promote",
    }
    assert planned["rl.code.low"] == "tau.code.low 0.8 -> 0.9"
