"""One parent run a pipeline run, one child a stage, over MlflowClient: no global state, so threads may share it.

After ``Tracker.open`` nothing here raises: a failure is warned of once, counted, and costs the record, never the run.
The logs of the run folders are the truth; this is a copy for people to look at.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import psutil

from infra.tracking.connect import connect
from stages.core.keys import canonical_json, digest_of

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

Status = Literal["FINISHED", "FAILED", "KILLED"]
ResultT = TypeVar("ResultT")

OWNER = "owner"
"""Tag of every run: ``host:pid:start`` of the process that keeps it up to date."""
PARENT = "mlflow.parentRunId"
MAX_PARAM_CHARS = 6000
BATCH = 1000
"""Metrics of one request; MLflow allows no more."""
PARAM_BATCH = 100
REST_S = 30.0
"""After a failure the tracker is left alone for this long: a server that is away answers nothing, slowly."""


class Tracker:
    """The runs of one pipeline run."""

    def __init__(self, uri: str, client: MlflowClient, experiment_id: str, warn: Callable[[str], None]) -> None:
        self.uri = uri
        self.experiment_id = experiment_id
        self.failures = 0
        """Calls that failed so far."""
        self.parent_id: str | None = None
        """Runs are created below this one."""
        self._client = client
        self._warn = warn
        self._lock = threading.Lock()
        self._rest_until = 0.0

    @classmethod
    def open(cls, uri: str, experiment: str, artifacts: Path, warn: Callable[[str], None]) -> Tracker:
        """Connect, and end what dead processes left RUNNING.

        Raises:
            TrackingError: the store cannot be opened.
        """
        client, experiment_id = connect(uri, experiment, artifacts)
        tracker = cls(uri, client, experiment_id, warn)
        tracker.reconcile()
        return tracker

    def attempt(self, call: Callable[[MlflowClient], ResultT], *, force: bool = False) -> ResultT | None:
        """What ``call`` returns, for one thread at a time; None where it failed or the tracker rests.

        Args:
            force: try although the tracker has just failed.
        """
        with self._lock:
            if not force and time.monotonic() < self._rest_until:
                return None
            try:
                return call(self._client)
            except Exception as error:  # a driver's, a server's or a proxy's: none may end the run
                self._rest_until = time.monotonic() + REST_S
                self.failures += 1
                if self.failures == 1:
                    text = (str(error).splitlines() or [""])[0][:160]
                    self._warn(f"MLflow at {self.uri} failed ({type(error).__name__}: {text}); the run goes on")
                return None

    def reconcile(self) -> int:
        """End runs that still say RUNNING although their process on this machine is gone. Returns how many."""

        def work(client: MlflowClient) -> int:
            running = client.search_runs([self.experiment_id], "attributes.status = 'RUNNING'", max_results=1000)
            dead = [run.info.run_id for run in running if _is_dead(run.data.tags.get(OWNER, ""))]
            for run_id in dead:
                client.set_terminated(run_id, "KILLED")
            return len(dead)

        return self.attempt(work) or 0

    def create(self, name: str, tags: Mapping[str, str], params: Mapping[str, Any]) -> str | None:
        """Create a run, below the parent where there is one. Returns its id, or None where the tracker failed."""

        def work(client: MlflowClient) -> str:
            run = client.create_run(self.experiment_id, tags={**tags, **self._own_tags()}, run_name=name)
            run_id = str(run.info.run_id)
            _log_params(client, run_id, params)
            return run_id

        return self.attempt(work, force=True)

    def reopen(self, run_id: str) -> bool:
        """Go on with a run of an earlier process, below this parent. False: there is no such run, or no tracker."""

        def work(client: MlflowClient) -> bool:
            if client.get_run(run_id).info.lifecycle_stage != "active":
                return False
            client.update_run(run_id, status="RUNNING")
            for name, value in self._own_tags().items():
                client.set_tag(run_id, name, value)
            return True

        return self.attempt(work, force=True) or False

    def log_records(self, run_id: str, records: Sequence[Mapping[str, Any]], *, force: bool = False) -> bool:
        """Log metric records as a worker writes them: ``{"t", "step", "metrics"}``. True: all arrived."""

        def work(client: MlflowClient) -> bool:
            from mlflow.entities import Metric

            metrics = [
                Metric(name, value, int(record["t"] * 1000), record["step"])
                for record in records
                for name, value in record["metrics"].items()
            ]
            for start in range(0, len(metrics), BATCH):
                client.log_batch(run_id, metrics=metrics[start : start + BATCH])
            return True

        return self.attempt(work, force=force) or False

    def log_numbers(self, run_id: str, values: Mapping[str, Any]) -> None:
        """Log the finite numbers among ``values`` at step 0."""
        numbers = {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        }
        self.log_records(run_id, [{"t": time.time(), "step": 0, "metrics": numbers}], force=True)

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        def work(client: MlflowClient) -> None:
            for name, value in tags.items():
                client.set_tag(run_id, name, value)

        self.attempt(work)

    def log_file(self, run_id: str, path: Path) -> None:
        """Copy a (small) file to the run's artifacts."""
        self.attempt(lambda client: client.log_artifact(run_id, str(path)), force=True)

    def end(self, run_id: str, status: Status) -> None:
        self.attempt(lambda client: client.set_terminated(run_id, status), force=True)

    def register(
        self, name: str, folder: Path, tags: Mapping[str, str], *, run_id: str | None, alias: str | None = None
    ) -> str | None:
        """Make ``folder`` a version of the registered model ``name``, by reference: no weight is copied.

        A folder whose ``key`` and ``digest`` tags are those of a version already there is not registered twice.

        Args:
            tags: the version's lineage; at least ``key`` and ``digest``.
            run_id: the run that made it.
            alias: moves to this version.

        Returns:
            the version, or None where the tracker failed.
        """

        def work(client: MlflowClient) -> str:
            if not client.search_registered_models(f"name = '{name}'"):
                client.create_registered_model(name)
            versions = client.search_model_versions(f"name = '{name}' and tags.key = '{tags['key']}'")
            found = next((version for version in versions if version.tags.get("digest") == tags["digest"]), None)
            if found is None:
                source = self._source(folder, run_id)
                found = client.create_model_version(name, source, run_id, tags=dict(tags), await_creation_for=0)
            if alias is not None:
                client.set_registered_model_alias(name, alias, found.version)
            return str(found.version)

        return self.attempt(work, force=True)

    def _source(self, folder: Path, run_id: str | None) -> str:
        """A tracking server takes no path of this machine as a source, so there the run stands for the folder."""
        is_server = self.uri.startswith(("http://", "https://"))
        return f"runs:/{run_id}/model" if is_server and run_id else folder.resolve().as_uri()

    def _own_tags(self) -> dict[str, str]:
        parent = {} if self.parent_id is None else {PARENT: self.parent_id}
        return {OWNER: owner_of_this_process(), **parent}


