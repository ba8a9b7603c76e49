"""What of a run goes to MLflow, in the pipeline's words: tags, parameters, registered models, links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flows.config import PipelineConfig
from flows.plan.keys import Resolved
from flows.plan.nodes import Node
from infra.store.local import Artifact, Store
from infra.tracking.connect import SQLITE
from infra.tracking.mlflow import Status, Tracker, flatten
from infra.tracking.stage_run import StageRun, recorded
from stages.core.files import read_json
from stages.evaluate.config import EvaluateJob
from stages.tasks.config import CellConfig

LOGS = "logs"


def tracking_uri(config: PipelineConfig | None, store: Store) -> str:
    """The config's, or a database beside the store's artifacts."""
    return (config and config.tracking.uri) or f"{SQLITE}{store.root.resolve()}/mlflow.db"


class Recorder:
    """The runs of one pipeline run: one parent, one child a node that is made."""

    def __init__(self, config: PipelineConfig, tracker: Tracker, run_id: str) -> None:
        self._config = config
        self._tracker = tracker
        self._run_id = run_id

    def start(self) -> None:
        """Create the parent run."""
        tags = {"stage": "pipeline", "pipeline": self._config.name, "run": self._run_id}
        params = self._config.model_dump(mode="json", by_alias=True)
        self._tracker.parent_id = self._tracker.create(self._run_id, tags, params)

    def stage(self, resolved: Resolved, run_dir: Path) -> StageRun:
        """The run of one node, new or gone on with."""
        node = resolved.node
        params = node.job.model_dump(mode="json", by_alias=True) | {"seed": resolved.seed}
        return StageRun(self._tracker, run_dir, node.id, self._tags(resolved), params)

    def made(
        self, resolved: Resolved, artifact: Artifact, stage_run: StageRun, artifacts: Mapping[str, Artifact]
    ) -> None:
        """What goes beyond the node's own run: models are registered, evaluations noted cell by cell.

        Args:
            artifacts: of the nodes that are made so far.
        """
        node = resolved.node
        if node.stage == "rl":
            name = f"{self._config.promote.model_name}-{node.domain}-{node.effort}"
            self._tracker.register(name, artifact.path, self.lineage(node, artifact), run_id=stage_run.run_id)
        if isinstance(node.job, EvaluateJob):
            metrics = read_json(artifact.path / "metrics.json")
            for cell in node.job.cells:
                self._evaluated(resolved, node.job.subject, cell, metrics[cell.name], artifacts)

    def _evaluated(
        self,
        resolved: Resolved,
        subject: str,
        cell: CellConfig,
        metrics: Mapping[str, Any],
        artifacts: Mapping[str, Artifact],
    ) -> None:
        """A specialist's numbers go to its own run; the cells of another checkpoint get a run each."""
        numbers = flatten({"heldout": {name: value for name, value in metrics.items() if name != "buckets"}})
        specialist = artifacts.get(f"rl.{subject}")
        if specialist is not None and (about := self._recorded(specialist)) is not None:
            self._tracker.log_numbers(about["run_id"], numbers)
            return
        tags = self._tags(resolved) | {"domain": cell.domain, "subject": subject}
        tags |= {"effort": cell.effort} if cell.effort else {}
        run_id = self._tracker.create(f"{resolved.node.id} {cell.name}", tags, {})
        if run_id is not None:
            self._tracker.log_numbers(run_id, numbers)
            self._tracker.end(run_id, "FINISHED")

    def promoted(self, node: Node, artifact: Artifact, *, gates_hold: bool) -> str | None:
        """Register the student's exported checkpoint; the alias moves only if every gate holds."""
        promote = self._config.promote
        about = self._recorded(artifact)
        return self._tracker.register(
            promote.model_name,
            artifact.path / "model",
            self.lineage(node, artifact) | {"gates": "hold" if gates_hold else "failed"},
            run_id=about["run_id"] if about else None,
            alias=promote.alias if gates_hold else None,
        )

    def _recorded(self, artifact: Artifact) -> dict[str, Any] | None:
        about = recorded(artifact.path / LOGS)
        return about if about is not None and about["uri"] == self._tracker.uri else None

    def end(self, status: Status, numbers: Mapping[str, Any], files: Iterable[Path]) -> None:
        """End the parent run, with the numbers and files that sum the pipeline up."""
        if self._tracker.parent_id is None:
            return
        for path in files:
            self._tracker.log_file(self._tracker.parent_id, path)
        self._tracker.log_numbers(self._tracker.parent_id, numbers)
        self._tracker.end(self._tracker.parent_id, status)

    def lineage(self, node: Node, artifact: Artifact) -> dict[str, str]:
        return {
            "node": node.id,
            "key": artifact.key,
            "digest": artifact.digest,
            "run": self._run_id,
            "uri": artifact.path.resolve().as_uri(),
        }

    def _tags(self, resolved: Resolved) -> dict[str, str]:
        node = resolved.node
        tau = getattr(node.job, "tau", None)
        tags = {
            "node": node.id,
            "stage": node.stage,
            "domain": node.domain,
            "effort": node.effort,
            "tau": str(tau) if isinstance(tau, float) else None,
            "key": resolved.key,
            "attempt": str(resolved.fields["attempt"]),
            "pipeline": self._config.name,
            "run": self._run_id,
        }
        return {name: value for name, value in tags.items() if value is not None}
