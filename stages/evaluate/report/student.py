"""Figures of the student: beside its teachers, and under a cap."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from stages.evaluate.checks import TOKEN_RATIO, WORST_POINTS
from stages.evaluate.comparison import STUDENT, Subjects
from stages.evaluate.metrics import scored
from stages.evaluate.report.look import BAD, GOOD, NEUTRAL, RAMP, framed, panels, tier_colors
from stages.evaluate.rows import Row

Json = Mapping[str, Any]
CAP_POINTS = 80


@dataclass(frozen=True, slots=True)
class _Map:
    """One heat map over domain x effort."""

    title: str
    colors: list[list[float | None]]
    """What the colour stands for; None stays blank."""
    texts: list[list[str]]
    bounds: tuple[float, float]
    """Where the colours end."""
    tones: tuple[str, str, str]


def heat_maps(comparison: Json) -> go.Figure:
    """Domain x effort: student minus teacher in points, recovery of the teacher's gain, token ratio."""
    domains, efforts = comparison["domains"], comparison["efforts"]
    cells = [[comparison["recovery"][f"{domain}.{effort}"] for effort in efforts] for domain in domains]
    maps = _maps(cells)
    figure = make_subplots(
        rows=1,
        cols=len(maps),
        subplot_titles=[f"<b>{each.title}</b>" for each in maps],
        shared_yaxes=True,
        horizontal_spacing=0.04,
    )
    for column, each in enumerate(maps, start=1):
        trace = go.Heatmap(
            z=each.colors,
            x=list(efforts),
            y=list(domains),
            zmin=each.bounds[0],
            zmax=each.bounds[1],
            colorscale=list(zip((0, 0.5, 1), each.tones, strict=True)),
            showscale=False,
            hoverongaps=False,
            xgap=3,
            ygap=3,
            text=each.texts,
            texttemplate="%{text}",
            textfont={"size": 15},
            hovertemplate="%{y}.%{x}: %{text}<extra></extra>",
        )
        figure.add_trace(trace, row=1, col=column)
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="").update_xaxes(showgrid=False, ticks="")
    return framed(figure, height_px=60 * len(domains) + 110).update_layout(margin={"b": 40})


def _maps(cells: Sequence[Sequence[Json]]) -> tuple[_Map, ...]:
    points = [[cell["student_minus_teacher_points"]["value"] for cell in row] for row in cells]
    recovery = [[cell["recovery"] for cell in row] for row in cells]
    ratios = [[cell["token_ratio"]["value"] for cell in row] for row in cells]
    # Logarithms, so that half as long and twice as long are equally far from the middle.
    logs = [[math.log(ratio) if ratio else None for ratio in row] for row in ratios]
    gain, length = (BAD, NEUTRAL, GOOD), (GOOD, NEUTRAL, RAMP[4])
    worst, (low, high) = WORST_POINTS, TOKEN_RATIO
    return (
        _Map("student - teacher, points", points, _texts(points, "{:+.1f}"), (worst, -worst), gain),
        _Map("recovery of the teacher's gain", recovery, _texts(recovery, "{:.0%}"), (0, 1), gain),
        _Map("tokens, student / teacher", logs, _texts(ratios, "{:.2f}"), (math.log(low), math.log(high)), length),
    )


def _texts(values: Sequence[Sequence[float | None]], form: str) -> list[list[str]]:
    return [["n/a" if value is None else form.format(value) for value in row] for row in values]


def accuracy_under_cap(comparison: Json, subjects: Subjects) -> go.Figure:
    """Share of the student's responses that are right and no longer than a cap, a line a tier."""
    domains, efforts = comparison["domains"], comparison["efforts"]
    colors = tier_colors(efforts)
    figure = panels(domains, ["right and within the cap"])
    for column, domain in enumerate(domains, start=1):
        end = comparison["operating_point"][STUDENT][domain]["cap_tokens"]
        for effort in efforts:
            caps, shares = _under_cap(scored(subjects.student[f"{domain}.{effort}"]))
            trace = go.Scatter(
                x=[0.0, *caps, max(end, caps[-1])],
                y=[0.0, *shares, shares[-1]],
                mode="lines",
                line={"shape": "hv", "color": colors[effort], "width": 2},
                name=effort,
                legendgroup=effort,
                showlegend=column == 1,
                hovertemplate="%{y:.1%} within %{x:.0f} tokens<extra>%{fullData.name}</extra>",
            )
            figure.add_trace(trace, row=1, col=column)
        figure.update_xaxes(title_text="cap on generated tokens", row=1, col=column)
    return figure.update_yaxes(tickformat=".0%", rangemode="tozero")


def _under_cap(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Caps, ascending, and the share of responses that are right within each."""
    total_N = np.array([row["total_tokens"] for row in rows], dtype=np.float64)
    correct_N = np.array([row["correct"] for row in rows], dtype=bool)
    caps = np.unique(np.quantile(total_N, np.linspace(0, 1, CAP_POINTS), method="inverted_cdf"))
    return caps.tolist(), [float(np.mean(correct_N & (total_N <= cap))) for cap in caps]
