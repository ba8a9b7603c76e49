"""The page around the sections: one file, nothing from the network, plotly's script embedded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_json
from plotly.offline import get_plotlyjs

from stages.evaluate.report import tables
from stages.evaluate.report.evidence import Evidence
from stages.evaluate.report.look import MIN_COLUMN_PX
from stages.evaluate.report.sections import Section, sections

Json = Mapping[str, Any]


def render(comparison: Json, evidence: Evidence) -> str:
    """The report as one HTML document; the same inputs give the same bytes.

    Args:
        comparison: what ``comparison.json`` holds.
    """
    found = sections(comparison, evidence)
    title = escape(str(comparison["title"]))
    width_px = MIN_COLUMN_PX * len(comparison["domains"])
    body = "\n".join(_section(section, width_px) for section in found)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}: effort report</title>
<style>{_asset("page.css")}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
<nav aria-label="Contents">{_contents(found)}</nav>
<main>
{_header(title, comparison)}
{body}
</main>
<script>{_asset("page.js")}</script>
</body>
</html>
"""


def _header(title: str, comparison: Json) -> str:
    checks = comparison["checks"]
    failed = [check for check in checks if not check["passed"]]
    if failed:
        verdict = f'<p class="verdict fail">{len(failed)} of {len(checks)} checks failed</p>'
    else:
        verdict = f'<p class="verdict pass">all {len(checks)} checks passed</p>'
    items = "".join(_failure(check) for check in failed)
    failures = f'<ul class="failures">{items}</ul>' if items else ""
    return f"""<header id="top">
<h1>{title}</h1>
{verdict}
{failures}
<p class="read">The student, accuracy at mean thinking tokens; its teacher in small print.</p>
{tables.glance(comparison)}
<details><summary>every check</summary>{tables.check_table(comparison)}</details>
</header>"""


def _failure(check: Json) -> str:
    value, limit = tables.check_numbers(check)
    name, detail = escape(check["name"]), escape(check["detail"])
    return f"<li><code>{name}</code> {value}, limit {limit} <small>{detail}</small></li>"


def _contents(found: Sequence[Section]) -> str:
    links = "".join(f'<li><a href="#{section.id}">{escape(section.title)}</a></li>' for section in found)
    return f'<ol><li><a href="#top">Verdict</a></li>{links}</ol>'


def _section(section: Section, width_px: int) -> str:
    if section.missing:
        inside = f'<p class="missing">Left out: {escape(section.missing)}</p>'
    else:
        figures = "".join(
            _figure(f"{section.id}-{number}", figure, width_px) for number, figure in enumerate(section.figures)
        )
        folded = f"<details><summary>the numbers</summary>{section.folded}</details>" if section.folded else ""
        inside = (
            f'<p class="read">{escape(section.read)} <span class="bad">Bad: {escape(section.bad)}</span></p>'
            f"{figures}{section.html}{folded}"
        )
    return f'<section id="{section.id}"><h2>{escape(section.title)}</h2>{inside}</section>'


def _figure(name: str, figure: go.Figure, width_px: int) -> str:
    # plotly escapes "<" in it, so no text inside a figure can end the script element.
    data = to_json(figure, validate=True, engine="json")
    height = figure.layout.height
    return (
        f'<div class="scroll"><div class="figure" id="{name}" style="height:{height}px;min-width:{width_px}px"></div>'
        f'</div><script type="application/json" data-figure="{name}">{data}</script>'
    )


def _asset(name: str) -> str:
    return resources.files("stages.evaluate.report").joinpath(name).read_text(encoding="utf-8")
