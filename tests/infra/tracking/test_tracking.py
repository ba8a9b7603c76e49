"""What ends up in MLflow. Oracle: what MLflow itself answers to a client that had no part in the writing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from mlflow.tracking import MlflowClient

from infra.tracking import mlflow as adapter
from infra.tracking.connect import check_reachable, connect
from infra.tracking.mlflow import OWNER, PARENT, Tracker, flatten, owner_of_this_process
from infra.tracking.stage_run import StageRun, recorded
from infra.tracking.tail import Tail
from stages.core.context import Log
from stages.core.errors import TrackingError
from stages.core.keys import digest_of

Open = Callable[[], Tracker]


@pytest.fixture
def reader(database: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{database}")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def _history(reader: MlflowClient, run_id: str | None, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in reader.get_metric_history(str(run_id), name)]


def _steps(log: Log, *steps: int) -> None:
    for step in steps:
        log.metrics(step, 9, {"reward": step / 10})


def test_only_what_a_checkpoint_covers_is_logged_and_a_resumed_stage_logs_no_step_twice(
    open_tracker: Open, reader: MlflowClient, run_dir: Path
) -> None:
    log = Log(run_dir)
    first, tail = StageRun(open_tracker(), run_dir, "rl.code.low", {}, {}), Tail(run_dir)
    _steps(log, 1, 2)
    first.note(tail.poll())
    assert _history(reader, first.run_id, "reward") == []
    _steps(log, 3, 4)
    log.event("checkpoint", step=3)
    first.note(tail.poll())
    assert _history(reader, first.run_id, "reward") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    # Here the process is killed. The next one sees the old log, until the worker cuts it back to its checkpoint.
    second, tail = StageRun(open_tracker(), run_dir, "rl.code.low", {}, {}), Tail(run_dir)
    assert second.run_id == first.run_id
    second.note(tail.poll())
    log.rewind(3)
    second.note(tail.poll())
    _steps(log, 4, 5)
    second.note(tail.poll())
    second.finish("FINISHED", {"accuracy": 0.5, "passed": True, "name": "low"})
    assert _history(reader, second.run_id, "reward") == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4), (5, 0.5)]
    run = reader.get_run(str(second.run_id))
    assert run.info.status == "FINISHED"
    # Numbers of the result, not words or truths.
    assert {name for name in run.data.metrics if name.startswith("final.")} == {"final.accuracy"}


def test_a_failed_stage_keeps_its_steps_beyond_the_checkpoint_for_the_next_start(
    open_tracker: Open, reader: MlflowClient, run_dir: Path
) -> None:
    log, run = Log(run_dir), StageRun(open_tracker(), run_dir, "sft", {}, {})
    _steps(log, 1, 2, 3)
    log.event("checkpoint", step=2)
    run.note(Tail(run_dir).poll())
    run.finish("FAILED", {})
    assert _history(reader, run.run_id, "reward") == [(1, 0.1), (2, 0.2)]
    assert reader.get_run(str(run.run_id)).info.status == "FAILED"


def test_what_is_not_finite_is_left_out_and_counted(open_tracker: Open, reader: MlflowClient, run_dir: Path) -> None:
    log, run = Log(run_dir), StageRun(open_tracker(), run_dir, "sft", {}, {})
    log.metrics(1, 9, {"loss": float("nan"), "grad_norm": float("inf"), "reward": 0.5})
    run.note(Tail(run_dir).poll())
    run.finish("FINISHED", {"loss": float("nan")})
    assert reader.get_run(str(run.run_id)).data.metrics == {"reward": 0.5, "nonfinite": 2.0}


def test_children_hang_below_the_parent_with_tags_and_flat_parameters(
    open_tracker: Open, reader: MlflowClient, run_dir: Path
) -> None:
    tracker = open_tracker()
    tracker.parent_id = tracker.create("pipeline", {"stage": "pipeline"}, {})
    long = ["x" * 7000]
    params = {"rl": {"steps": 30, "gate": "reachable"}, "cells": long}
    run = StageRun(tracker, run_dir, "rl.code.low", {"stage": "rl", "tau": "0.6"}, params)
    found = reader.get_run(str(run.run_id)).data
    assert found.tags[PARENT] == tracker.parent_id
    assert (found.tags["stage"], found.tags["tau"]) == ("rl", "0.6")
    assert found.params["rl.steps"] == "30"
    assert found.params["rl.gate"] == "reachable"
    # Too long for a parameter: its digest, and the text as a file.
    text = f'["{long[0]}"]'
    assert found.params["cells"] == f"sha256:{digest_of(text)}"
    assert Path(reader.download_artifacts(str(run.run_id), "params/cells.txt")).read_text() == text


def test_more_metrics_than_one_request_takes_all_arrive(open_tracker: Open, reader: MlflowClient) -> None:
    tracker = open_tracker()
    run_id = str(tracker.create("long", {}, {}))
    records = [{"t": 1.0, "step": step, "metrics": {"a": 1.0, "b": 2.0}} for step in range(1, 701)]
    assert tracker.log_records(run_id, records)
    assert len(_history(reader, run_id, "a")) == len(_history(reader, run_id, "b")) == 700


def test_runs_of_dead_processes_end_as_killed_and_others_are_left_alone(
    open_tracker: Open, reader: MlflowClient
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    mine = owner_of_this_process()
    host, pid, started = mine.rsplit(":", 2)
    owners = {
        "dead": f"{host}:{gone.pid}:{started}",
        "number used again": f"{host}:{pid}:{float(started) - 100:.2f}",
        "alive": mine,
        "elsewhere": f"another-host:{gone.pid}:{started}",
        "not ours": "",
    }
    assert not psutil.pid_exists(gone.pid)
    runs = {name: reader.create_run("1", tags={OWNER: owner}).info.run_id for name, owner in owners.items()}
    open_tracker()
    assert {name: reader.get_run(run_id).info.status for name, run_id in runs.items()} == {
        "dead": "KILLED",
        "number used again": "KILLED",
        "alive": "RUNNING",
        "elsewhere": "RUNNING",
        "not ours": "RUNNING",
    }


def test_a_model_is_registered_once_by_reference_and_the_alias_moves_only_when_told(
    open_tracker: Open, reader: MlflowClient, tmp_path: Path
) -> None:
    tracker = open_tracker()
    run_id = tracker.create("promote", {}, {})
    folder = tmp_path / "model"
    folder.mkdir()
    tags = {"key": "k1", "digest": "d1", "run": "r1"}
    assert tracker.register("ninefold", folder, tags, run_id=run_id, alias="champion") == "1"
    assert tracker.register("ninefold", folder, tags, run_id=run_id) == "1"
    assert tracker.register("ninefold", folder, tags | {"key": "k2", "digest": "d2"}, run_id=run_id) == "2"
    assert reader.get_model_version_by_alias("ninefold", "champion").version == 1
    version = reader.get_model_version("ninefold", "2")
    assert version.source == folder.as_uri()
    assert version.tags == tags | {"key": "k2", "digest": "d2"}


def test_a_tracker_that_goes_away_is_warned_of_once_and_gets_what_it_missed_when_it_is_back(
    open_tracker: Open,
    reader: MlflowClient,
    run_dir: Path,
    database: Path,
    warnings_said: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter, "REST_S", 0.0)
    tracker = open_tracker()
    log, run, tail = Log(run_dir), StageRun(tracker, run_dir, "sft", {}, {}), Tail(run_dir)
    content = database.read_bytes()
    database.write_bytes(b"this is no database" * 1000)
    for step in (1, 2):
        _steps(log, step)
        log.event("checkpoint", step=step)
        run.note(tail.poll())
    assert tracker.failures == 2
    assert len(warnings_said) == 1
    assert "the run goes on" in warnings_said[0]
    assert "\n" not in warnings_said[0]
    database.write_bytes(content)
    run.finish("FINISHED", {})
    assert _history(reader, run.run_id, "reward") == [(1, 0.1), (2, 0.2)]


def test_a_tracker_that_failed_is_left_alone_for_a_while(
    open_tracker: Open, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = open_tracker()
    database.write_bytes(b"this is no database" * 1000)
    records = [{"t": 1.0, "step": 1, "metrics": {"a": 1.0}}]
    assert not tracker.log_records("any", records)
    assert not tracker.log_records("any", records)
    assert tracker.failures == 1
    later = time.monotonic() + adapter.REST_S + 1
    monkeypatch.setattr(adapter.time, "monotonic", lambda: later)
    assert not tracker.log_records("any", records)
    assert tracker.failures == 2


def _in_a_file(tmp_path: Path) -> str:
    (tmp_path / "file").write_text("")
    return f"sqlite:///{tmp_path}/file/mlflow.db"


def _no_database(tmp_path: Path) -> str:
    (tmp_path / "mlflow.db").write_text("this is no database, and long enough to be seen as none" * 100)
    return f"sqlite:///{tmp_path}/mlflow.db"


def _nobody_listens(_tmp_path: Path) -> str:
    return "http://127.0.0.1:9"


@pytest.mark.parametrize("make_uri", [_in_a_file, _no_database, _nobody_listens])
def test_a_tracker_that_does_not_open_is_one_line_and_exit_code_2(
    make_uri: Callable[[Path], str], tmp_path: Path
) -> None:
    uri = make_uri(tmp_path)
    for attempt in (check_reachable, lambda uri: connect(uri, "ninefold", tmp_path)):
        with pytest.raises(TrackingError) as caught:
            attempt(uri)
        assert caught.value.exit_code == 2
        assert str(caught.value).startswith(f"tracking.uri {uri}: got ")
        assert "--set tracking.uri=" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_two_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from infra.tracking.connect import connect;"
        "print(connect(sys.argv[1], 'ninefold', Path(sys.argv[2]))[1])"
    )
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0] for process in processes] == ["1\n", "1\n"]


def test_flatten_joins_names() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": [2]}, "e": "f"}) == {"a.b.c": 1, "a.d": [2], "e": "f"}


def test_nothing_is_recorded_of_another_store(open_tracker: Open, run_dir: Path) -> None:
    run = StageRun(open_tracker(), run_dir, "sft", {}, {})
    about = recorded(run_dir)
    assert about is not None
    assert about["run_id"] == run.run_id
    assert recorded(run_dir.parent) is None
