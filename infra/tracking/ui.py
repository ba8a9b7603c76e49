"""The MLflow UI: a light server on this machine, and the links into it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from urllib.parse import quote

from infra.launch.process import die_with_parent
from infra.tracking.connect import QUIET
from stages.core.errors import TrackingError

LIGHT = {
    # The default server is fifteen processes and three gigabytes.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
HOST = "127.0.0.1"


def compare_url(base: str, experiment_id: str, run_ids: Sequence[str]) -> str:
    """The UI's page that shows these runs side by side. ``base``: address of the server."""
    runs = quote(json.dumps(list(run_ids), separators=(",", ":")))
    experiments = quote(json.dumps([experiment_id]))
    return f"{base.rstrip('/')}/#/compare-runs?runs={runs}&experiments={experiments}"


def charts_url(base: str, experiment_id: str, run_ids: Sequence[str]) -> str:
    """The experiment's page with the curves of these runs over each other."""
    search = f"attributes.run_id IN ({', '.join(repr(run_id) for run_id in run_ids)})"
    # Sorted by date, the UI would fold the runs into their parent and draw that one alone.
    order = f"orderByKey={quote('tags.`mlflow.runName`')}&orderByAsc=true"
    query = f"searchFilter={quote(search)}&{order}&compareRunsMode=CHART"
    return f"{base.rstrip('/')}/#/experiments/{experiment_id}/runs?{query}"


def is_server(uri: str) -> bool:
    """Whether ``uri`` is a tracking server, which has a UI of its own."""
    return uri.startswith(("http://", "https://"))


def serve(uri: str, port: int) -> int:
    """Run a server over a database until it is interrupted. Returns its exit code.

    Raises:
        TrackingError: the port is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise TrackingError(
                f"port {port}", got=error.strerror, expected="a free port", fix="choose another with --port"
            ) from None
    parent = os.getpid()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--workers", "1"]
    server = subprocess.Popen(
        [*command, "--host", HOST, "--port", str(port)],
        env={**QUIET, **LIGHT, **os.environ},
        preexec_fn=lambda: die_with_parent(parent),
    )
    try:
        return server.wait()
    except KeyboardInterrupt:
        server.send_signal(signal.SIGTERM)
        server.wait()
        return 0
