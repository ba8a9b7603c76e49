"""Problems and demonstrations from JSONL, with an explicit schema: nothing is inferred and nothing retyped.

UTF-8, one JSON object a line; a byte-order mark is stripped, blank lines are ignored.

* problem: ``id``, ``prompt``, ``answer``, ``difficulty``?; every other key goes to ``Problem.extra``.
* demonstration: ``id``, ``prompt``, ``response`` (text, or a list of ``{"role": "assistant"|"tool", "content"}``),
  ``weight``?.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from stages.core.config import explain
from stages.core.errors import DataError
from stages.core.records import Demonstration, Problem, Segment

BOM = b"\xef\xbb\xbf"


class _Number(str):
    """A JSON number, as it is written in the file."""


def _as_written(value: Any) -> Any:
    return str(value) if isinstance(value, _Number) else value


def _as_float(value: Any) -> Any:
    return float(value) if isinstance(value, _Number) else value


def _text(value: Any) -> Any:
    if isinstance(value, _Number):
        raise ValueError("a text, not a number")
    if isinstance(value, str) and not value.strip():
        raise ValueError("a text that is not blank")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


Text = Annotated[str, BeforeValidator(_text)]
TextOrNumber = Annotated[str, BeforeValidator(_text), BeforeValidator(_as_written)]
# Before-validators run from the last to the first.
Difficulty = Literal["easy", "medium", "hard"]


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    id: TextOrNumber
    prompt: Text


class _ProblemRow(_Row):
    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    answer: TextOrNumber
    difficulty: Difficulty | None = None


class _SegmentRow(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    role: Literal["assistant", "tool"]
    content: Text


class _DemonstrationRow(_Row):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    response: Text | Annotated[list[_SegmentRow], Field(min_length=1)]
    weight: Annotated[float, BeforeValidator(_as_float), Field(ge=0, allow_inf_nan=False)] = 1.0


RowT = TypeVar("RowT", bound=_Row)


def load_problems(path: Path, domain: str) -> list[Problem]:
    """The problems of a file, in its order.

    Raises:
        DataError: missing, empty or broken file; names file, line and field.
    """
    return [
        Problem(row.id, domain, row.prompt, row.answer, row.difficulty, _plain(row.model_extra or {}))
        for row in _rows(path, _ProblemRow)
    ]


def load_demonstrations(path: Path, domain: str) -> list[Demonstration]:
    """The demonstrations of a file, in its order.

    Raises:
        DataError: missing, empty or broken file; names file, line and field.
    """
    return [
        Demonstration(row.id, domain, row.prompt, _segments(row.response), row.weight)
        for row in _rows(path, _DemonstrationRow)
    ]


def _segments(response: str | list[_SegmentRow]) -> tuple[Segment, ...]:
    if isinstance(response, str):
        return (Segment("assistant", response),)
    return tuple(Segment(item.role, item.content) for item in response)


def _rows(path: Path, schema: type[RowT]) -> list[RowT]:
    rows: list[RowT] = []
    first_line: dict[str, int] = {}
    for number, text in _lines(path):
        where = f"{path}, line {number}"
        try:
            # Numbers stay text as written until a field asks for one: 1.50 must not become 1.5 on its way to an answer.
            value = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)
        except ValueError as error:
            raise DataError(where, got=f"broken JSON ({error})", expected="one JSON object", fix="mend it") from None
        if not isinstance(value, dict):
            raise DataError(where, got=type(value).__name__, expected="one JSON object", fix="mend the line")
        try:
            row = schema.model_validate(value)
        except ValidationError as error:
            shown = explain(error, schema, where)
            raise DataError(shown.what, got=shown.got, expected=shown.expected, fix=shown.fix) from None
        if row.id in first_line:
            raise DataError(where, got=f"id '{row.id}' of line {first_line[row.id]} again", expected="an id of its own")
        first_line[row.id] = number
        rows.append(row)
    if not rows:
        raise DataError(str(path), got="no rows", expected="JSON lines", fix="put data into the file")
    return rows


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and their text, blank lines left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(str(path), got="no such file", expected="a JSONL file", fix="check the path") from None
    except OSError as error:
        raise DataError(str(path), got=error.strerror, expected="a readable JSONL file") from None
    start = len(BOM) if data.startswith(BOM) else 0
    for number, line in enumerate(data[start:].split(b"\n"), start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, line {number}",
                got=f"byte 0x{line[error.start]:02x} at offset {start + error.start} of the file",
                expected="UTF-8",
                fix="save the file as UTF-8",
            ) from None
        if text.strip():
            yield number, text
        start += len(line) + 1


def _plain(value: Any) -> Any:
    """``value`` with its numbers read as numbers."""
    if isinstance(value, _Number):
        return json.loads(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
