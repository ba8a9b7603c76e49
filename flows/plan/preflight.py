"""Cheap looks at the data before anything runs; the stages check the contents."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flows.config import PipelineConfig
from flows.plan.nodes import Node
from stages.core.errors import DataError

WAY_OUT = "correct the path; the micro data is written by `ninefold data micro`"


def check_data(config: PipelineConfig, nodes: Iterable[Node]) -> None:
    """Every data file of ``nodes`` is there, can be read and has a row.

    Raises:
        DataError: the first that is not.
    """
    named = {
        getattr(spec, field): f"domains.{domain}.{field}"
        for domain, spec in config.domains.items()
        for field in ("demonstrations", "problems", "heldout")
    }
    files = {ref.file: named.get(ref.file, "base.path") for node in nodes for ref in node.inputs.values() if ref.file}
    for file, name in files.items():
        _check(name, Path(file))


def _check(name: str, path: Path) -> None:
    if path.is_dir() and name == "base.path":
        return
    if not path.exists():
        raise DataError(name, got=f"no such file '{path}'", expected="a JSONL file", fix=WAY_OUT)
    try:
        with path.open("rb") as handle:
            empty = not any(line.strip() for line in handle)
    except OSError as error:
        raise DataError(
            name, got=f"'{path}': {error.strerror}", expected="a readable JSONL file", fix=WAY_OUT
        ) from None
    if empty:
        raise DataError(name, got=f"an empty file '{path}'", expected="at least one row", fix=WAY_OUT)
