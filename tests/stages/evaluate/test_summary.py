"""The stage over artifact folders as the plan hands them in. Oracle: the files, and numbers of the rows themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import DOMAINS, EFFORTS, evaluations, job, write_inputs

from stages.core.context import StageContext
from stages.core.errors import DataError
from stages.core.files import append_jsonl, read_json, write_json
from stages.evaluate.report.evidence import Curve, read_curves
from stages.evaluate.summary import COMPARISON, REPORT, run

MakeContext = Callable[[Mapping[str, Path]], StageContext]
PROBLEMS = 45


def record_manifest(folder: Path, *, conditioned: bool) -> None:
    """The part of an artifact's manifest that says how it was made."""
    config = {
        "conditioned": conditioned,
        "prompt": {"message": {"form": "mode_token"}},
        "evaluate": {"temperature": 0.7, "samples": 1, "problems": PROBLEMS},
    }
    write_json(folder / "manifest.json", {"digest": "", "files": [], "fields": {"config": config}})


def test_it_writes_the_comparison_and_the_report(tmp_path: Path, make_context: MakeContext) -> None:
    inputs = write_inputs(tmp_path / "inputs", PROBLEMS)
    record_manifest(inputs["evaluation.student"], conditioned=True)
    record_manifest(inputs["evaluation.general.low"], conditioned=False)
    context = make_context(inputs)
    summary = run(job(), context)

    comparison = read_json(context.out / COMPARISON)
    assert set(comparison["subjects"]["student"]) == {f"{domain}.{effort}" for domain in DOMAINS for effort in EFFORTS}
    asked = comparison["settings"]["evaluations"]
    assert (asked["student"]["effort"], asked["specialists"]["effort"]) == ("told", "not told")
    assert (asked["student"]["prompt form"], asked["student"]["temperature"]) == ("mode_token", 0.7)
    assert asked["cold_start"] == {}
    report = (context.out / REPORT).read_text(encoding="utf-8")
    assert "Left out" not in report
    assert "<h2>Training of the specialists</h2>" in report
    json.dumps(summary, allow_nan=False)


def test_the_headline_is_that_of_the_rows(tmp_path: Path, make_context: MakeContext) -> None:
    context = make_context(write_inputs(tmp_path / "inputs", PROBLEMS))
    summary = run(job(), context)
    rows = [row for row in evaluations(problems=PROBLEMS)["student"] if row["cell"] == "code.high"]
    assert summary["code.high.accuracy"] == pytest.approx(np.mean([row["correct"] for row in rows]))
    assert summary["code.high.tokens"] == pytest.approx(np.mean([row["tokens"] for row in rows]))
    checks = read_json(context.out / COMPARISON)["checks"]
    assert summary["checks"] == len(checks)
    assert summary["failed"] == [check["name"] for check in checks if not check["passed"]]
    assert summary["checks_failed"] == len(summary["failed"])


def test_without_training_and_budgets_it_still_reports(tmp_path: Path, make_context: MakeContext) -> None:
    context = make_context(write_inputs(tmp_path / "inputs", PROBLEMS, training=False, budget=False))
    run(job(), context)
    assert (context.out / REPORT).read_text(encoding="utf-8").count("Left out: ") == 3


def test_a_missing_evaluation_is_named_and_nothing_is_written(tmp_path: Path, make_context: MakeContext) -> None:
    inputs = write_inputs(tmp_path / "inputs", PROBLEMS)
    context = make_context({name: path for name, path in inputs.items() if name != "evaluation.code.high"})
    with pytest.raises(DataError, match=r"evaluation of code\.high: got no rows"):
        run(job(), context)
    assert list(context.out.iterdir()) == []


def test_curves_are_read_by_metric(tmp_path: Path) -> None:
    """A metric that was not logged at every step keeps its own steps."""
    (tmp_path / "logs").mkdir()
    steps: list[tuple[int, dict[str, Any]]] = [(1, {"reward": 0.5}), (2, {"reward": 0.6, "kl": 0.1})]
    for step, metrics in steps:
        append_jsonl(tmp_path / "logs" / "metrics.jsonl", {"t": 0.0, "step": step, "total": 2, "metrics": metrics})
    assert read_curves(tmp_path) == {"reward": Curve((1, 2), (0.5, 0.6)), "kl": Curve((2,), (0.1,))}
    assert read_curves(tmp_path / "nowhere") == {}
