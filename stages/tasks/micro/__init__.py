"""Three small domains that a 0.2 M-parameter model learns on two cores, written as the JSONL that users bring.

``<folder>/<domain>/{problems,heldout,demonstrations}.jsonl``. The bytes follow from the arguments alone. No prompt of
the held-out file occurs in the other two, and problems and held-out prompts are unique. There are few short chains (640
general prompts of two terms), so held-out rows, and problems after them, take at most a third of the prompts of each
length each; what that turns away is drawn again. Demonstrations are drawn freely from what the held-out file left.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.core.errors import ConfigError
from stages.core.files import write_text
from stages.core.keys import derive_seed
from stages.tasks.chain import LENGTHS
from stages.tasks.micro import agent, code, general
from stages.tasks.micro.rows import Drawn, Style

STYLE_MIXTURE: dict[Style, float] = {"quick": 0.33, "steps": 0.42, "check": 0.25}
"""At most a third is quick: were half of the correct rollouts quick, budgets would fall to the quick length and no tier
could go below it."""
MAX_SHARE = 1 / 3
"""Of the prompts of one length that the held-out file may take, and the problem file."""


@dataclass(frozen=True, slots=True)
class MicroDomain:
    """One row of the table."""

    draw: Callable[[random.Random], Drawn]
    prompts_of_length: Callable[[int], int]


DOMAINS: dict[str, MicroDomain] = {
    general.NAME: MicroDomain(general.draw, general.prompts_of_length),
    code.NAME: MicroDomain(code.draw, code.prompts_of_length),
    agent.NAME: MicroDomain(agent.draw, general.prompts_of_length),
}


def write(folder: Path, seed: int = 0, demonstrations: int = 16000, problems: int = 1000, heldout: int = 1024) -> None:
    """Write the three domains' files.

    Args:
        demonstrations, problems, heldout: rows a domain.

    Raises:
        ConfigError: more unique prompts are asked for than there are.
    """
    for name, domain in DOMAINS.items():
        for part, rows in (("problems", problems), ("heldout", heldout)):
            most = sum(_most(domain).values())
            if not 1 <= rows <= most:
                raise ConfigError(f"{part} of {name}", got=rows, expected=f"1 to {most}", fix="ask for fewer")
    for name, domain in DOMAINS.items():
        rng = random.Random(derive_seed(seed, "micro", name))
        held = _unique(domain, rng, heldout, set())
        taken = {drawn.prompt for drawn in held}
        train = _unique(domain, rng, problems, taken)
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        _write(target / "heldout.jsonl", (_problem_row(f"{name}-h{i}", drawn) for i, drawn in enumerate(held)))
        _write(target / "problems.jsonl", (_problem_row(f"{name}-p{i}", drawn) for i, drawn in enumerate(train)))
        _write(target / "demonstrations.jsonl", _demonstrations(name, domain, rng, demonstrations, taken))


def _most(domain: MicroDomain) -> dict[int, int]:
    """How many prompts of each length one file may take."""
    return {length: int(domain.prompts_of_length(length) * MAX_SHARE) for length in LENGTHS}


def _unique(domain: MicroDomain, rng: random.Random, rows: int, taken: set[str]) -> list[Drawn]:
    """``rows`` problems with prompts of their own, outside ``taken``."""
    kept: list[Drawn] = []
    seen, left = set(taken), Counter(_most(domain))
    while len(kept) < rows:
        drawn = domain.draw(rng)
        if drawn.prompt not in seen and left[drawn.length] > 0:
            left[drawn.length] -= 1
            seen.add(drawn.prompt)
            kept.append(drawn)
    return kept


def _problem_row(row_id: str, drawn: Drawn) -> dict[str, Any]:
    return {
        "id": row_id,
        "prompt": drawn.prompt,
        "answer": drawn.answer,
        "difficulty": drawn.difficulty,
        **drawn.extra,
    }


def _demonstrations(
    name: str, domain: MicroDomain, rng: random.Random, rows: int, heldout: set[str]
) -> Iterator[dict[str, Any]]:
    styles, shares = list(STYLE_MIXTURE), list(STYLE_MIXTURE.values())
    for index in range(rows):
        drawn = domain.draw(rng)
        while drawn.prompt in heldout:
            drawn = domain.draw(rng)
        segments = drawn.respond(rng.choices(styles, shares)[0], rng.getrandbits(63))
        response: Any = [{"role": segment.role, "content": segment.content} for segment in segments]
        if len(response) == 1:
            response = response[0]["content"]
        yield {"id": f"{name}-d{index}", "prompt": drawn.prompt, "response": response, "weight": 1.0}


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
