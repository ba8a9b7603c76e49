"""One stage in MLflow: metrics go up to the last checkpoint, so that a resumed stage logs no step twice.

Which run a stage has, and how far it is logged, stands in ``mlflow.json`` in its run folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.tracking.mlflow import Status, Tracker
from infra.tracking.tail import News
from stages.core.files import read_json, write_json

RECORD = "mlflow.json"


class StageRun:
    """Follows one worker. Nothing here raises for the tracker's sake.

    Args:
        run_dir: of the stage; a run that was begun there is gone on with.
    """

    def __init__(
        self, tracker: Tracker, run_dir: Path, name: str, tags: Mapping[str, str], params: Mapping[str, Any]
    ) -> None:
        self._tracker = tracker
        self._record = run_dir / RECORD
        self._pending: list[dict[str, Any]] = []
        """Metric records beyond ``_flushed``, oldest first."""
        self._flushed = -1
        """Last step that the tracker has."""
        self._committed = -1
        """Last step that a checkpoint covers."""
        about = recorded(run_dir)
        if about is not None and about["uri"] == tracker.uri and tracker.reopen(about["run_id"]):
            self.run_id: str | None = about["run_id"]
            self._flushed = about["flushed_step"]
        else:
            self.run_id = tracker.create(name, tags, params)
        self._save()

    def note(self, news: News) -> None:
        """Take in what the worker wrote, and log what a checkpoint has made final."""
        if news.rewound:
            self._pending.clear()
        self._pending += [record for record in news.metrics if record["step"] > self._flushed]
        steps = [event["step"] for event in news.events if event["event"] == "checkpoint" and "step" in event]
        if steps:
            self._committed = steps[-1]
            self._flush(force=False)

    def finish(self, status: Status, summary: Mapping[str, Any]) -> None:
        """End the run. A finished stage's metrics are final to the last; of another's, those up to its checkpoint.

        Args:
            summary: what the stage returned; its numbers become metrics ``final.<name>``.
        """
        if self.run_id is None:
            return
        if status == "FINISHED" and self._pending:
            self._committed = max(record["step"] for record in self._pending)
        self._flush(force=True)
        self._tracker.log_numbers(self.run_id, {f"final.{name}": value for name, value in summary.items()})
        self._tracker.end(self.run_id, status)

    def _flush(self, *, force: bool) -> None:
        final = [record for record in self._pending if record["step"] <= self._committed]
        if self.run_id is None or not final:
            return
        if self._tracker.log_records(self.run_id, final, force=force):
            self._pending = [record for record in self._pending if record["step"] > self._committed]
            self._flushed = self._committed
            self._save()

    def _save(self) -> None:
        if self.run_id is not None:
            about = {"uri": self._tracker.uri, "experiment_id": self._tracker.experiment_id}
            write_json(self._record, about | {"run_id": self.run_id, "flushed_step": self._flushed})


def recorded(folder: Path) -> dict[str, Any] | None:
    """``{uri, experiment_id, run_id, flushed_step}`` of the run that ``folder`` belongs to, where it was tracked."""
    path = folder / RECORD
    return dict(read_json(path)) if path.exists() else None
