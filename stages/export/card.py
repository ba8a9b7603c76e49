"""The model card: the operating point of every effort, from ``comparison.json``, with efforts, prompt form and caps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stages.export.config import PromoteJob
from stages.export.gates import GateResult

COLUMNS = (
    "domain",
    "effort",
    "accuracy (95%)",
    "mean thinking tokens",
    "p90",
    "p99",
    "answer tokens",
    "truncated",
    "correct per million tokens",
)


def model_card(job: PromoteJob, comparison: Mapping[str, Any], gates: Sequence[GateResult]) -> str:
    """Markdown for ``README.md`` of the exported folder."""
    rows = [
        _row(domain, effort, comparison["subjects"]["student"][f"{domain}.{effort}"])
        for domain in job.domains
        for effort in job.efforts
    ]
    failed = [gate for gate in gates if not gate.passed]
    verdict = "All promotion gates hold." if not failed else f"{len(failed)} of {len(gates)} promotion gates failed."
    default = job.prompt.message.default
    return "\n".join(
        [
            f"# {job.promote.model_name}",
            "",
            f"One model, {len(job.efforts)} efforts: {', '.join(job.efforts)} (least to most thinking).",
            f"Say which with `apply_chat_template(messages, reasoning_effort=...)`; any other value is an error. "
            f"Without one: {f'`{default}`' if default else 'no effort message'}.",
            "",
            "## Operating points",
            "",
            f"Held-out problems; effort message of the form `{job.prompt.message.form}`; token caps: "
            f"{', '.join(f'{domain} {job.caps[domain]}' for domain in job.domains)}.",
            "",
            _line(COLUMNS),
            _line(["---"] * len(COLUMNS)),
            *rows,
            "",
            "## Gates",
            "",
            verdict,
            *(["", *(f"- {gate.name}: {_number(gate.value)} ({gate.detail})" for gate in failed)] if failed else []),
            "",
        ]
    )


def _row(domain: str, effort: str, cell: Mapping[str, Any]) -> str:
    accuracy, tokens = cell["accuracy"], cell["tokens"]
    return _line(
        [
            domain,
            effort,
            f"{_number(accuracy['value'])} ({_number(accuracy['low'])} to {_number(accuracy['high'])})",
            _number(tokens["mean"], 1),
            _number(tokens["p90"], 1),
            _number(tokens["p99"], 1),
            _number(cell["answer_tokens_mean"], 1),
            _number(cell["truncated_share"]),
            _number(cell["correct_per_million_tokens"], 0),
        ]
    )


def _number(value: float | None, digits: int = 3) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
