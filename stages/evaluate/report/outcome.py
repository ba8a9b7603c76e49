"""Figures of what came out: lengths, accuracy against tokens, folds and gains between tiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from stages.core.records import FloatArray
from stages.evaluate.checks import MIN_FOLD_LOW
from stages.evaluate.comparison import ALL, COLD_START, SPECIALISTS, STUDENT, Subjects
from stages.evaluate.metrics import scored
from stages.evaluate.report.look import (
    BAD,
    GREY,
    RAMP,
    faded,
    panels,
    tier_colors,
)
from stages.evaluate.rows import BUCKETS, Row

Json = Mapping[str, Any]
BINS = 60
FOLD_TICKS = (0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 50)
LOG_SPAN = 20
"""Lengths get a logarithmic axis where the longest is more than this many times the shortest tier's mean."""
SUBJECT_MARKS = {SPECIALISTS: ("circle-open", "dot"), STUDENT: ("circle", "solid"), COLD_START: ("diamond", "solid")}
"""Symbol and line of a subject in the accuracy chart."""
INTERVAL_MARKS = {SPECIALISTS: ("circle-open", GREY, -0.17), STUDENT: ("circle", RAMP[1], 0.17)}
"""Symbol, colour and vertical offset of a subject in the interval charts."""


def token_distribution(comparison: Json, subjects: Subjects) -> go.Figure:
    """Share of responses by counted tokens: a curve a tier, the cold start dotted behind it."""
    domains, efforts = comparison["domains"], comparison["efforts"]
    colors = tier_colors(efforts)
    kinds = (SPECIALISTS, STUDENT)
    figure = panels(domains, [f"{kind}<br>share of responses" for kind in kinds], shared_x="columns")
    for column, domain in enumerate(domains, start=1):
        cold = _tokens(subjects.cold_start[domain])
        tiers = {
            kind: {effort: _tokens(subjects.tiers(kind)[f"{domain}.{effort}"]) for effort in efforts} for kind in kinds
        }
        edges, is_log = _edges([cold, *(tokens_N for found in tiers.values() for tokens_N in found.values())])
        for row, kind in enumerate(kinds, start=1):
            for name, tokens_N in {"cold start": cold, **tiers[kind]}.items():
                trace = _steps(tokens_N, edges, name, colors.get(name, GREY), row == column == 1)
                figure.add_trace(trace, row=row, col=column)
            figure.update_xaxes(type="log" if is_log else "linear", row=row, col=column)
        figure.update_xaxes(title_text="counted tokens", row=2, col=column)
    return figure.update_yaxes(tickformat=".0%", rangemode="tozero")


def _tokens(rows: Sequence[Row]) -> FloatArray:
    return np.array([row["tokens"] for row in scored(rows)], dtype=np.float64)


def _edges(lengths: Sequence[FloatArray]) -> tuple[FloatArray, bool]:
    """Common bin edges, and whether they are spaced logarithmically (a length of 0 then counts as 1)."""
    longest = max(float(tokens_N.max()) for tokens_N in lengths)
    if longest > LOG_SPAN * max(1.0, min(float(tokens_N.mean()) for tokens_N in lengths)):
        shortest = min(float(tokens_N.min()) for tokens_N in lengths)
        return np.geomspace(max(1.0, shortest), longest + 1, BINS + 1), True
    width = max(1.0, np.ceil((longest + 1) / BINS))
    return np.arange(-0.5, longest + width + 0.5, width), False


def _steps(tokens_N: FloatArray, edges: FloatArray, name: str, color: str, legend: bool) -> go.Scatter:
    counts, _ = np.histogram(np.clip(tokens_N, edges[0], edges[-1]), bins=edges)
    return go.Scatter(
        x=((edges[:-1] + edges[1:]) / 2).round(3).tolist(),
        y=(counts / len(tokens_N)).round(5).tolist(),
        name=name,
        legendgroup=name,
        showlegend=legend,
        mode="lines",
        line={"shape": "hvh", "color": color, "width": 1.5, "dash": "dot" if color == GREY else "solid"},
        fill="none" if color == GREY else "tozeroy",
        fillcolor=faded(color, 0.22),
        hovertemplate="%{y:.1%} near %{x:.0f} tokens<extra>%{fullData.name}</extra>",
    )


