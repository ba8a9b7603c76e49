"""``ninefold status | report | rollouts | verify``."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.find import find_run, node_artifact, open_store
from flows.cli.options import StoreUrl, Target, console, duration
from flows.plan.nodes import SUMMARY
from flows.runs import NodeRecord, RunRecord
from infra.store.local import Store
from stages.core.context import METRICS, ROLLOUTS
from stages.core.errors import ConfigError, CorruptArtifact, DataError
from stages.core.files import read_jsonl

STYLES = {"made": "green", "reused": "dim", "adopted": "dim", "running": "bold cyan", "failed": "bold red"}


def status(target: Target = None, store_url: StoreUrl = None) -> None:
    """Show a run: its state, and every stage with its key, time and reason."""
    store, record = find_run(target, store_url)
    screen = console()
    screen.print(f"[bold]{record.run_id}[/]  {_state(record)}  {_times(record)}")
    if record.error:
        screen.print(f"[red]{escape(record.error)}[/]")
    for name, link in record.links.items():
        screen.print(f"{name}: {link}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("node", "status", "key", "time", "note"):
        table.add_column(title, no_wrap=title != "note", justify="right" if title == "time" else "left")
    for name, node in record.nodes.items():
        shown = f"[{STYLES.get(node.status, 'none')}]{node.status}[/]"
        table.add_row(name, shown, node.key or "", duration(node.seconds or None), escape(_note(store, node)))
    screen.print(table)


def _state(record: RunRecord) -> str:
    return "DIED (its process is gone; run the same command to go on)" if record.is_orphan else record.state


def _times(record: RunRecord) -> str:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.started))
    if record.ended is None:
        return f"since {started}"
    overhead = "" if record.overhead_seconds is None else f", {duration(record.overhead_seconds)} outside the stages"
    return f"{started}, took {duration(record.ended - record.started)}{overhead}"


def _note(store: Store, node: NodeRecord) -> str:
    """The reason, and how far a running stage is."""
    if node.status != "running" or node.key is None:
        return node.reason
    last = deque(read_jsonl(store.work_dir(node.key) / METRICS), maxlen=1)
    return f"step {last[0]['step']} of {last[0]['total']}; {node.reason}" if last else node.reason


def report(target: Target = None, store_url: StoreUrl = None) -> None:
    """Print the path of the report of a run."""
    store, record = find_run(target, store_url)
    print(node_artifact(store, record, SUMMARY).path / "report.html")


def rollouts(
    target: Target = None,
    node: Annotated[str | None, typer.Option(help="The specialist, e.g. rl.code.low; else the first.")] = None,
    count: Annotated[int, typer.Option("--n", min=1, help="How many to print.")] = 5,
    step: Annotated[int | None, typer.Option(help="Only of this optimiser step; else the last one logged.")] = None,
    store_url: StoreUrl = None,
) -> None:
    """Read a specialist's rollouts, each with its reward: what was verified, what the length term made of it."""
    store, record = find_run(target, store_url)
    name = node or next((name for name, item in record.nodes.items() if item.stage == "rl" and item.key), "")
    if not name:
        raise ConfigError(f"run {record.run_id}", got="no specialist yet", expected="one that has started")
    found = list(read_jsonl(_rollouts_file(store, record, name)))
    if not found:
        raise DataError(f"node {name}", got="no rollouts logged yet", expected="some", fix="wait for its first steps")
    wanted = found[-1]["step"] if step is None else step
    chosen = [item for item in found if item["step"] == wanted][:count]
    if not chosen:
        steps = sorted({item["step"] for item in found})
        raise ConfigError(f"--step {wanted}", got="no rollouts", expected=f"a logged step, {steps[0]} to {steps[-1]}")
    for item in chosen:
        _print_rollout(name, item)


def _rollouts_file(store: Store, record: RunRecord, name: str) -> Path:
    """In the artifact, or in the run folder of a stage that is still at work."""
    known = record.nodes.get(name)
    if known is not None and known.key is not None and known.digest is None:
        return store.work_dir(known.key) / ROLLOUTS
    return node_artifact(store, record, name).path / "logs" / "rollouts.jsonl"


def _print_rollout(node: str, item: dict[str, Any]) -> None:
    screen = console()
    effort = item["effort"] or "none"
    screen.print(f"\n[bold]{node}  step {item['step']}  problem {item['problem']}  sample {item['sample']}[/]")
    screen.print(f"[dim]effort {effort}[/]  {escape(item['prompt'])}")
    screen.print(escape(item["response"]))
    over = " (over)" if item["limit"] is not None and item["tokens"] > item["limit"] else ""
    limit = "no limit" if item["limit"] is None else f"limit {item['limit']:g}{over}"
    verified = "unscored" if item["reward"] is None else f"{item['reward']:g}"
    shaped = "unscored" if item["shaped"] is None else f"{item['shaped']:g}"
    parts = (
        f"[bold]answer[/] {escape(item['answer'])}",
        f"[bold]reward[/] {verified} -> {shaped}",
        f"[bold]tokens[/] {item['tokens']}, {limit}",
        f"[bold]advantage[/] {item['advantage']:+.3f}",
        escape(item["reason"]),
    )
    screen.print("  ".join(parts))


def verify(target: Target = None, store_url: StoreUrl = None) -> None:
    """Read every byte of every artifact in the store and compare it with its manifest."""
    store = open_store(target, store_url)
    good, damaged = 0, 0
    for item in store.artifacts():
        found = [str(item)] if isinstance(item, CorruptArtifact) else store.verify(item)
        for problem in found:
            print(problem if isinstance(item, CorruptArtifact) else f"{item.stage}/{item.key} ({item.node}): {problem}")
        damaged += bool(found)
        good += not found
    if damaged:
        raise CorruptArtifact(
            f"store {store.root}",
            got=f"{damaged} damaged artifacts",
            expected="none",
            fix="remove their folders and run the pipeline to have them made again",
        )
    print(f"{good} artifacts are as their manifests say")
