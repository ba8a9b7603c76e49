"""Oracles: values as they stand in the file; errors that name file, line and field."""

import json
from pathlib import Path

import pytest

from stages.core.errors import DataError
from stages.core.records import Segment
from stages.tasks.problems import load_demonstrations, load_problems

GOOD = b'{"id": "1", "prompt": "p", "answer": "a"}\n'


def file_of(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(data)
    return path


def test_answers_are_text_exactly_as_written(tmp_path: Path) -> None:
    answers = ['"007"', '"1.50"', '"true"', "3", "1.50", "1e3", '" x "']
    lines = [f'{{"id": {i}, "prompt": "p", "answer": {answer}}}' for i, answer in enumerate(answers)]
    problems = load_problems(file_of(tmp_path, "\n".join(lines).encode()), "d")
    assert [problem.answer for problem in problems] == ["007", "1.50", "true", "3", "1.50", "1e3", " x "]
    assert [problem.id for problem in problems] == list("0123456")


def test_other_keys_go_to_extra_with_their_own_types(tmp_path: Path) -> None:
    row = b'{"id": "1", "prompt": "p", "answer": "a", "difficulty": "hard", "tests": [[1, 2.5], ["3", null]], '
    row += b'"n": {"k": 4}}'
    (problem,) = load_problems(file_of(tmp_path, row), "d")
    assert problem.difficulty == "hard"
    assert problem.extra == {"tests": [[1, 2.5], ["3", None]], "n": {"k": 4}}
    assert isinstance(problem.extra["tests"][0][0], int)


def test_a_late_field_keeps_its_type(tmp_path: Path) -> None:
    rows = [{"id": str(i), "prompt": "p", "answer": "a", "note": None if i < 5000 else "late"} for i in range(5001)]
    problems = load_problems(file_of(tmp_path, "\n".join(map(json.dumps, rows)).encode()), "d")
    assert len(problems) == 5001
    assert problems[-1].extra["note"] == "late"


def test_byte_order_mark_and_blank_lines(tmp_path: Path) -> None:
    plain = load_problems(file_of(tmp_path, GOOD), "d")
    assert load_problems(file_of(tmp_path, b"\xef\xbb\xbf" + GOOD + b"\r\n  \n\n"), "d") == plain


def test_demonstrations(tmp_path: Path) -> None:
    rows = (
        b'{"id": "1", "prompt": "p", "response": "a </think> b", "weight": 2}\n'
        b'{"id": "2", "prompt": "p", "response": '
        b'[{"role": "assistant", "content": "x"}, {"role": "tool", "content": "y"}]}'
    )
    first, second = load_demonstrations(file_of(tmp_path, rows), "d")
    assert first.response == (Segment("assistant", "a </think> b"),)
    assert (first.weight, second.weight) == (2.0, 1.0)
    assert second.response == (Segment("assistant", "x"), Segment("tool", "y"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no rows"),
        (b"\n \n", "no rows"),
        (GOOD + b'\n{"id": "x"', "line 3: got broken JSON"),
        (b"[1]", "line 1: got list; expected one JSON object"),
        (GOOD + GOOD, "line 2: got id '1' of line 1 again"),
        (b'{"id": "1", "prompt": "p"}', "line 1: answer: got nothing"),
        (b'{"prompt": "p", "answer": "a"}', "line 1: id: got nothing"),
        (b'{"id": "1", "prompt": " ", "answer": "a"}', "line 1: prompt: got ' '; expected a text that is not blank"),
        (b'{"id": "1", "prompt": "p", "answer": ""}', "line 1: answer: got ''"),
        (b'{"id": "1", "prompt": 3, "answer": "a"}', "line 1: prompt: got '3'; expected a text, not a number"),
        (b'{"id": "1", "prompt": "p", "answer": true}', "line 1: answer: got True"),
        (b'{"id": "1", "prompt": "p", "answer": null}', "line 1: answer: got None"),
        (b'{"id": "1", "prompt": "p", "answer": ["a"]}', "line 1: answer: got"),
        (b'{"id": "1", "prompt": "p", "answer": NaN}', "line 1: got broken JSON"),
        (b'{"id": "1", "prompt": "p", "answer": "a", "difficulty": "tough"}', "line 1: difficulty: got 'tough'"),
    ],
)
def test_problem_errors_name_the_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = file_of(tmp_path, data)
    with pytest.raises(DataError) as caught:
        load_problems(path, "d")
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ('"response": ""', "response"),
        ('"response": []', "response"),
        ('"response": [{"role": "user", "content": "x"}]', "response"),
        ('"response": "x", "weight": -1', "weight"),
        ('"response": "x", "weight": "2"', "weight"),
        ('"response": "x", "weight": 1e999', "weight"),
        (
            '"response": "x", "wieght": 1',
            "wieght: got an unknown key; expected a key of the schema; did you mean 'weight'?",
        ),
    ],
)
def test_demonstration_errors_name_the_field(tmp_path: Path, fields: str, message: str) -> None:
    with pytest.raises(DataError, match=r"line 1: ") as caught:
        load_demonstrations(file_of(tmp_path, f'{{"id": "1", "prompt": "p", {fields}}}'.encode()), "d")
    assert message in str(caught.value)


def test_wrong_encoding_names_line_and_offset(tmp_path: Path) -> None:
    # Before the bad byte: a mark of 3 bytes, a good line, an empty line, and "caf".
    data = b"\xef\xbb\xbf" + GOOD + b"\n" + b"caf\xe9"
    with pytest.raises(DataError, match=rf"line 3: got byte 0xe9 at offset {3 + len(GOOD) + 1 + 3} of the file"):
        load_problems(file_of(tmp_path, data), "d")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: got no such file"):
        load_problems(tmp_path / "nowhere.jsonl", "d")
    with pytest.raises(DataError, match="expected a readable JSONL file"):
        load_problems(tmp_path, "d")
