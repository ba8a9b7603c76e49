"""Linear merge (methods, section 8): sum of w_i W_i, streamed tensor by tensor.

Arithmetic is in fp32 (fp64 for fp64 weights) over the differences to the first parent, so equal parents come back bit
for bit; the result is stored in the parents' dtype. Memory holds a few copies of one tensor, never a model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from stages.core.errors import ConfigError, DataError
from stages.core.files import write_json
from stages.merge.parents import INDEX, SINGLE, Parent, read_header, read_tensor


def effective_weights(names: Sequence[str], given: Mapping[str, float], *, normalize: bool) -> dict[str, float]:
    """Weight of every parent: as given, 1 where not; divided by their sum where ``normalize``.

    Raises:
        ConfigError: a name that is no parent, a weight that is not finite, or nothing to normalise by.
    """
    for name, weight in given.items():
        if name not in names:
            raise ConfigError(f"consolidate.weights.{name}", got="no such cell", expected=f"one of {', '.join(names)}")
        if weight != weight or abs(weight) == float("inf"):
            raise ConfigError(f"consolidate.weights.{name}", got=weight, expected="a finite number")
    weights = {name: float(given.get(name, 1.0)) for name in names}
    if not normalize:
        return weights
    total = sum(weights.values())
    if total <= 0 or min(weights.values()) < 0:
        raise ConfigError(
            "consolidate.weights",
            got=f"weights from {min(weights.values()):g} with sum {total:g}",
            expected="none below 0 and a sum above 0 to normalise by",
            fix="correct the weights or set normalize: false",
        )
    return {name: weight / total for name, weight in weights.items()}


def merge(
    parents: Sequence[Parent], weights: Sequence[float], out: Path, *, normalized: bool, between: Callable[[], None]
) -> int:
    """Write the merged weights into ``out``, in the files of the first parent. Returns the number of tensors.

    Either all files are written or none.

    Args:
        parents: with equal tensor names, dtypes and shapes (see ``check_parents``).
        normalized: the weights sum to 1 by construction, so their sum is not taken from their rounded values.
        between: called after every tensor; may raise.

    Raises:
        DataError: NaN or infinity in a parent or in the result, or integer tensors that differ: names the tensor.
    """
    scale = 1.0 if normalized else sum(weights)
    first = parents[0]
    written: list[tuple[Path, Path]] = []
    count = 0
    try:
        for file in sorted(set(first.files.values())):
            aside = out / f".{file}.tmp"
            written.append((aside, out / file))
            header = read_header(first.folder / file)
            with aside.open("wb") as handle:
                handle.write(header.data)
                for name in header.names:
                    merged = merge_tensor(name, parents, weights, scale)
                    handle.write(merged.contiguous().flatten().view(torch.uint8).numpy().data)
                    count += 1
                    between()
                handle.flush()
                os.fsync(handle.fileno())
    except BaseException:
        for aside, _ in written:
            aside.unlink(missing_ok=True)
        raise
    for aside, target in written:
        aside.replace(target)
    if set(first.files.values()) != {SINGLE}:
        size = sum(path.stat().st_size for _, path in written)
        write_json(out / INDEX, {"metadata": {"total_size": size}, "weight_map": dict(first.files)})
    return count


def merge_tensor(name: str, parents: Sequence[Parent], weights: Sequence[float], scale: float) -> torch.Tensor:
    """One merged tensor in the parents' dtype.

    Args:
        scale: sum of the weights.
    """
    base = read_tensor(parents[0], name)
    if not base.is_floating_point():
        for parent in parents[1:]:
            if not torch.equal(read_tensor(parent, name), base):
                raise DataError(
                    f"{parent.name}: {name}", got=f"other values than {parents[0].name}", expected="equal integers"
                )
        return base
    wide = torch.promote_types(base.dtype, torch.float32)
    first = _finite(base.to(wide), parents[0].name, name)
    delta = torch.zeros_like(first)
    for parent, weight in zip(parents[1:], weights[1:], strict=True):
        delta.add_(_finite(read_tensor(parent, name).to(wide), parent.name, name) - first, alpha=weight)
    scaled = first if scale == 1.0 else first * scale
    # Adding a zero would turn -0.0 into 0.0, and equal parents must come back bit for bit.
    merged = torch.where(delta == 0, scaled, scaled + delta).to(base.dtype)
    _finite(merged.to(wide), f"the merged model in {base.dtype}", name)
    return merged


def _finite(tensor: torch.Tensor, owner: str, name: str) -> torch.Tensor:
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise DataError(
            f"{owner}: {name}",
            got=f"{bad} of {tensor.numel()} values NaN or infinite",
            expected="finite weights",
            fix="leave this parent out or train it again",
        )
    return tensor
