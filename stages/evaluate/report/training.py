"""Figures of how it came about: the specialists' training curves, their groups without a signal, the budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stages.core.records import Budget
from stages.evaluate.report.evidence import Curve
from stages.evaluate.report.look import RAMP, panels, tier_colors
from stages.evaluate.rows import BUCKETS

Json = Mapping[str, Any]
MAX_POINTS = 400
"""A longer curve is drawn as means of this many stretches."""
BINS = 40
CURVES = {"reward": "mean raw reward", "tokens": "mean counted tokens"}
SHARES = {
    "dead_group_share": "share of groups<br>without a signal",
    "unreachable_share": "share of groups<br>unreachable",
}


def specialist_curves(comparison: Json, curves: Mapping[str, Mapping[str, Curve]]) -> go.Figure:
    """Raw reward and tokens of every specialist over optimiser steps, one scale for all domains."""
    return _grid(comparison, curves, CURVES)


def signal_shares(comparison: Json, curves: Mapping[str, Mapping[str, Curve]]) -> go.Figure:
    """Share of dead and of unreachable groups of every specialist over optimiser steps."""
    return _grid(comparison, curves, SHARES).update_yaxes(range=[-0.02, 1.02], tickformat=".0%")


def has_curves(curves: Mapping[str, Mapping[str, Curve]], names: Sequence[str]) -> bool:
    """Whether any specialist logged one of these metrics."""
    return any(node.startswith("rl.") and name in found for node, found in curves.items() for name in names)


def _grid(comparison: Json, curves: Mapping[str, Mapping[str, Curve]], labels: Mapping[str, str]) -> go.Figure:
    domains, efforts = comparison["domains"], comparison["efforts"]
    colors = tier_colors(efforts)
    figure = panels(domains, list(labels.values()), shared_x="columns")
    in_legend = set()
    for column, domain in enumerate(domains, start=1):
        for effort in efforts:
            for row, name in enumerate(labels, start=1):
                curve = curves.get(f"rl.{domain}.{effort}", {}).get(name)
                if curve is None:
                    continue
                steps, values = _thinned(curve)
                trace = go.Scatter(
                    x=steps,
                    y=values,
                    mode="lines",
                    name=effort,
                    legendgroup=effort,
                    showlegend=effort not in in_legend,
                    line={"color": colors[effort], "width": 2},
                    hovertemplate="step %{x}: %{y:.3g}<extra>" + f"{domain}.{effort}" + "</extra>",
                )
                in_legend.add(effort)
                figure.add_trace(trace, row=row, col=column)
        figure.update_xaxes(title_text="optimiser step", row=len(labels), col=column)
    return figure.update_yaxes(rangemode="tozero")


def _thinned(curve: Curve) -> tuple[list[float], list[float]]:
    """The curve, or where it is long the means of equal stretches of it."""
    if len(curve.steps) <= MAX_POINTS:
        return list(curve.steps), list(curve.values)
    steps, values = (
        np.array_split(np.asarray(part, dtype=np.float64), MAX_POINTS) for part in (curve.steps, curve.values)
    )
    return [float(part.mean()) for part in steps], [float(part.mean()) for part in values]


def budget_distribution(comparison: Json, budgets: Mapping[str, Sequence[Budget]]) -> go.Figure:
    """Problems by raw budget b0, stacked by difficulty bucket."""
    domains = [domain for domain in comparison["domains"] if domain in budgets]
    figure = panels(domains, ["problems"], shared_y=False)
    for column, domain in enumerate(domains, start=1):
        b0_P = np.array([budget.b0_tokens for budget in budgets[domain]])
        bucket_P = np.array([budget.bucket for budget in budgets[domain]])
        edges = np.histogram_bin_edges(b0_P, bins=min(BINS, max(5, len(np.unique(b0_P)))))
        for bucket, color in zip(BUCKETS, (RAMP[1], RAMP[3], RAMP[5]), strict=True):
            counts, _ = np.histogram(b0_P[bucket_P == bucket], bins=edges)
            trace = go.Bar(
                x=((edges[:-1] + edges[1:]) / 2).round(2).tolist(),
                y=counts.tolist(),
                width=float(edges[1] - edges[0]),
                name=bucket,
                legendgroup=bucket,
                showlegend=column == 1,
                marker={"color": color, "line": {"width": 0}},
                hovertemplate="%{y} problems near %{x:.0f} tokens<extra>%{fullData.name}</extra>",
            )
            figure.add_trace(trace, row=1, col=column)
        figure.update_xaxes(title_text="budget b0, tokens", row=1, col=column)
    return figure.update_layout(barmode="stack", bargap=0)
