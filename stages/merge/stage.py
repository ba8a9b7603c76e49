"""Weight merging: nine specialists to one model folder. Inputs and output: see MergeJob."""

from __future__ import annotations

import shutil
from pathlib import Path

from stages.core.context import StageContext
from stages.core.errors import DataError
from stages.core.ports import Summary
from stages.merge.config import MergeJob
from stages.merge.linear import effective_weights, merge
from stages.merge.parents import Parent, check_parents, open_parent
from stages.tasks.prompts import set_template
from stages.train.model import load_tokenizer

COPIED = ("config.json", "generation_config.json")
"""Taken from the cold start as they stand; the tokenizer comes from there too, with every effort in its template."""


def run(job: MergeJob, context: StageContext) -> Summary:
    """Merge every cell's specialist and write a folder that plain transformers loads.

    A merged model tells the efforts apart only where its parents were trained with the effort message.

    Raises:
        ConfigError: weights that name no cell or cannot be normalised.
        DataError: parents that are no siblings, or weights that are not finite; nothing is written then.
    """
    names = [cell.name for cell in job.cells]
    weights = effective_weights(names, job.merge.weights, normalize=job.merge.normalize)
    cold_start = open_parent("the cold start", context.inputs["model"])
    parents = [_parent(name, context) for name in names]
    _check_copied(cold_start)
    check_parents(cold_start, parents)
    context.log.event("merge_weights", normalize=job.merge.normalize, weights=weights)

    def stop_if_told() -> None:
        if context.stop.is_set:
            raise context.stop.error()

    count = merge(parents, list(weights.values()), context.out, normalized=job.merge.normalize, between=stop_if_told)
    _copy_rest(job, cold_start.folder, context.out)
    return {"parents": len(parents), "tensors": count, "normalize": job.merge.normalize, "weights": weights}


def _parent(name: str, context: StageContext) -> Parent:
    folder = context.inputs.get(f"teacher.{name}")
    if folder is None:
        raise DataError(f"cell {name}", got="no specialist", expected="one a cell")
    return open_parent(name, folder)


def _check_copied(cold_start: Parent) -> None:
    for name in COPIED:
        if not (cold_start.folder / name).exists():
            raise DataError(
                f"{cold_start.name}: {cold_start.folder}", got=f"no {name}", expected="a whole model folder"
            )


def _copy_rest(job: MergeJob, source: Path, out: Path) -> None:
    for name in COPIED:
        shutil.copyfile(source / name, out / name)
    tokenizer = load_tokenizer(source)
    set_template(tokenizer, job.prompt)
    tokenizer.save_pretrained(out)
