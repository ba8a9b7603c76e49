"""Tables of the report, as HTML. Everything that comes from data is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from stages.core.records import Budget
from stages.evaluate.comparison import COLD_START, SPECIALISTS, STUDENT
from stages.evaluate.report.look import tier_colors
from stages.rollout.budgets import binding_share

Json = Mapping[str, Any]
NONE = "n/a"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, classes: str = "") -> str:
    """A table of cells that are HTML already; the first column is the row's name."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(f"<tr><th>{row[0]}</th>{''.join(f'<td>{cell}</td>' for cell in row[1:])}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="{classes}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def glance(comparison: Json) -> str:
    """Accuracy and mean tokens of the student in every cell, its teacher's below."""
    colors = tier_colors(comparison["efforts"])
    head = ["", "cold start"]
    head += [
        f'<i class="dot" style="background:{colors[effort]}"></i>{escape(effort)}' for effort in comparison["efforts"]
    ]
    rows = []
    for domain in comparison["domains"]:
        cells = [_glance_cell(comparison["subjects"][COLD_START][domain], None)]
        for effort in comparison["efforts"]:
            student, teacher = (comparison["subjects"][name][f"{domain}.{effort}"] for name in (STUDENT, SPECIALISTS))
            cells.append(_glance_cell(student, teacher))
        rows.append([escape(domain), *cells])
    return table(head, rows, classes="glance")


def _glance_cell(cell: Json, teacher: Json | None) -> str:
    big = f"<b>{cell['accuracy']['value']:.1%}</b> at {_tokens(cell['tokens']['mean'])}"
    if teacher is None:
        return big
    small = f"specialist {teacher['accuracy']['value']:.1%} at {_tokens(teacher['tokens']['mean'])}"
    return f"{big}<small>{small}</small>"


def check_table(comparison: Json) -> str:
    """Every check with its number and its limit."""
    rows = [
        [
            _verdict(check["passed"]) + f"<code>{escape(check['name'])}</code>",
            *check_numbers(check),
            escape(check["detail"]),
        ]
        for check in comparison["checks"]
    ]
    return table(["check", "value", "limit", "what was asked; what was seen"], rows, classes="checks")


def _verdict(passed: bool) -> str:
    return '<span class="pass">pass</span>' if passed else '<span class="fail">fail</span>'


def check_numbers(check: Json) -> tuple[str, str]:
    """A check's value and its limit."""
    value, limit = check["value"], check["limit"]
    limit_text = f"{limit:.3g}" if isinstance(limit, int | float) else " to ".join(f"{end:g}" for end in limit)
    return NONE if value is None else f"{value:.2f}", limit_text


def lengths(comparison: Json) -> str:
    """Percentiles and shares behind the length distributions."""
    head = [
        "cell",
        "subject",
        "mean",
        "median",
        "p90",
        "p99",
        "over 3x median",
        "truncated",
        "unscored",
        "reasoning",
        "answer tokens",
        "responses",
    ]
    rows = []
    for domain in comparison["domains"]:
        rows.append(_lengths_row(domain, "cold start", comparison["subjects"][COLD_START][domain]))
        for effort in comparison["efforts"]:
            name = f"{domain}.{effort}"
            rows.append(_lengths_row(name, "specialist", comparison["subjects"][SPECIALISTS][name]))
            rows.append(_lengths_row(name, "student", comparison["subjects"][STUDENT][name]))
    return table(head, rows, classes="numbers")


def _lengths_row(name: str, subject: str, cell: Json) -> list[str]:
    tokens = cell["tokens"]
    shares = [cell[key] for key in ("long_share", "truncated_share", "unscored_share", "reasoning_share")]
    return [
        f"<code>{escape(name)}</code>",
        subject,
        *(_tokens(tokens[key]) for key in ("mean", "median", "p90", "p99")),
        *(NONE if share is None else f"{share:.1%}" for share in shares),
        _tokens(cell["answer_tokens_mean"]),
        str(cell["responses"]),
    ]


def operating_points(comparison: Json) -> str:
    """What each tier of the student costs and buys; the best one under the cap is marked."""
    head = ["cell", "accuracy", "mean tokens", "with answer", "right per million tokens", "cap"]
    rows = []
    for domain, point in comparison["operating_point"][STUDENT].items():
        for tier in point["tiers"]:
            best = tier["effort"] == point["best_feasible"]
            mark = ' <span class="pass">best under the cap</span>' if best else ""
            million = tier["correct_per_million_tokens"]
            rows.append(
                [
                    f"<code>{escape(domain)}.{escape(tier['effort'])}</code>{mark}",
                    f"{tier['accuracy']:.1%}",
                    _tokens(tier["mean_tokens"]),
                    _tokens(tier["mean_total_tokens"]),
                    NONE if million is None else f"{million:,.0f}",
                    f"{point['cap_tokens']:,}",
                ]
            )
    return table(head, rows, classes="numbers")


def budget_table(comparison: Json, budgets: Mapping[str, Sequence[Budget]]) -> str:
    """Of each domain: its budgets, and the limit that each tier makes of them."""
    settings = comparison["settings"]
    efforts = comparison["efforts"]
    head = [
        "domain",
        "problems",
        "median b0",
        "cold-start pass rate",
        "fallbacks",
        *(f"limit {escape(effort)}" for effort in efforts),
    ]
    rows = []
    for domain in comparison["domains"]:
        if not (found := budgets.get(domain)):
            continue
        cap = settings["caps"][domain]
        median = float(np.median([budget.b0_tokens for budget in found]))
        limits = []
        for effort in efforts:
            tau = settings["tau"][domain][effort]
            share = binding_share(found, tau, cap)
            binds = f"<small>the cap binds for {share:.0%}</small>" if share else ""
            limits.append(f"{_tokens(min(tau * median, cap))}{binds}")
        rows.append(
            [
                escape(domain),
                str(len(found)),
                _tokens(median),
                f"{np.mean([budget.pass_rate for budget in found]):.1%}",
                str(sum(budget.fallback != "none" for budget in found)),
                *limits,
            ]
        )
    return table(head, rows, classes="numbers")


def settings_table(comparison: Json) -> str:
    """What the numbers hold for."""
    settings = comparison["settings"]
    rows = [
        ["consolidation", escape(str(settings["consolidation"]))],
        ["bootstrap", f"{settings['bootstrap']:,} resamples of the problems behind each 95% interval"],
        ["token cap", _pairs(settings["caps"])],
    ]
    rows += [[f"tau, {escape(domain)}", _pairs(taus)] for domain, taus in settings["tau"].items()]
    for subject, about in settings["evaluations"].items():
        rows.append([escape(subject.replace("_", " ")), _pairs(about) if about else "settings not recorded"])
    return table(["setting", "value"], rows, classes="settings")


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{escape(str(name))} <b>{escape(str(value))}</b>" for name, value in values.items())


def _tokens(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
