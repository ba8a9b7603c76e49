"""Content keys: what an artifact is named by, and how its bytes are digested."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 20
KEY_CHARS = 16
"""Characters of a key that name the folder: 64 bits, far above any number of artifacts one store will hold."""


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, no NaN.

    Raises:
        ValueError: for NaN and infinities, which have no JSON form.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of(value: Any) -> str:
    """SHA-256 (hex) of a JSON-safe value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def stage_key(fields: Mapping[str, Any]) -> str:
    """The name of the artifact that these fields decide: stage, version, config, inputs, seed, attempt."""
    return digest_of(fields)[:KEY_CHARS]


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from any JSON-safe parts, the same on every machine and in every process.

    Every random draw of the pipeline is addressed this way, e.g. ``derive_seed(seed, "rl", problem_id, step, sample)``,
    so a resumed run needs no generator state and a batch may be split or reordered without changing a draw.
    """
    return int(digest_of(parts)[:16], 16) >> 1
