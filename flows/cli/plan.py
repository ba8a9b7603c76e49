"""``ninefold plan``."""

from __future__ import annotations

import json
from typing import Any

from rich.markup import escape
from rich.table import Table

from flows.cli.options import Code, CodeOption, ConfigPath, Json, Only, Overrides, Until, console, duration
from flows.config import PipelineConfig, load
from flows.plan.plan import Plan, Row, make_plan
from infra.store.local import Store

STYLES = {"run": "bold yellow", "resume": "bold cyan", "reuse": "dim"}


def plan(
    config: ConfigPath,
    overrides: Overrides = None,
    only: Only = None,
    until: Until = None,
    code: CodeOption = Code.record,
    as_json: Json = False,
) -> None:
    """Show every stage as run, reuse or resume with the reason; change nothing."""
    pipeline = load(config, overrides or ())
    store = Store.open(pipeline.store)
    made = make_plan(pipeline, store, only=only or (), until=until or (), count_code=code is Code.rebuild)
    if as_json:
        print(json.dumps(plan_json(pipeline, made), indent=2))
    else:
        console().print(plan_table(made))
        console().print(summary_line(pipeline, made))


def plan_json(config: PipelineConfig, plan: Plan) -> dict[str, Any]:
    """The plan as JSON-safe values."""
    rows = [
        {
            "node": row.node.id,
            "stage": row.node.stage,
            "status": row.status,
            "key": row.key,
            "reason": row.reason,
            "invalidates": list(row.descendants),
            "seconds": row.seconds,
            "artifact": str(row.artifact.path) if row.artifact else None,
        }
        for row in plan.rows
    ]
    return {"pipeline": config.name, "rows": rows, "to_run": len(plan.to_run), "slot_seconds": plan.slot_seconds}


def plan_table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("node", no_wrap=True)
    table.add_column("plan", no_wrap=True)
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("why")
    table.add_column("then")
    for row in plan.rows:
        style = STYLES[row.status]
        why = f"({row.reason})" if row.status == "reuse" and row.reason else row.reason
        table.add_row(
            row.node.id, f"[{style}]{row.status}[/]", duration(row.seconds), escape(why), _then(row),
            style="dim" if row.status == "reuse" else "",
        )  # fmt: skip
    return table


def summary_line(config: PipelineConfig, plan: Plan) -> str:
    """``7 to run, 20 reused; about 3 min on 2 slots``."""
    if not plan.to_run:
        return f"nothing to do: all {len(plan.rows)} artifacts are there"
    line = f"{len(plan.to_run)} to run, {len(plan.rows) - len(plan.to_run)} reused"
    if plan.slot_seconds is None:
        return line
    return f"{line}; about {duration(plan.slot_seconds / config.resources.slots)} on {config.resources.slots} slots"


def _then(row: Row) -> str:
    """What this row makes run: only for those that could start now, or the table would say everything twice."""
    if row.key is None or not row.descendants:
        return ""
    more = f" and {len(row.descendants) - 2} more" if len(row.descendants) > 2 else ""
    return ", ".join(row.descendants[:2]) + more
