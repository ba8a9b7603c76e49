"""The table of stages: a new stage has one row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage."""

    name: str
    version: int
    """Bumped by hand when the stage's results change; it enters every key."""
    module: str
    """Imported by the worker only."""
    entry: str = "run"
    """``entry(config, context) -> Summary`` in the module."""


STAGES: dict[str, StageRow] = {
    row.name: row
    for row in (
        StageRow("sft", 1, "stages.sft.stage"),
        StageRow("budget", 1, "stages.budget.stage"),
        StageRow("rl", 1, "stages.rl.stage"),
        StageRow("distill", 1, "stages.distill.stage"),
        StageRow("merge", 1, "stages.merge.stage"),
        StageRow("evaluate", 1, "stages.evaluate.stage"),
        StageRow("summary", 1, "stages.evaluate.summary"),
        StageRow("export", 1, "stages.export.stage"),
    )
}
