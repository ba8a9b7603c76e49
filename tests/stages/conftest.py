"""Fixtures of the stages' tests: real model folders, tiny, and a run folder to work in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from stages.core.context import Log, StageContext
from stages.core.ports import Ports
from stages.tasks.config import PromptConfig

EFFORTS = ("low", "high", "max")


def _no_port(*_args: Any, **_named: Any) -> NoReturn:
    raise AssertionError("this stage needs nothing from outside")


@pytest.fixture
def make_context(tmp_path: Path) -> Callable[[Mapping[str, Path]], StageContext]:
    """A context over a fresh run folder and the given inputs, without ports."""

    def make(inputs: Mapping[str, Path]) -> StageContext:
        run_dir = tmp_path / "run"
        (run_dir / "out").mkdir(parents=True)
        ports = Ports(engine=_no_port, sampler=_no_port, sandbox=_no_port)
        return StageContext(run_dir, dict(inputs), seed=1, device="cpu", ports=ports, log=Log(run_dir))

    return make


@pytest.fixture
def make_model_folder(tmp_path: Path) -> Callable[..., Path]:
    """A saved micro model of about 5,000 parameters whose weights ``seed`` decides."""
    from stages.tasks.prompts import set_template
    from stages.tasks.tokenizer import build_word_tokenizer
    from stages.train.config import MicroBase
    from stages.train.model import create_micro, save_model

    def make(
        name: str,
        *,
        seed: int = 0,
        words: Iterable[str] = ("a", "b", "c"),
        prompt: PromptConfig | None = None,
        **shape: Any,
    ) -> Path:
        prompt = prompt or PromptConfig(efforts=EFFORTS)
        base = MicroBase(
            **{"hidden": 16, "heads": 2, "kv_heads": 1, "layers": 2, "intermediate": 24, "context": 64} | shape
        )
        tokenizer = build_word_tokenizer(words, prompt)
        set_template(tokenizer, prompt)
        model = create_micro(base, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, seed, "cpu")
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        save_model(model, tokenizer, folder)
        return folder

    return make
