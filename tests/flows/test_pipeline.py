"""The command line over counting stages: the real Prefect flow, the real MLflow database, real workers.

Oracles: exit codes, what is printed, and what the two databases say when read as plain SQLite."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from counting import HERE, PIPELINE, ROOT

from flows import runs
from infra.store.local import Store


class Terminal:
    """A folder with a store and a hand (see counting_stage), and the command line in it."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root / "store")
        self.control = root / "control"
        self.control.mkdir()
        self.network = root / "network"

    def ninefold(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "MLFLOW"))}
        path = os.pathsep.join(str(folder) for folder in (ROOT, HERE, HERE / "guard"))
        return subprocess.run(
            [sys.executable, str(HERE / "counting_cli.py"), str(self.control), *arguments],
            cwd=ROOT,
            env={**own, "PYTHONPATH": path, "NETWORK_GUARD": str(self.network)},
            capture_output=True,
            text=True,
        )

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.ninefold("run", str(PIPELINE), "--set", f"store={self.store.root}", *options)

    def ask(self, database: str, question: str) -> list[Any]:
        with closing(sqlite3.connect(self.store.root / database)) as connection:
            return connection.execute(question).fetchall()


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_a_run_that_fails_goes_on_and_is_then_reused(terminal: Terminal) -> None:
    (terminal.control / "fail.rl.code.low.3").touch()
    first = terminal.run()
    assert first.returncode == 5, first.stderr
    # One line of error, with the reason and the way on; no traceback, no chatter of the libraries.
    assert first.stderr.count("\n") == 1
    assert first.stderr.startswith("error: a stage failed: got rl.code.low: got a planted failure at step 3")
    assert f"to go on: ninefold run {PIPELINE} --set store={terminal.store.root}" in first.stderr
    states = dict(terminal.ask(".prefect/prefect.db", "select name, state_name from task_run"))
    assert states == {
        "sft": "Completed", "rl.code.low": "Failed", "rl.code.high": "Completed", "rl.agent.low": "Completed",
        "merge": "NotReady",
    }  # fmt: skip
    assert terminal.ask(".prefect/prefect.db", "select state_name from flow_run") == [("Failed",)]
    failed = dict(terminal.ask("mlflow.db", "select name, status from runs"))
    record = runs.latest(terminal.store)
    assert record is not None
    assert (record.state, failed[record.run_id], failed["rl.code.low"]) == ("FAILED", "FAILED", "FAILED")

    (terminal.control / "fail.rl.code.low.3").unlink()
    second = terminal.run()
    assert (second.returncode, second.stderr) == (0, "")
    assert "outside the stages' own work" in second.stdout
    _check_mlflow(terminal)
    assert {key for (key,) in terminal.ask(".prefect/prefect.db", "select key from artifact")} == {
        "plan", "link-compare", "link-curves",
    }  # fmt: skip

    before = time.monotonic()
    third = terminal.run()
    assert (third.returncode, third.stderr) == (0, "")
    assert "nothing made" in third.stdout
    assert time.monotonic() - before < 60
    # It ended before Prefect and MLflow: neither knows of it.
    assert len(terminal.ask(".prefect/prefect.db", "select id from flow_run")) == 2
    assert len(terminal.ask("mlflow.db", "select run_uuid from runs where name like 'quickstart-%'")) == 2
    assert [record.state for record in runs.records(terminal.store)] == ["DONE", "DONE", "FAILED"]
    assert not terminal.network.exists(), terminal.network.read_text()


def _check_mlflow(terminal: Terminal) -> None:
    """One finished run a stage, below the finished parent; each step once; each specialist a version."""
    parents = terminal.ask("mlflow.db", "select run_uuid, status from runs where name like 'quickstart-%'")
    assert sorted(status for _, status in parents) == ["FAILED", "FINISHED"]
    found = terminal.ask("mlflow.db", "select name, status from runs where name not like 'quickstart-%'")
    names = ("sft", "rl.code.low", "rl.code.high", "rl.agent.low", "merge")
    assert sorted(found) == sorted((name, "FINISHED") for name in names)
    # Started in the first run and gone on with in the second: the same MLflow run, no step twice.
    steps = terminal.ask(
        "mlflow.db",
        "select step from metrics join runs using (run_uuid) where name = 'rl.code.low' and key = 'reward' order by 1",
    )
    assert steps == [(1,), (2,), (3,), (4,), (5,), (6,)]
    finished = next(run_id for run_id, status in parents if status == "FINISHED")
    tags = dict(
        terminal.ask("mlflow.db", "select key, value from tags join runs using (run_uuid) where name = 'rl.code.low'")
    )
    wanted = {"stage": "rl", "domain": "code", "effort": "low", "node": "rl.code.low", "attempt": "0"}
    assert tags | wanted == tags
    assert tags["mlflow.parentRunId"] == finished
    versions = terminal.ask("mlflow.db", "select name, version from model_versions")
    assert sorted(versions) == [("ninefold-agent-low", 1), ("ninefold-code-high", 1), ("ninefold-code-low", 1)]


def test_a_tracker_that_is_down_when_a_run_starts_is_bad_input_and_leaves_nothing(terminal: Terminal) -> None:
    done = terminal.run("--set", "tracking.uri=http://127.0.0.1:9")
    assert done.returncode == 2
    assert done.stderr.startswith("error: tracking.uri http://127.0.0.1:9: got ConnectionRefusedError")
    assert done.stderr.count("\n") == 1
    assert runs.records(terminal.store) == []
