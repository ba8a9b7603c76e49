"""The micro domain ``general``: a start value and a chain of + and -; the answer is the last value.

    prompt   general 3 a +4 b -2 ?
    quick    quick 3 a 7 b 5                                            both exceptions ignored, 2n + 2 tokens
    steps    steps 3 a 3 +4 = 0 b 0 -2 = 8                              E1 heeded, 5n + 2
    check    check 3 a 3 +4 = 0 b 0 -2 = 8 again <the same with both>   a pass as steps, then one with both, 10n + 4

The first word is the plan: it alone decides how long the trace will be. Values are digits, everything is modulo 10. The
demonstrator is fallible, the reference answer heeds both exceptions (see ``stages.tasks.chain``). A trace repeats each
term's letter first, so the model finds the term in the prompt by its label.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from stages.core.records import Segment
from stages.tasks.chain import OPERANDS, Rules, Term, difficulty, draw_terms, result
from stages.tasks.micro.rows import Drawn, Style

NAME = "general"


@dataclass(frozen=True, slots=True)
class Chain:
    """A start value and what happens to it; the agent's problems are the same."""

    start: int
    terms: tuple[Term, ...]

    def values(self, rules: Rules) -> list[int]:
        """The running value after each term."""
        values, value = [], self.start
        for term in self.terms:
            value = result(value, term.op, term.operand, rules)
            values.append(value)
        return values

    def text(self) -> str:
        return " ".join([str(self.start), *map(str, self.terms)])

    def exceptions(self) -> int:
        """How many terms of the exact pass an exception changes."""
        before = [self.start, *self.values(Rules.BOTH)]
        return sum(
            result(value, term.op, term.operand, Rules.NONE) != after
            for value, term, after in zip(before, self.terms, before[1:], strict=False)
        )


def draw_chain(rng: random.Random) -> Chain:
    return Chain(rng.randrange(10), draw_terms(rng))


def prompts_of_length(length: int) -> int:
    """How many prompts with ``length`` terms there are."""
    return 10 * int((2 * len(OPERANDS)) ** length)


def draw(rng: random.Random) -> Drawn:
    """One problem."""
    chain = draw_chain(rng)
    return Drawn(
        prompt=f"{NAME} {chain.text()} ?",
        answer=str(chain.values(Rules.BOTH)[-1]),
        length=len(chain.terms),
        difficulty=difficulty(len(chain.terms), chain.exceptions()),
        respond=lambda style, _seed: respond(chain, style),
    )


def respond(chain: Chain, style: Style) -> tuple[Segment, ...]:
    """The demonstration of a style, from after the opening tag to the answer."""
    if style == "quick":
        trace, value = quick_trace(chain)
    elif style == "steps":
        trace, value = f"steps {_pass(chain, Rules.E1)}", chain.values(Rules.E1)[-1]
    else:
        trace = f"check {_pass(chain, Rules.E1)} again {_pass(chain, Rules.BOTH)}"
        value = chain.values(Rules.BOTH)[-1]
    return (Segment("assistant", f"{trace} </think> {value}"),)


def quick_trace(chain: Chain) -> tuple[str, int]:
    """The mental pass, without exceptions, and where it ends."""
    values = chain.values(Rules.NONE)
    steps = [f"{term.letter} {value}" for term, value in zip(chain.terms, values, strict=True)]
    return " ".join(["quick", str(chain.start), *steps]), values[-1]


def _pass(chain: Chain, rules: Rules) -> str:
    values = [chain.start, *chain.values(rules)]
    steps = [
        f"{term.letter} {before} {term.action} = {after}"
        for term, (before, after) in zip(chain.terms, pairwise(values), strict=True)
    ]
    return " ".join([str(chain.start), *steps])
