"""Links into the UI, and the light server. Oracle for links: parsed back as the UI's own code does (decodeURIComponent,
then JSON); for the server: what it answers over REST, and that it ends when told."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pytest

from infra.tracking import mlflow as adapter
from infra.tracking.mlflow import Tracker
from infra.tracking.ui import charts_url, compare_url, serve
from stages.core.errors import TrackingError

RUNS = ["0a1b", "2c3d"]


def test_compare_link_carries_runs_and_experiment() -> None:
    url = urlsplit(compare_url("http://127.0.0.1:5000/", "7", RUNS))
    path, query = unquote(url.fragment).split("?")
    assert (url.netloc, path) == ("127.0.0.1:5000", "/compare-runs")
    values = dict(part.split("=", 1) for part in query.split("&"))
    assert (json.loads(values["runs"]), json.loads(values["experiments"])) == (RUNS, ["7"])


def test_charts_link_finds_exactly_these_runs() -> None:
    url = unquote(charts_url("http://127.0.0.1:5000", "7", RUNS))
    assert url == (
        "http://127.0.0.1:5000/#/experiments/7/runs"
        "?searchFilter=attributes.run_id IN ('0a1b', '2c3d')"
        "&orderByKey=tags.`mlflow.runName`&orderByAsc=true&compareRunsMode=CHART"
    )


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(TrackingError, match=rf"port {port}: got Address already in use.*--port"):
            serve(f"sqlite:///{tmp_path}/mlflow.db", port)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def test_the_light_server_serves_records_and_a_run_outlives_it(
    database: Path, tmp_path: Path, warnings_said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "REST_S", 0.0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    uri, root = f"http://127.0.0.1:{port}", Path(__file__).parents[3]
    program = "import sys; from infra.tracking.ui import serve; sys.exit(serve(sys.argv[1], int(sys.argv[2])))"
    command = [sys.executable, "-c", program, f"sqlite:///{database}", str(port)]
    ui = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not _answers(f"{uri}/health"):
            assert ui.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        family = psutil.Process(ui.pid).children(recursive=True)
        assert len(family) <= 3  # the whole point of it: the default server is fifteen
        tracker = Tracker.open(uri, "ninefold", tmp_path, warnings_said.append)
        run_id = tracker.create("sft", {"stage": "sft"}, {"steps": 3})
        assert tracker.log_records(str(run_id), [{"t": 1.0, "step": 1, "metrics": {"loss": 2.0}}])
        # A server takes no path of ours as a source: the lineage tags say where the weights are.
        tags = {"key": "k", "digest": "d", "uri": tmp_path.as_uri()}
        assert tracker.register("ninefold", tmp_path, tags, run_id=run_id) == "1"
        assert warnings_said == []
        ui.send_signal(signal.SIGINT)
        assert ui.wait(timeout=60) == 0
        assert not any(process.is_running() for process in family)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        assert not tracker.log_records(str(run_id), [{"t": 2.0, "step": 2, "metrics": {"loss": 1.0}}])
        assert len(warnings_said) == 1
    finally:
        ui.kill()
        ui.wait()
