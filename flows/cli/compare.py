"""``ninefold compare``: the numbers of a run's evaluation, from its ``comparison.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from flows.cli.find import find_run, node_artifact
from flows.cli.options import Json, StoreUrl, Target, console
from flows.plan.nodes import SUMMARY
from stages.core.files import read_json


def compare(target: Target = None, as_json: Json = False, store_url: StoreUrl = None) -> None:
    """Show accuracy and thinking tokens of cold start, specialists and student, with 95% intervals."""
    store, record = find_run(target, store_url)
    path = node_artifact(store, record, SUMMARY).path / "comparison.json"
    if as_json:
        print(path.read_text(encoding="utf-8"), end="")
        return
    comparison = read_json(path)
    console().print(cell_table(comparison, "accuracy", _accuracy))
    console().print(cell_table(comparison, "tokens", _tokens))


def cell_table(comparison: Mapping[str, Any], title: str, show: Any) -> Table:
    """One row a domain and subject, one column an effort."""
    efforts = comparison["efforts"]
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold")
    for name in ("domain", "who", *efforts):
        table.add_column(name, no_wrap=True)
    subjects = comparison["subjects"]
    for domain in comparison["domains"]:
        cold = subjects["cold_start"][domain]
        table.add_row(domain, "cold start", show(cold), *[""] * (len(efforts) - 1), style="dim")
        for who in ("specialists", "student"):
            table.add_row(domain, who, *(show(subjects[who][f"{domain}.{effort}"]) for effort in efforts))
    return table


def _accuracy(cell: Mapping[str, Any]) -> str:
    value = cell["accuracy"]
    return f"{100 * value['value']:.1f}% ({100 * value['low']:.1f} to {100 * value['high']:.1f})"


def _tokens(cell: Mapping[str, Any]) -> str:
    return f"{cell['tokens']['mean']:.1f}"
