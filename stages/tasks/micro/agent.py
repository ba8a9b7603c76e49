"""The micro domain ``agent``: the chains of ``general``, computed with a tool that errs now and then.

    prompt   agent 3 a +4 b -2 ?
    quick    quick 3 a 7 b 5                      mental, no call, both exceptions ignored, 2n + 2 tokens
    steps    steps a <call> 3 +4 </call>          <obs> 0 </obs>, then the next term from the observed value, 5n + 1
    check    check a <call> 3 +4 </call>          <obs> 1 </obs> (this one erred)
             <call> check 3 +4 1 </call>          <obs> 0 </obs>, exact; the next term goes on from here, 11n + 1

The tool heeds both exceptions, so what ``steps`` gets wrong is the tool's 5% a call, and what ``quick`` gets wrong are
the exceptions. Counted are the model's own tokens; observations are written by the environment (segments of role
``tool``). Demonstrations talk to the same ``Calculator`` as a policy does.
"""

from __future__ import annotations

import random

from stages.core.records import Problem, Segment
from stages.tasks.chain import Rules, difficulty
from stages.tasks.config import CalculatorEnvironment
from stages.tasks.environments.calculator import Calculator
from stages.tasks.micro.general import Chain, draw_chain, quick_trace
from stages.tasks.micro.rows import Drawn, Style

NAME = "agent"
TOOL = Calculator(CalculatorEnvironment(type="calculator"))


def draw(rng: random.Random) -> Drawn:
    """One problem."""
    chain = draw_chain(rng)
    prompt, answer = f"{NAME} {chain.text()} ?", str(chain.values(Rules.BOTH)[-1])
    problem = Problem("", NAME, prompt, answer)
    return Drawn(
        prompt=prompt,
        answer=answer,
        length=len(chain.terms),
        difficulty=difficulty(len(chain.terms), chain.exceptions()),
        respond=lambda style, seed: respond(chain, style, problem, seed),
    )


def respond(chain: Chain, style: Style, problem: Problem, seed: int, tool: Calculator = TOOL) -> tuple[Segment, ...]:
    """The demonstration of a style, from after the opening tag to the answer.

    Args:
        seed: of the environment session that the demonstrator talks to.
    """
    if style == "quick":
        trace, value = quick_trace(chain)
        return (Segment("assistant", f"{trace} </think> {value}"),)
    session = tool.start(problem, seed)
    segments: list[Segment] = []

    def call(text: str) -> int:
        observation = session.step(text)
        assert observation is not None, "the demonstrator stays below the turn cap"
        segments.extend((Segment("assistant", text), Segment("tool", observation)))
        return int(observation.split()[1])

    value, lead = chain.start, f"{style} "
    for term in chain.terms:
        step = f"{value} {term.action}"
        claimed = call(f"{lead}{term.letter} <call> {step} </call>")
        value = call(f"<call> check {step} {claimed} </call>") if style == "check" else claimed
        lead = ""
    return (*segments, Segment("assistant", f"</think> {value}"))
