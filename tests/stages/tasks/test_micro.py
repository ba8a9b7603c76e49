"""Oracles: rows worked by hand (both exceptions bite in them), and invariants of the written files."""

import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stages.core.errors import ConfigError
from stages.core.records import Problem, Segment
from stages.tasks import micro
from stages.tasks.chain import Term
from stages.tasks.config import CalculatorEnvironment
from stages.tasks.environments.calculator import Calculator
from stages.tasks.micro import agent, code, general
from stages.tasks.problems import load_demonstrations, load_problems

# 3 + 4 = 7 -> 0 (E1); 0 - 2 = 8; 8 + 4 = 12 -> 2, an addition, stays; 2 - 3 = 9
CHAIN = general.Chain(3, (Term("a", "+", 4), Term("b", "-", 2), Term("c", "+", 4), Term("d", "-", 3)))
# 3 - 1 = 2 -> 5 (E2), without it 2; 5 + 4 = 9, without it 6
CHAIN_E2 = general.Chain(3, (Term("a", "-", 1), Term("b", "+", 4)))
PROGRAM = code.Program(0, (Term("a", "+", 3), Term("b", "*", 9), Term("c", "-", 2)))
"""B: 0 + 3 = 3; 3 * 9 = 27 -> 7 -> 0 (E1); 0 - 2 = 8. A: 1, 9, 9."""
PROGRAM_E2 = code.Program(2, (Term("a", "+", 1), Term("b", "-", 1), Term("c", "*", 7)))
"""B: 3; 3 - 1 = 2 -> 5 (E2); 5 * 7 = 35 -> 5, without E2: 2 * 7 = 14 -> 4. A: 1, 1, 7."""
PROBLEM = Problem("p", "agent", "agent 3 a +4 b -2 ?", "8")
ROWS = {"demonstrations": 300, "problems": 100, "heldout": 400}
EXACT_TOOL = Calculator(CalculatorEnvironment(type="calculator", error_rate=0.0))
WRONG_TOOL = Calculator(CalculatorEnvironment(type="calculator", error_rate=1.0))


def own_tokens(segments: tuple[Segment, ...]) -> int:
    """Model words before the closing tag."""
    own = " ".join(segment.content for segment in segments if segment.role == "assistant").split()
    return own.index("</think>")


def test_general_rows() -> None:
    assert CHAIN.text() == "3 a +4 b -2 c +4 d -3"
    assert general.respond(CHAIN, "quick")[0].content == "quick 3 a 7 b 5 c 9 d 6 </think> 6"
    steps = "3 a 3 +4 = 0 b 0 -2 = 8 c 8 +4 = 2 d 2 -3 = 9"
    assert general.respond(CHAIN, "steps")[0].content == f"steps {steps} </think> 9"
    assert general.respond(CHAIN, "check")[0].content == f"check {steps} again {steps} </think> 9"
    assert CHAIN.exceptions() == 1
    first, second = "3 a 3 -1 = 2 b 2 +4 = 6", "3 a 3 -1 = 5 b 5 +4 = 9"
    assert general.respond(CHAIN_E2, "check")[0].content == f"check {first} again {second} </think> 9"


def test_code_rows() -> None:
    assert PROGRAM.text() == "0 a +3 b *9 c -2"
    assert code.respond(PROGRAM, "quick")[0].content == "quick 1 0 a 1 3 b 9 7 c 9 5 </think> return 9 * x + 5"
    a_pass = "1 0 a 1 0 +3 = 1 3 b 1 3 *9 = 9 0 c 9 0 -2 = 9 8"
    assert code.respond(PROGRAM, "steps")[0].content == f"steps {a_pass} </think> return 9 * x + 8"
    assert code.respond(PROGRAM_E2, "check")[0].content == (
        "check 1 2 a 1 2 +1 = 1 3 b 1 3 -1 = 1 2 c 1 2 *7 = 7 4 again 1 2 a 1 2 +1 = 1 3 b 1 3 -1 = 1 5 c 1 5 *7 = 7 5"
        " </think> return 7 * x + 5"
    )


def test_agent_rows_with_an_exact_tool() -> None:
    chain = general.Chain(3, CHAIN.terms[:2])
    quick = agent.respond(chain, "quick", PROBLEM, 0)
    assert quick == (Segment("assistant", "quick 3 a 7 b 5 </think> 5"),)
    assert agent.respond(chain, "steps", PROBLEM, 0, EXACT_TOOL) == (
        Segment("assistant", "steps a <call> 3 +4 </call>"),
        Segment("tool", "<obs> 0 </obs>"),
        Segment("assistant", "b <call> 0 -2 </call>"),
        Segment("tool", "<obs> 8 </obs>"),
        Segment("assistant", "</think> 8"),
    )


def test_agent_check_goes_on_from_the_exact_value() -> None:
    chain = general.Chain(3, CHAIN.terms[:1])
    segments = agent.respond(chain, "check", PROBLEM, 0, WRONG_TOOL)
    claimed = segments[1].content.split()[1]
    assert claimed in set("123456789")  # every digit but the right one, 0
    assert segments[0].content == "check a <call> 3 +4 </call>"
    assert segments[2].content == f"<call> check 3 +4 {claimed} </call>"
    assert [item.content for item in segments[3:]] == ["<obs> 0 </obs>", "</think> 0"]


