"""Promotion: judge the student and write the folder that is served. Inputs and outputs: see PromoteJob."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

from transformers import GenerationConfig, PreTrainedTokenizerBase

from stages.core.context import StageContext
from stages.core.errors import DataError
from stages.core.files import read_json, write_json, write_text
from stages.core.ports import Summary
from stages.export.card import model_card
from stages.export.config import PromoteJob
from stages.export.gates import judge
from stages.export.proof import prove_context, prove_knob
from stages.tasks.prompts import set_template
from stages.train.model import load_model, load_tokenizer

MODEL = "model"
GATES = "gates.json"
COPIED = ("*.safetensors", "*.safetensors.index.json", "config.json")


def run(job: PromoteJob, context: StageContext) -> Summary:
    """Export the student, prove the export, judge it. A candidate that fails its gates is exported all the same.

    Raises:
        DataError: the summary or the student's folder lacks something.
        StageFailed, ConfigError: the exported folder does not do what it promises (see stages.export.proof).
    """
    comparison = read_json(context.inputs["summary"] / "comparison.json")
    gates = judge(job.promote.gates, comparison, job.domains, job.efforts)
    folder = context.out / MODEL
    export_model(job, context.inputs["model"], folder)
    prompt_tokens = prove_knob(load_tokenizer(folder), load_tokenizer(context.inputs["model"]), job.prompt)
    prove_context(folder, prompt_tokens, job.caps)
    load_model(folder, "cpu")
    write_text(folder / "README.md", model_card(job, comparison, gates))
    failed = [gate.name for gate in gates if not gate.passed]
    write_json(context.out / GATES, {"passed": not failed, "gates": [asdict(gate) for gate in gates]})
    for gate in gates:
        if not gate.passed:
            context.log.warn(f"gate {gate.name} failed: {gate.value} against {gate.limit} ({gate.detail})")
    return {"passed": not failed, "failed": failed, "gates": len(gates)}


def export_model(job: PromoteJob, source: Path, folder: Path) -> None:
    """Copy weights and config; write generation config and tokenizer.

    Raises:
        DataError: ``source`` is no whole model folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in COPIED:
        for path in source.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    tokenizer = load_tokenizer(source)
    set_template(tokenizer, job.prompt)
    tokenizer.save_pretrained(folder)
    _generation_config(source, tokenizer).save_pretrained(folder)


def _generation_config(source: Path, tokenizer: PreTrainedTokenizerBase) -> GenerationConfig:
    """The student's, with every id that ends a response."""
    try:
        config = GenerationConfig.from_pretrained(source)
    except OSError:
        raise DataError(str(source), got="no generation_config.json", expected="a whole model folder") from None
    known = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    config.eos_token_id = sorted({number for number in [*known, tokenizer.eos_token_id] if number is not None})
    config.pad_token_id = tokenizer.pad_token_id
    return config
