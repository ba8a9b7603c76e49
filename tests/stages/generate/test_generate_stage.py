"""Responses to read. Oracles: the words of the response itself, the problems' answers, a scripted sampler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training import PORTS, PROMPT, cold_start, context, domain, write_problems

from stages.core.errors import ConfigError, DataError
from stages.core.files import read_jsonl
from stages.core.ports import SampleRequest, TurnHook
from stages.core.records import MODEL, TOOL, Sampled
from stages.generate.config import GenerateJob
from stages.generate.stage import run
from stages.tasks.config import CalculatorEnvironment


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cold_start(tmp_path_factory.mktemp("model") / "cold")


@pytest.fixture
def ask(tmp_path: Path, model: Path) -> Any:
    """Runs the stage in a fresh run folder and returns its records."""

    def asked(seed: int = 0, ports: Any = PORTS, **fields: Any) -> list[dict[str, Any]]:
        run_dir = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        made = context(run_dir, {"model": model, "heldout": write_problems(tmp_path / "heldout.jsonl")})
        summary = run(GenerateJob(**{"prompt": PROMPT} | fields), replace(made, seed=seed, ports=ports))
        records = list(read_jsonl(run_dir / "out" / "responses.jsonl"))
        assert summary == {"responses": len(records)}
        return records

    return asked


def test_prompts_are_answered_in_order(ask: Any) -> None:
    records = ask(prompts=("sum 1 2", "sum 2 2"), samples=2, effort="low")
    named = [(item["problem"], item["sample"], item["prompt"]) for item in records]
    assert named == [("1", 0, "sum 1 2"), ("1", 1, "sum 1 2"), ("2", 0, "sum 2 2"), ("2", 1, "sum 2 2")]
    for item in records:
        assert item["effort"] == "low"
        assert (item["expected"], item["correct"], item["reason"]) == (None, None, None)


def test_the_thinking_span_is_marked_and_counted(ask: Any) -> None:
    for item in ask(prompts=("sum 1 2",), samples=8):
        thinking, _, answer = item["response"].partition(" </think> ")
        words = thinking.split()
        assert words[0] == "<think>"  # opened by the prompt, so not among the response's own tokens
        assert item["tokens"] == len(words) - 1
        if not item["truncated"]:
            assert answer == f"{item['answer']} <eos>"
            assert item["answer_tokens"] == len(item["answer"].split())


def test_heldout_problems_are_verified(ask: Any) -> None:
    records = ask(domain="sums", spec=domain(), problems=4, samples=8)
    assert [item["problem"] for item in records[::8]] == ["p0", "p1", "p2", "p3"]
    verdicts = {item["correct"] for item in records}
    assert verdicts == {True, False}
    for item in records:
        a, b = item["prompt"].split()[1:]
        assert item["expected"] == str(int(a) + int(b))
        assert item["correct"] == (item["answer"] == item["expected"] and not item["truncated"])


def test_the_seed_decides_every_draw_and_greedy_needs_none(ask: Any) -> None:
    asked = {"prompts": ("sum 1 2", "sum 2 1"), "samples": 8}
    assert ask(seed=1, **asked) == ask(seed=1, **asked)
    assert ask(seed=1, **asked) != ask(seed=2, **asked)
    greedy = ask(seed=1, temperature=0, **asked)
    assert greedy == ask(seed=2, temperature=0, **asked)
    assert len({item["response"] for item in greedy[:8]}) == 1


def test_the_cap_cuts_off(ask: Any) -> None:
    (item,) = ask(prompts=("sum 1 2",), max_tokens=1)
    assert item["truncated"]
    assert len(item["response"].split()) == 2  # the prompt's tag and one token


class Caller:
    """A sampler that makes one tool call and answers with what came back."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def sample(
        self,
        requests: Sequence[SampleRequest],
        *,
        temperature: float,
        turn_end_ids: frozenset[int] = frozenset(),
        on_turn: TurnHook | None = None,
    ) -> list[Sampled]:
        assert on_turn is not None
        found = []
        for row in range(len(requests)):
            call = self._ids("<call> 1 2 </call>")  # no operator: the calculator calls it an error
            seen = list(on_turn(row, np.array(call)) or ())
            answer = self._ids("</think> 3 <eos>")
            roles = [MODEL] * len(call) + [TOOL] * len(seen) + [MODEL] * len(answer)
            ids = [*call, *seen, *answer]
            found.append(Sampled(np.array(ids), np.array(roles), np.zeros(len(ids)), "stop"))
        return found

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def test_the_environment_of_a_domain_answers(ask: Any) -> None:
    ports = replace(PORTS, sampler=lambda model, tokenizer: Caller(tokenizer))
    spec = domain(environment=CalculatorEnvironment(type="calculator"), counting="cumulative")
    (item,) = ask(prompts=("sum 1 2",), domain="calc", spec=spec, ports=ports)
    assert item["response"] == "<think> <call> 1 2 </call> <obs> error </obs> </think> 3 <eos>"
    assert (item["answer"], item["tokens"], item["answer_tokens"]) == ("3", 4, 1)  # no observation counts


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"prompts": ("sum 1 seven",)}, DataError, "words that the tokenizer does not know: seven"),
        ({"prompts": ("sum 1 2",), "effort": "high"}, ConfigError, "got 'high'; expected one of low, max"),
        ({"prompts": ("sum 1 2",), "max_tokens": 64}, DataError, "6 tokens of prompt and 64 of response; expected at"),
        ({"prompts": ("1 " * 61,)}, DataError, "prompt: got 64 tokens of prompt and 1 of response"),
    ],
)
def test_what_cannot_be_asked(ask: Any, fields: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        ask(**fields)
