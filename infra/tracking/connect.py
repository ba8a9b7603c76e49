"""Opening the MLflow store: once, before any fan-out, and in bounded time."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from filelock import FileLock

from stages.core.errors import TrackingError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

OPEN_TIMEOUT_S = 90.0
"""Creating a database takes seconds; MLflow itself retries a dead one for minutes."""

QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # A server that is away must cost a run seconds, not the quarter of an hour of the defaults.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}
"""Environment of MLflow, where the user has not set it otherwise."""

SQLITE = "sqlite:///"


def connect(uri: str, experiment: str, artifacts: Path) -> tuple[MlflowClient, str]:
    """Open ``uri`` and make sure that ``experiment`` exists.

    Args:
        artifacts: folder for the artifacts of an experiment that is created in a database on this machine.

    Returns:
        the client and the experiment's id.

    Raises:
        TrackingError: it cannot be opened, or not within OPEN_TIMEOUT_S.
    """
    check_reachable(uri)
    done: list[tuple[MlflowClient, str]] = []
    failed: list[Exception] = []

    def work() -> None:
        try:
            done.append(_open(uri, experiment, artifacts))
        except Exception as error:  # whatever a driver or a server comes up with
            failed.append(error)

    # A thread, because no driver promises to give up; a daemon, because a hung one must not keep the process.
    thread = threading.Thread(target=work, name="mlflow-open", daemon=True)
    thread.start()
    thread.join(OPEN_TIMEOUT_S)
    if done:
        return done[0]
    got = _first_line(failed[0]) if failed else f"no answer in {OPEN_TIMEOUT_S:.0f} s"
    raise _error(uri, got)


def _open(uri: str, experiment: str, artifacts: Path) -> tuple[MlflowClient, str]:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with ExitStack() as stack:
        if path := sqlite_path(uri):
            # Two processes that create or migrate one database at once destroy it.
            stack.enter_context(FileLock(f"{path}.lock"))
        client = MlflowClient(tracking_uri=uri)
        # The registry's code is imported at its first use: now, while no other thread imports anything.
        client.search_registered_models(max_results=1)
        found = client.get_experiment_by_name(experiment)
        if found is not None and found.lifecycle_stage != "active":
            raise TrackingError(f"experiment '{experiment}' is deleted; restore it or set tracking.experiment")
        if found is not None:
            return client, str(found.experiment_id)
        # MLflow's own default is ./mlruns below whatever the working directory happens to be.
        location = artifacts.resolve().as_uri() if sqlite_path(uri) else None
        return client, str(client.create_experiment(experiment, artifact_location=location))


def sqlite_path(uri: str) -> Path | None:
    """The database file of a SQLite URI, else None."""
    return Path(uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None


def check_reachable(uri: str) -> None:
    """A first, quick look: the database file opens, or something listens at the server's port.

    Raises:
        TrackingError: it does not.
    """
    path, address = sqlite_path(uri), urlsplit(uri)
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path, timeout=10)) as database:
                database.execute("PRAGMA user_version")
        elif address.scheme in ("http", "https") and address.hostname:
            port = address.port or (443 if address.scheme == "https" else 80)
            socket.create_connection((address.hostname, port), timeout=10).close()
    except (OSError, sqlite3.Error) as error:
        raise _error(uri, _first_line(error)) from None


def _error(uri: str, got: str) -> TrackingError:
    return TrackingError(
        f"tracking.uri {uri}",
        got=got,
        expected="an MLflow store that opens",
        fix="start the server, or set another with --set tracking.uri=...",
    )


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
