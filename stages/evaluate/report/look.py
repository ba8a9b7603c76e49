"""Colours and the common frame of every figure. Text, grid and background follow the reader's theme (page.js)."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

RAMP = ("#3b8fd9", "#1fa59a", "#6fae45", "#e0a11b", "#e57a3c", "#d8546a", "#b04fb0")
"""From the tier that thinks least to the one that thinks most; mid tones that hold on white and on black."""
GREY = "#8a8f98"
"""The cold start, and whatever is only a yardstick."""
BAD, NEUTRAL, GOOD = "#d8546a", "#c9ccd1", "#3b8fd9"
ROW_PX = 250
MIN_COLUMN_PX = 260
"""Below this a panel scrolls sideways instead of shrinking."""


def tier_colors(efforts: Sequence[str]) -> dict[str, str]:
    """A colour for each tier, spread over the ramp; it starts again where there are more tiers than colours."""
    last = len(RAMP) - 1
    if len(efforts) > len(RAMP):
        return {effort: RAMP[index % len(RAMP)] for index, effort in enumerate(efforts)}
    return {effort: RAMP[round(index * last / max(1, len(efforts) - 1))] for index, effort in enumerate(efforts)}


def faded(color: str, alpha: float) -> str:
    """``#rrggbb`` with an opacity in [0, 1]."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def panels(
    titles: Sequence[str], rows: Sequence[str], *, shared_x: bool | str = False, shared_y: bool | str = "rows"
) -> go.Figure:
    """An empty grid: a column a title, a row a y-axis label."""
    figure = make_subplots(
        rows=len(rows),
        cols=len(titles),
        column_titles=[f"<b>{title}</b>" for title in titles],
        shared_xaxes=shared_x,
        shared_yaxes=shared_y,
        horizontal_spacing=0.06 / max(1, len(titles) - 1) + 0.02,
        vertical_spacing=0.1 if len(rows) > 1 else 0,
    )
    for row, label in enumerate(rows, start=1):
        figure.update_yaxes(title_text=label, row=row, col=1)
    return framed(figure, height_px=ROW_PX * len(rows) + 150)


def framed(figure: go.Figure, *, height_px: int) -> go.Figure:
    """Margins, size and a legend below the panels; the template is left to the page."""
    figure.update_xaxes(title_standoff=6)
    figure.update_layout(
        template=go.layout.Template(),
        height=height_px,
        margin={"l": 60, "r": 20, "t": 62, "b": 85},
        legend={
            "orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left",
            "groupclick": "togglegroup",
        },
    )  # fmt: skip
    return figure
