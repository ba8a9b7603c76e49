"""The arithmetic of the micro domains: chains of terms on digits, with two exceptions on the hidden running value.

* E1: every operation has one digit on which its result comes out 3 higher.
* E2: every subtraction has a second such digit.

Which digit meets which operation depends on the running value, so nobody can tell from the prompt's first words whether
a quick pass over the chain will go wrong. The digits follow no rule: a policy that never writes an exception down would
have to find each by trial, so a tier that thinks little stays the less accurate one. (A rule such as "7 becomes 0" was
found within 30 RL steps, and the lowest tier overtook the others.)
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

LETTERS = "abcd"
LENGTHS = (2, 3, 4)
"""Terms of a chain, drawn uniformly."""
OPERANDS = (1, 2, 3, 4)
"""Of + and -, drawn uniformly."""

Op = Literal["+", "-", "*"]

E1_DIGIT = {"+1": 5, "+2": 1, "+3": 7, "+4": 3, "-1": 8, "-2": 1, "-3": 4, "-4": 7, "*3": 7, "*7": 1, "*9": 3}
"""By operation, the running value on which E1 strikes."""
E2_DIGIT = {"-1": 3, "-2": 6, "-3": 9, "-4": 2}
"""The same of E2."""
SURPLUS = 3


@dataclass(frozen=True, slots=True)
class Term:
    """One step of a chain."""

    letter: str
    """Its label in the prompt, by which a trace looks it up."""
    op: Op
    operand: int

    @property
    def action(self) -> str:
        """Operation and operand as one word: the one thing that a pass has to look up by the label."""
        return f"{self.op}{self.operand}"

    def __str__(self) -> str:
        return f"{self.letter} {self.action}"


class Rules(Enum):
    """Which exceptions a pass heeds."""

    NONE = auto()
    E1 = auto()
    BOTH = auto()


def result(value: int, op: Op, operand: int, rules: Rules) -> int:
    """One operation on a digit: modulo 10, then the exceptions that ``rules`` heeds."""
    plain = {"+": value + operand, "-": value - operand, "*": value * operand}[op] % 10
    action = f"{op}{operand}"
    strikes = (rules is not Rules.NONE and E1_DIGIT.get(action) == value) or (
        rules is Rules.BOTH and E2_DIGIT.get(action) == value
    )
    return (plain + SURPLUS) % 10 if strikes else plain


def difficulty(length: int, exceptions: int) -> str:
    """Bucket of a chain with ``length`` terms, ``exceptions`` of which an exception changes.

    A pass that ignores the exceptions is right on easy chains, wrong on hard ones and right on some of the medium ones.
    """
    if exceptions == 0:
        return "easy" if length <= 3 else "medium"
    return "medium" if length <= 2 else "hard"


def draw_terms(rng: random.Random, multiply_share: float = 0.0, factors: tuple[int, ...] = ()) -> tuple[Term, ...]:
    """A chain: length, then op and operand per term; a share of the terms multiplies by one of ``factors``."""
    terms = []
    for letter in LETTERS[: rng.choice(LENGTHS)]:
        if rng.random() < multiply_share:
            terms.append(Term(letter, "*", rng.choice(factors)))
        else:
            terms.append(Term(letter, rng.choice(("+", "-")), rng.choice(OPERANDS)))
    return tuple(terms)