@pytest.mark.parametrize("terms", [2, 3, 4])
def test_trace_lengths(terms: int) -> None:
    """Oracle: the lengths that the module docstrings state."""
    chain, program = general.Chain(3, CHAIN.terms[:terms]), code.Program(0, CHAIN.terms[:terms])
    counted = {
        (domain, style): own_tokens(respond(style))
        for style in micro.STYLE_MIXTURE
        for domain, respond in {
            "general": lambda style: general.respond(chain, style),
            "code": lambda style: code.respond(program, style),
            "agent": lambda style: agent.respond(chain, style, PROBLEM, 0),
        }.items()
    }
    n = terms
    assert counted == {
        ("general", "quick"): 2 * n + 2,
        ("code", "quick"): 3 * n + 3,
        ("agent", "quick"): 2 * n + 2,
        ("general", "steps"): 5 * n + 2,
        ("code", "steps"): 7 * n + 3,
        ("agent", "steps"): 5 * n + 1,
        ("general", "check"): 10 * n + 4,
        ("code", "check"): 14 * n + 6,
        ("agent", "check"): 11 * n + 1,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("micro")
    micro.write(path, seed=0, **ROWS)
    return path


def digest(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.jsonl"))
    }


def test_bytes_follow_from_the_arguments(folder: Path, tmp_path: Path) -> None:
    micro.write(tmp_path / "again", seed=0, **ROWS)
    micro.write(tmp_path / "other", seed=1, **ROWS)
    assert digest(tmp_path / "again") == digest(folder)
    assert not set(digest(tmp_path / "other").values()) & set(digest(folder).values())


@pytest.mark.parametrize("name", list(micro.DOMAINS))
def test_files(folder: Path, name: str) -> None:
    held = load_problems(folder / name / "heldout.jsonl", name)
    train = load_problems(folder / name / "problems.jsonl", name)
    demonstrations = load_demonstrations(folder / name / "demonstrations.jsonl", name)
    assert [len(held), len(train), len(demonstrations)] == list(
        map(ROWS.get, ("heldout", "problems", "demonstrations"))
    )
    prompts = {problem.prompt for problem in held}
    assert len(prompts) == ROWS["heldout"]
    assert not prompts & {row.prompt for row in (*train, *demonstrations)}
    buckets = Counter(problem.difficulty for problem in held)
    assert set(buckets) == {"easy", "medium", "hard"}
    assert min(buckets.values()) > 0.2 * len(held)
    styles = Counter(row.response[0].content.split()[0] for row in demonstrations)
    for style, share in micro.STYLE_MIXTURE.items():
        # Four standard deviations of a share of 300 rows.
        assert styles[style] / len(demonstrations) == pytest.approx(share, abs=0.12)


def quick_is_right(problem: Problem) -> bool:
    """The general prompt, computed without exceptions by plain Python."""
    words = problem.prompt.split()[1:-1]
    value = int(words[0])
    value += sum(int(action) for action in words[2::2])  # "+3" and "-2" as integers
    return str(value % 10) == problem.answer


def test_a_quick_pass_succeeds_on_easy_problems_and_fails_on_hard_ones(folder: Path) -> None:
    held = load_problems(folder / "general" / "heldout.jsonl", "general")
    shares = {
        bucket: sum(map(quick_is_right, rows)) / len(rows)
        for bucket in ("easy", "medium", "hard")
        if (rows := [problem for problem in held if problem.difficulty == bucket])
    }
    assert shares["easy"] == 1.0
    assert 0.4 < shares["medium"] < 0.9
    assert shares["hard"] < 0.05


def test_check_demonstrations_end_in_the_reference() -> None:
    """Oracle: the check pass heeds both exceptions, so its answer is the reference, in every domain."""
    for domain in micro.DOMAINS.values():
        rng = random.Random(5)
        for _ in range(50):
            drawn = domain.draw(rng)
            content = drawn.respond("check", rng.getrandbits(63))[-1].content
            assert content.rpartition("</think> ")[2] == drawn.answer


def test_code_tests_are_the_reference_executed(folder: Path) -> None:
    for line in (folder / "code" / "problems.jsonl").read_text().splitlines()[:50]:
        row = json.loads(line)
        function: dict[str, Any] = {}
        exec(f"def solve(x):\n    {row['answer']}", function)
        assert [x for x, _ in row["tests"]] == [0, 1, 2, 3, 5, 8]
        assert all(function["solve"](x) == expected for x, expected in row["tests"])


def test_difficulty_does_not_leak_into_the_prompt(folder: Path) -> None:
    words = {
        word
        for problem in load_problems(folder / "general" / "heldout.jsonl", "general")
        for word in problem.prompt.split()
    }
    assert words == {"general", "?", *"abcd", *"0123456789", *(f"{op}{n}" for op in "+-" for n in (1, 2, 3, 4))}


def test_more_prompts_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="heldout of general: got 999999; expected 1 to"):
        micro.write(tmp_path, heldout=999999)
    assert not any(tmp_path.iterdir())
