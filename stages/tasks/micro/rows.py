"""What a micro domain draws, before it is written as rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stages.core.records import Segment

Style = Literal["quick", "steps", "check"]
"""How deep a demonstration thinks."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One problem of a micro domain, with the way to demonstrate it."""

    prompt: str
    answer: str
    """Reference, both exceptions heeded."""
    length: int
    """Terms of the chain."""
    difficulty: str
    respond: Callable[[Style, int], tuple[Segment, ...]]
    """(style, seed) -> the demonstration; the seed is for domains whose demonstrator meets chance."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the problem row."""