def accuracy_against_tokens(comparison: Json) -> go.Figure:
    """One panel a domain: a line through the tiers for the specialists and one for the student, intervals as bars."""
    domains, efforts = comparison["domains"], comparison["efforts"]
    tones = list(tier_colors(efforts).values())
    figure = panels(domains, ["accuracy"])
    for column, domain in enumerate(domains, start=1):
        for subject in (SPECIALISTS, STUDENT):
            cells = [comparison["subjects"][subject][f"{domain}.{effort}"] for effort in efforts]
            labels = efforts if subject == STUDENT else [""] * len(efforts)
            figure.add_trace(_points(cells, subject, tones, labels), row=1, col=column)
        cold = comparison["subjects"][COLD_START][domain]
        figure.add_trace(_points([cold], COLD_START, [GREY], [""]), row=1, col=column)
        figure.update_xaxes(title_text="mean counted tokens", rangemode="tozero", row=1, col=column)
    for subject, (symbol, dash) in SUBJECT_MARKS.items():  # the legend shows shapes; colours stand for tiers
        look = {"marker": {"symbol": symbol, "size": 10, "color": GREY}, "line": {"color": GREY, "dash": dash}}
        mode = "markers" if subject == COLD_START else "lines+markers"
        figure.add_trace(go.Scatter(x=[None], y=[None], name=_spoken(subject), mode=mode, **look), row=1, col=1)
    figure.update_yaxes(tickformat=".0%")
    return figure.update_layout(height=430)


def _points(cells: Sequence[Json], subject: str, tones: Sequence[str], labels: Sequence[str]) -> go.Scatter:
    symbol, dash = SUBJECT_MARKS[subject]
    return go.Scatter(
        x=[cell["tokens"]["mean"] for cell in cells],
        y=[cell["accuracy"]["value"] for cell in cells],
        error_x=_bars([(cell["tokens"]["mean"], cell["tokens"]["low"], cell["tokens"]["high"]) for cell in cells]),
        error_y=_bars([tuple(cell["accuracy"][end] for end in ("value", "low", "high")) for cell in cells]),
        showlegend=False,
        mode="lines+markers+text",
        text=[f"{label}  " for label in labels],
        textposition="top left",
        textfont={"color": list(tones)},
        cliponaxis=False,
        marker={"symbol": symbol, "size": 10, "color": list(tones), "line": {"width": 2, "color": list(tones)}},
        line={"color": faded(GREY, 0.7), "width": 1.5, "dash": dash},
        hovertemplate="%{y:.1%} at %{x:.1f} tokens<extra>" + _spoken(subject) + "</extra>",
    )


def _spoken(subject: str) -> str:
    return subject.replace("_", " ")


def _bars(parts: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    return {
        "type": "data", "symmetric": False, "thickness": 1.2, "width": 3, "color": GREY,
        "array": [high - value for value, _, high in parts],
        "arrayminus": [value - low for value, low, _ in parts],
    }  # fmt: skip


def folds(comparison: Json) -> go.Figure:
    """Fold change of mean tokens with its interval, by pair of tiers and difficulty bucket."""
    figure = _intervals(comparison, "folds", "fold", "fold change of mean tokens")
    figure.add_vline(x=1, line={"color": GREY, "width": 1})
    figure.add_vline(x=MIN_FOLD_LOW, line={"color": BAD, "width": 1, "dash": "dash"})
    return figure.update_xaxes(type="log", tickvals=FOLD_TICKS, ticktext=[f"{tick:g}x" for tick in FOLD_TICKS])


def gains(comparison: Json) -> go.Figure:
    """Difference in accuracy with its interval, by pair of tiers and difficulty bucket."""
    figure = _intervals(comparison, "gains", "points", "accuracy gained, points")
    return figure.add_vline(x=0, line={"color": GREY, "width": 1})


def _intervals(comparison: Json, kind: str, quantity: str, label: str) -> go.Figure:
    domains = comparison["domains"]
    steps = dict.fromkeys(
        (record["from"], record["to"])
        for of_domain in comparison[kind].values()
        for records in of_domain.values()
        for record in records
    )
    places = {
        (*step, bucket): -index for index, (step, bucket) in enumerate((s, b) for s in steps for b in (ALL, *BUCKETS))
    }
    names = [f"<b>{low} to {high}</b>" if bucket == ALL else bucket for low, high, bucket in places]
    figure = panels(domains, [""], shared_y="all")
    for column, domain in enumerate(domains, start=1):
        for subject, (symbol, color, offset) in INTERVAL_MARKS.items():
            records = [record for record in comparison[kind][subject][domain] if _complete(record[quantity])]
            parts = [tuple(record[quantity][end] for end in ("value", "low", "high")) for record in records]
            trace = go.Scatter(
                x=[value for value, _, _ in parts],
                y=[places[record["from"], record["to"], record["bucket"]] - offset for record in records],
                error_x={**_bars(parts), "color": color},
                mode="markers",
                name=subject,
                legendgroup=subject,
                showlegend=column == 1,
                marker={"symbol": symbol, "size": 8, "color": color},
                hovertemplate="%{x:.2f}<extra>" + subject + "</extra>",
            )
            figure.add_trace(trace, row=1, col=column)
        figure.update_xaxes(title_text=label, row=1, col=column)
    figure.update_yaxes(tickvals=list(places.values()), ticktext=names, zeroline=False)
    return figure.update_layout(height=26 * len(places) + 170, margin={"l": 110})


def _complete(interval: Json) -> bool:
    """A ratio to a mean of 0 has no place on an axis."""
    return all(part is not None for part in interval.values())
