"""Sandboxes: where candidates' programs run."""

from __future__ import annotations

from infra.sandbox.plain import PlainSandbox
from stages.core.ports import Sandbox


def build(timeout_s: float, memory_mb: int) -> Sandbox:
    """Args:
    timeout_s: wall clock of one execution.
    memory_mb: memory of one execution.
    """
    return PlainSandbox(timeout_s, memory_mb)