def _log_params(client: MlflowClient, run_id: str, params: Mapping[str, Any]) -> None:
    from mlflow.entities import Param

    flat: dict[str, str] = {}
    for name, value in flatten(params).items():
        text = value if isinstance(value, str) else canonical_json(value)
        if len(text) > MAX_PARAM_CHARS:
            client.log_text(run_id, text, f"params/{name}.txt")
            text = f"sha256:{digest_of(text)}"
        flat[name] = text
    items = [Param(name, text) for name, text in flat.items()]
    for start in range(0, len(items), PARAM_BATCH):
        client.log_batch(run_id, params=items[start : start + PARAM_BATCH])


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, names joined by dots."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def owner_of_this_process() -> str:
    """``host:pid:start``; the start tells this process from a later one of the same number."""
    process = psutil.Process()
    return f"{socket.gethostname()}:{process.pid}:{process.create_time():.2f}"


def _is_dead(owner: str) -> bool:
    """Whether the process is of this machine and gone; of any other machine nothing can be said."""
    parts = owner.rsplit(":", 2)
    if len(parts) != 3 or parts[0] != socket.gethostname():
        return False
    try:
        return f"{psutil.Process(int(parts[1])).create_time():.2f}" != parts[2]
    except psutil.NoSuchProcess:
        return True
