"""The sections of the report, in order: each a picture, a line on how to read it, and one on what would be bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from stages.evaluate.report import outcome, student, tables, training
from stages.evaluate.report.evidence import Evidence

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """One heading of the table of contents."""

    id: str
    title: str
    read: str
    """How to read it."""
    bad: str
    """What would be bad."""
    figures: tuple[go.Figure, ...] = ()
    html: str = ""
    """Below the figures, as HTML."""
    folded: str = ""
    """Below that, behind a fold: the numbers."""
    missing: str = ""
    """Why there is nothing to see; the rest is then left out."""


def sections(comparison: Json, evidence: Evidence) -> list[Section]:
    """Every section, in order."""
    return [
        *_knob(comparison, evidence),
        _student(comparison),
        *_training(comparison, evidence),
        _operating(comparison, evidence),
        _budgets(comparison, evidence),
        _settings(comparison),
    ]


def _knob(comparison: Json, evidence: Evidence) -> list[Section]:
    return [
        Section(
            "tokens",
            "How long each tier thinks",
            "Counted tokens of every held-out response, a colour a tier; the cold start is the dotted grey line.",
            "curves of two tiers on top of each other, or one tier with two humps far apart.",
            (outcome.token_distribution(comparison, evidence.subjects),),
            folded=tables.lengths(comparison),
        ),
        Section(
            "accuracy",
            "What the tokens buy",
            "Accuracy against mean tokens: hollow and dotted the specialists, filled the student, the diamond is the "
            "cold start. Bars are 95% intervals.",
            "a line that falls to the right, or a tier below the cold start at the same length.",
            (outcome.accuracy_against_tokens(comparison),),
        ),
        Section(
            "folds",
            "Does the knob move?",
            "Mean tokens of a tier over those of a lower one, over all problems and by difficulty, with 95% intervals. "
            "Two tiers are apart when the interval lies right of the dashed line.",
            "an interval in bold rows that reaches the dashed line. Easy problems may honestly sit near 1x.",
            (outcome.folds(comparison),),
        ),
        Section(
            "gains",
            "Does thinking pay?",
            "Accuracy of the higher tier minus that of the lower, in points, with 95% intervals.",
            "an interval left of zero, or hard problems that gain nothing from the lowest to the highest tier.",
            (outcome.gains(comparison),),
        ),
    ]


def _student(comparison: Json) -> Section:
    return Section(
        "student",
        "The student beside its teachers",
        "Left: points above or below the specialist of the same cell. Middle: share of the specialist's gain over the "
        "cold start that the student kept, n/a where that gain is under 2 points. Right: mean tokens over the "
        "specialist's.",
        "red on the left, and full blue or orange on the right: a cell whose length the student did not learn.",
        (student.heat_maps(comparison),),
    )


def _training(comparison: Json, evidence: Evidence) -> list[Section]:
    found = evidence.curves
    drawn = training.has_curves(found, tuple(training.CURVES))
    shares_drawn = training.has_curves(found, tuple(training.SHARES))
    return [
        Section(
            "training",
            "Training of the specialists",
            "Raw reward (before any length term) and counted tokens of each step's rollouts, on one scale for all "
            "domains.",
            "reward that falls away while tokens shrink: the limit is below what the policy can still solve.",
            (training.specialist_curves(comparison, found),) if drawn else (),
            missing="" if drawn else "no specialist left a training log, so there are no curves.",
        ),
        Section(
            "signal",
            "Groups that teach nothing",
            "A dead group has no difference in reward to learn from; an unreachable one has no right answer within its "
            "limit.",
            "either share near 100% for long: raise tau, mix in other problems, or sample larger groups.",
            (training.signal_shares(comparison, found),) if shares_drawn else (),
            missing="" if shares_drawn else "no specialist logged its dead and unreachable groups.",
        ),
    ]


def _operating(comparison: Json, evidence: Evidence) -> Section:
    return Section(
        "operating",
        "Which tier to route to",
        "Share of the student's responses that are right and no longer than a cap. At your cap take the highest line; "
        "a response cut short counts as wrong.",
        "a higher tier whose line never rises above a lower one's.",
        (student.accuracy_under_cap(comparison, evidence.subjects),),
        html=tables.operating_points(comparison),
    )


def _budgets(comparison: Json, evidence: Evidence) -> Section:
    drawn = bool(evidence.budgets)
    return Section(
        "budgets",
        "Budgets",
        "Training problems by budget b0: the tokens that the cold start's own right answers took. A tier's limit is "
        "tau x b0, at most the cap; the table gives it for the median problem.",
        "many fallbacks (nothing right to measure), or a cap that binds for more than a tenth of the problems.",
        (training.budget_distribution(comparison, evidence.budgets),) if drawn else (),
        html=tables.budget_table(comparison, evidence.budgets) if drawn else "",
        missing="" if drawn else "no budget table was handed in.",
    )


def _settings(comparison: Json) -> Section:
    return Section(
        "settings",
        "What these numbers hold for",
        "Effort setting, prompt form, caps and sampling of every evaluation.",
        "reading a number beside one that was measured under other settings.",
        html=tables.settings_table(comparison),
    )
