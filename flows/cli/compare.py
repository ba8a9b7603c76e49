"""``ninefold compare``: the numbers of a run's evaluation, from its ``comparison.json``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from flows.cli.find import find_run, node_artifact
from flows.cli.options import Json, StoreUrl, Target, console
from flows.plan.nodes import SUMMARY
from stages.core.files import read_json

Comparison = Mapping[str, Any]
"""See stages.evaluate.comparison."""
SUBJECTS = ("specialists", "student")


def compare(target: Target = None, as_json: Json = False, store_url: StoreUrl = None) -> None:
    """Show accuracy and tokens of cold start, specialists and student, with 95% intervals."""
    store, record = find_run(target, store_url)
    path = node_artifact(store, record, SUMMARY).path / "comparison.json"
    if as_json:
        print(path.read_text(encoding="utf-8"), end="")
        return
    comparison = read_json(path)
    screen = console()
    for table in tables(comparison):
        screen.print(table)
        screen.print()
    failed = [check for check in comparison["checks"] if not check["passed"]]
    screen.print(f"[bold]checks[/] {len(comparison['checks']) - len(failed)} passed, {len(failed)} failed")
    for check in failed:
        screen.print(f"  [red]failed[/] {check['name']}: {escape(check['detail'])}")


def tables(comparison: Comparison) -> Iterator[Table]:
    """Accuracy, tokens, folds between tiers, and the student beside its teachers."""
    yield _cells(comparison, "accuracy, % [95% interval]", lambda cell: interval(cell["accuracy"], 100, 1))
    yield _cells(comparison, "counted tokens, mean [95% interval]", lambda cell: _tokens(cell["tokens"]))
    yield _folds(comparison)
    yield _recovery(comparison)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def _cells(comparison: Comparison, title: str, show: Callable[[Mapping[str, Any]], str]) -> Table:
    """One row a domain and subject, one column an effort."""
    efforts, subjects = comparison["efforts"], comparison["subjects"]
    table = _table(title, "domain", "who", *efforts)
    for domain in comparison["domains"]:
        table.add_row(domain, "cold start", show(subjects["cold_start"][domain]), style="dim")
        for who in SUBJECTS:
            table.add_row(domain, who, *(show(subjects[who][f"{domain}.{effort}"]) for effort in efforts))
    return table


def _folds(comparison: Comparison) -> Table:
    """One column a pair of tiers, over all problems."""
    folds = comparison["folds"]
    pairs = list(dict.fromkeys((item["from"], item["to"]) for rows in folds["student"].values() for item in rows))
    table = _table("fold in mean tokens [95% interval]", "domain", "who", *(f"{low}:{high}" for low, high in pairs))
    for domain in comparison["domains"]:
        for who in SUBJECTS:
            found = {(item["from"], item["to"]): item["fold"] for item in folds[who][domain] if item["bucket"] == "all"}
            table.add_row(domain, who, *(interval(found[pair], 1, 2) if pair in found else "" for pair in pairs))
    return table


def _recovery(comparison: Comparison) -> Table:
    """One row a cell; the share of the gain only where the teacher gained enough for it to mean something."""
    table = _table("student beside its teacher", "cell", "points [95% interval]", "token ratio", "share of the gain")
    for cell, item in comparison["recovery"].items():
        share = "" if item["recovery"] is None else f"{100 * item['recovery']:.0f}%"
        points = interval(item["student_minus_teacher_points"], 1, 1)
        table.add_row(cell, points, interval(item["token_ratio"], 1, 2), share)
    return table


def _tokens(value: Mapping[str, Any]) -> str:
    return interval({"value": value["mean"], "low": value["low"], "high": value["high"]}, 1, 1)


def interval(value: Mapping[str, Any], factor: float, digits: int) -> str:
    """``93.1 [90.2, 95.4]``; a number that could not be computed is ``n/a``."""
    middle, low, high = (
        "n/a" if value[end] is None else f"{factor * value[end]:.{digits}f}" for end in ("value", "low", "high")
    )
    # A literal opening bracket needs its escape, or rich takes it for markup.
    return f"{middle} \\[{low}, {high}]"
