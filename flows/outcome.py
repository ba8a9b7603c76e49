"""How a run came out: gates, exit code, and the places where a person looks next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.config import PipelineConfig
from flows.execute import Session
from flows.plan.nodes import PROMOTE, SUMMARY
from flows.progress import headline
from flows.runs import RunRecord
from infra.store.local import Artifact, Store
from infra.tracking.stage_run import recorded
from infra.tracking.ui import charts_url, compare_url, is_server
from stages.core.context import RESULT
from stages.core.errors import DataError, GatesFailed, NinefoldError, StageFailed
from stages.core.files import read_json

UI = "http://127.0.0.1:5000"
"""Where ``ninefold ui`` serves."""
LOGS = "logs"


def summary_of(folder: Path) -> Mapping[str, Any]:
    """What the stage returned when the artifact in ``folder`` was made."""
    path = folder / LOGS / RESULT
    return dict(read_json(path)["summary"]) if path.exists() else {}


def report_path(artifacts: Mapping[str, Artifact]) -> Path | None:
    return artifacts[SUMMARY].path / "report.html" if SUMMARY in artifacts else None


def model_path(artifacts: Mapping[str, Artifact]) -> Path | None:
    """The exported checkpoint."""
    return artifacts[PROMOTE].path / "model" if PROMOTE in artifacts else None


def gates_failed(artifacts: Mapping[str, Artifact]) -> GatesFailed | None:
    """The error that names the gates which do not hold, or None: they hold, or the student was not judged yet."""
    if PROMOTE not in artifacts:
        return None
    judged = read_json(artifacts[PROMOTE].path / "gates.json")
    names = [gate["name"] for gate in judged["gates"] if not gate["passed"]]
    if not names:
        return None
    what = f"{len(names)} of {len(judged['gates'])} gates failed"
    return GatesFailed(what, got=", ".join(names), fix="the alias stays where it was; see the report")


def links(config: PipelineConfig, artifacts: Mapping[str, Artifact]) -> dict[str, str]:
    """Report, checkpoint, and the specialists side by side in MLflow: as far as they are there."""
    found: dict[str, str] = {}
    if (report := report_path(artifacts)) is not None:
        found["report"] = str(report)
    if (model := model_path(artifacts)) is not None:
        found["checkpoint"] = str(model)
    specialists = [artifacts[f"rl.{cell.name}"] for cell in config.cells if f"rl.{cell.name}" in artifacts]
    tracked = [recorded(artifact.path / LOGS) for artifact in specialists]
    runs = [about for about in tracked if about is not None]
    if runs:
        # Specialists may have been recorded by different trackers; the newest one's are comparable.
        uri = runs[-1]["uri"]
        ids = [about["run_id"] for about in runs if about["uri"] == uri]
        base = uri if is_server(uri) else UI
        found["compare"] = compare_url(base, runs[-1]["experiment_id"], ids)
        found["curves"] = charts_url(base, runs[-1]["experiment_id"], ids)
    return found


def failure(session: Session, flow_message: str) -> NinefoldError | None:
    """Why not every node of the plan is there, or None: all are.

    Args:
        flow_message: how the flow itself ended, for the case that no stage is to blame.
    """
    if session.stop.is_set:
        return session.stop.error()
    if session.book.errors:
        return stages_failed(session.book.errors, session.command)
    missing = [row.node.id for row in session.plan.rows if row.node.id not in session.artifacts]
    if missing:
        return StageFailed(
            f"{len(missing)} of the nodes were not reached", got=flow_message, fix=f"to go on: {session.command}"
        )
    return None


def stages_failed(errors: Mapping[str, NinefoldError], resume: str) -> NinefoldError:
    """One error for all nodes that failed: bad input where all say so, else StageFailed."""
    kind = DataError if all(error.exit_code == DataError.exit_code for error in errors.values()) else StageFailed
    what = f"{len(errors)} stages failed" if len(errors) > 1 else "a stage failed"
    return kind(what, got=" | ".join(str(error) for error in errors.values()), fix=f"to go on: {resume}")


def say(console: Console, store: Store, record: RunRecord, wall_s: float) -> None:
    """The table of the nodes and the places to look at next."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("node", "what", "time", "numbers"):
        table.add_column(title, no_wrap=title != "numbers", justify="right" if title == "time" else "left")
    for name, node in record.nodes.items():
        numbers = headline(summary_of(store.path(node.stage, str(node.key)))) if node.digest else ""
        table.add_row(name, node.status, f"{node.seconds:.1f} s" if node.seconds else "", escape(numbers))
    console.print(table)
    for name, link in record.links.items():
        console.print(f"{name}: {link}", soft_wrap=True, highlight=False, markup=False)
    made = sum(node.status == "made" for node in record.nodes.values())
    if made and record.overhead_seconds is not None:
        share = record.overhead_seconds / wall_s
        outside = f"{record.overhead_seconds:.1f} s ({share:.1%}) of it outside the stages' own work"
        console.print(f"{made} made, {len(record.nodes) - made} not, in {wall_s:.1f} s; {outside}")
    else:
        console.print(f"nothing made in {wall_s:.1f} s")
