"""One error tree, one boundary.

    NinefoldError                 exit code
    |- ConfigError                2   the config cannot mean what it says
    |- DataError                  2   problems, demonstrations or prompts are unusable
    |- StoreError                 2   the artifact store cannot be read or written
    |  `- CorruptArtifact         2   an artifact exists but its bytes are not what its manifest says
    |- TrackingError              2   the tracker could not be opened when a new run started
    |- GatesFailed                3   the candidate was judged and not promoted
    |- AwaitingApproval           4   a tier waits for a person
    |- StageFailed                5   a stage could not finish
    |- Skipped                    6   another run holds the work
    |- Interrupted                130 Ctrl-C, after a checkpoint
    `- Terminated                 143 SIGTERM, after a checkpoint

Every message names the object, what it got, what was expected and the way out, on one line.
Only the command line and the worker catch these; everything else lets them pass.
"""

from __future__ import annotations

from typing import ClassVar


class NinefoldError(Exception):
    """Base of every error that a user can cause or mend.

    Args:
        what: the object at fault, e.g. ``tau.code.low``.
        got: what was found there.
        expected: what would have been right.
        fix: what to do about it.
    """

    exit_code: ClassVar[int] = 5

    def __init__(self, what: str, *, got: object = None, expected: str | None = None, fix: str | None = None) -> None:
        self.what = what
        self.got = got
        self.expected = expected
        self.fix = fix
        parts = []
        if got is not None:
            parts.append(f"got {got}")
        if expected is not None:
            parts.append(f"expected {expected}")
        if fix is not None:
            parts.append(fix)
        text = f"{what}: {'; '.join(parts)}" if parts else what
        super().__init__(" ".join(text.split()))


class ConfigError(NinefoldError):
    exit_code = 2


class DataError(NinefoldError):
    exit_code = 2


class StoreError(NinefoldError):
    exit_code = 2


class CorruptArtifact(StoreError):
    pass


class TrackingError(NinefoldError):
    exit_code = 2


class GatesFailed(NinefoldError):
    exit_code = 3


class AwaitingApproval(NinefoldError):
    exit_code = 4


class StageFailed(NinefoldError):
    exit_code = 5


class Skipped(NinefoldError):
    exit_code = 6


class Interrupted(NinefoldError):
    exit_code = 130


class Terminated(NinefoldError):
    exit_code = 143


EXIT_CODES: dict[int, type[NinefoldError]] = {
    kind.exit_code: kind
    for kind in (ConfigError, GatesFailed, AwaitingApproval, StageFailed, Skipped, Interrupted, Terminated)
}
"""The class that a worker's exit code stands for; a signal death or any other code is StageFailed."""
