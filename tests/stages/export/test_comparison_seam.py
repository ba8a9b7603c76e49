"""Gates and card over what the summary stage really writes. Oracle: a knob built into the rows, hand-worked numbers."""

from __future__ import annotations

import json

import pytest

from stages.evaluate.comparison import compare, subjects_of
from stages.evaluate.config import SummaryJob
from stages.export.card import model_card
from stages.export.config import GatesConfig, PromoteConfig, PromoteJob
from stages.export.gates import judge
from stages.tasks.config import PromptConfig

DOMAINS, EFFORTS = ("general", "code"), ("low", "high")
PROBLEMS = 30


def rows(domain: str, effort: str | None, tokens: int, correct_of_ten: int) -> list[dict]:
    """Every response has ``tokens`` thinking tokens and 2 answer tokens; ``correct_of_ten`` of ten are right."""
    return [
        {
            "cell": f"{domain}.{effort}" if effort else domain,
            "domain": domain,
            "effort": effort,
            "problem": f"{domain}-{index}",
            "difficulty": ("easy", "medium", "hard")[index % 3],
            "sample": 0,
            "tokens": tokens,
            "answer_tokens": 2,
            "total_tokens": tokens + 2,
            "correct": index % 10 < correct_of_ten,
            "reward": float(index % 10 < correct_of_ten),
            "truncated": False,
        }
        for index in range(PROBLEMS)
    ]


def written(code_high_tokens: int) -> dict:
    """A comparison as read back from its file; ``code.high`` of the student thinks this long, its teacher 20 tokens."""
    student = [row for domain in DOMAINS for row in rows(domain, "low", 10, 6) + rows(domain, "high", 20, 9)]
    for row in student:
        if row["cell"] == "code.high":
            row["tokens"], row["total_tokens"] = code_high_tokens, code_high_tokens + 2
    evaluations = {
        "cold_start": [row for domain in DOMAINS for row in rows(domain, None, 15, 7)],
        "student": student,
        **{f"{domain}.low": rows(domain, "low", 10, 6) for domain in DOMAINS},
        **{f"{domain}.high": rows(domain, "high", 20, 9) for domain in DOMAINS},
    }
    job = SummaryJob(
        domains=DOMAINS,
        efforts=EFFORTS,
        tau={domain: {"low": 0.5, "high": 2.0} for domain in DOMAINS},
        caps=dict.fromkeys(DOMAINS, 50),
        bootstrap=100,
        student="distill",
        title="seam",
    )
    return json.loads(json.dumps(compare(subjects_of(evaluations, job), job, seed=1, settings={}), allow_nan=False))


def test_every_gate_finds_its_number():
    found = {item.name: item for item in judge(GatesConfig(), written(20), DOMAINS, EFFORTS)}
    assert all(item.passed for item in found.values())
    assert found["min_fold.code.high"].value == 2.0
    assert found["max_accuracy_drop_points.code.high"].value == pytest.approx(-30)
    assert found["token_ratio.code.high"].value == 1.0
    assert found["student_within_points.code.low"].value == 0.0


def test_a_knob_that_does_not_move_and_overshoots_fails():
    """At 11 tokens code.high is 1.1 times code.low and .55 of its teacher."""
    failed = {item.name: item.value for item in judge(GatesConfig(), written(11), DOMAINS, EFFORTS) if not item.passed}
    assert failed == {"min_fold.code.high": 1.1, "token_ratio.code.high": 0.55}


def test_the_card_reads_the_same_numbers():
    """.9 correct at 22 tokens: 40909 correct answers per million."""
    job = PromoteJob(
        promote=PromoteConfig(),
        domains=DOMAINS,
        efforts=EFFORTS,
        caps=dict.fromkeys(DOMAINS, 50),
        prompt=PromptConfig(efforts=EFFORTS),
    )
    card = model_card(job, written(20), [])
    (line,) = [line for line in card.splitlines() if line.startswith("| general | high |")]
    assert line.startswith("| general | high | 0.900 (")
    assert line.endswith(") | 20.0 | 20.0 | 20.0 | 2.0 | 0.000 | 40909 |")
