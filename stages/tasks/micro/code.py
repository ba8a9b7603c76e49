"""The micro domain ``code``: a chain of + - and * on a linear function; the answer is a line of Python that runs.

    prompt   code 7 a +3 b *7 c -2 ?
    quick    quick 1 7 a 1 0 b 7 0 c 7 8                              both exceptions ignored, 3n + 3 tokens
    steps    steps 1 7 a 1 7 +3 = 1 3 b 1 3 *7 = 7 1 c 7 1 -2 = 7 2   E1 heeded, 7n + 3
    check    check <pass as steps> again <pass heeding both>          14n + 6
    answer   return 7 * x + 2

The state (A, B) stands for A * x + B and starts at (1, the first number). A term adds to B, subtracts from B or
multiplies both, all modulo 10; a quarter of the terms multiply, by 3, 7 or 9, so A is never 0. The exceptions look at
B. The reference heeds both. The tests call the function with 0, 1, 2, 3, 5 and 8 and compare with A * x + B, not
modulo 10.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from stages.core.records import Segment
from stages.tasks.chain import OPERANDS, Rules, Term, difficulty, draw_terms, result
from stages.tasks.micro.rows import Drawn, Style

NAME = "code"
FACTORS = (3, 7, 9)
MULTIPLY_SHARE = 0.25
ARGUMENTS = (0, 1, 2, 3, 5, 8)

State = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Program:
    """The first B and what happens to the state."""

    start: int
    terms: tuple[Term, ...]

    def states(self, rules: Rules) -> list[State]:
        """(A, B) before the first term and after each."""
        a, b = 1, self.start
        states: list[State] = [(a, b)]
        for term in self.terms:
            a = a * term.operand % 10 if term.op == "*" else a
            b = result(b, term.op, term.operand, rules)
            states.append((a, b))
        return states

    def text(self) -> str:
        return " ".join([str(self.start), *map(str, self.terms)])

    def exceptions(self) -> int:
        """How many terms of the exact pass an exception changes."""
        return sum(
            result(before[1], term.op, term.operand, Rules.NONE) != after[1]
            for term, (before, after) in zip(self.terms, pairwise(self.states(Rules.BOTH)), strict=True)
        )


def prompts_of_length(length: int) -> int:
    """How many prompts with ``length`` terms there are."""
    return 10 * int((2 * len(OPERANDS) + len(FACTORS)) ** length)


def draw(rng: random.Random) -> Drawn:
    """One problem."""
    program = Program(rng.randrange(10), draw_terms(rng, MULTIPLY_SHARE, FACTORS))
    a, b = program.states(Rules.BOTH)[-1]
    return Drawn(
        prompt=f"{NAME} {program.text()} ?",
        answer=_answer((a, b)),
        length=len(program.terms),
        difficulty=difficulty(len(program.terms), program.exceptions()),
        respond=lambda style, _seed: respond(program, style),
        extra={"tests": [[x, a * x + b] for x in ARGUMENTS]},
    )


def respond(program: Program, style: Style) -> tuple[Segment, ...]:
    """The demonstration of a style, from after the opening tag to the answer."""
    if style == "quick":
        rules = Rules.NONE
        first, *after = program.states(rules)
        steps = [f"{term.letter} {_text(state)}" for term, state in zip(program.terms, after, strict=True)]
        trace = " ".join(["quick", _text(first), *steps])
    elif style == "steps":
        rules = Rules.E1
        trace = f"steps {_pass(program, rules)}"
    else:
        rules = Rules.BOTH
        trace = f"check {_pass(program, Rules.E1)} again {_pass(program, rules)}"
    return (Segment("assistant", f"{trace} </think> {_answer(program.states(rules)[-1])}"),)


def _pass(program: Program, rules: Rules) -> str:
    states = program.states(rules)
    steps = [
        f"{term.letter} {_text(before)} {term.action} = {_text(after)}"
        for term, (before, after) in zip(program.terms, pairwise(states), strict=True)
    ]
    return " ".join([_text(states[0]), *steps])


def _text(state: State) -> str:
    return f"{state[0]} {state[1]}"


def _answer(state: State) -> str:
    return f"return {state[0]} * x + {state[1]}"
