"""Reading the effort block back. Oracle: what ``with_effort`` was given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stages.core.errors import ConfigError, DataError
from stages.tasks.config import EffortMessage, PromptConfig
from stages.tasks.template import effort_of, saved_effort, with_effort

BASE = "{%- for message in messages -%}{{- message.content -}}{%- endfor -%}"


@pytest.mark.parametrize("form", ["option", "mode_token"])
@pytest.mark.parametrize("default", [None, "high"])
@pytest.mark.parametrize("efforts", [(), ("low",), ("low", "high", "x-2_b")])
def test_what_was_put_in_is_read_back(form: str, default: str | None, efforts: tuple[str, ...]) -> None:
    prompt = PromptConfig(efforts=efforts, message=EffortMessage(form=form, default=default))
    assert effort_of(with_effort(BASE, prompt)) == prompt


def test_a_template_without_a_block_takes_no_effort() -> None:
    assert effort_of(BASE) == PromptConfig()


def test_an_edited_block_is_an_error() -> None:
    edited = with_effort(BASE, PromptConfig(efforts=("low",))).replace("not in", "not  in")
    with pytest.raises(ConfigError, match="an effort block of another form"):
        effort_of(edited)


def test_both_places_of_a_saved_template(tmp_path: Path) -> None:
    old, new = (PromptConfig(efforts=(name,)) for name in ("old", "new"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": with_effort(BASE, old)}))
    assert saved_effort(tmp_path) == old
    (tmp_path / "chat_template.jinja").write_text(with_effort(BASE, new))
    assert saved_effort(tmp_path) == new


@pytest.mark.parametrize("config", [None, "{", "[]"])
def test_a_folder_without_a_tokenizer_is_no_model_folder(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(DataError, match="no tokenizer with a chat template"):
        saved_effort(tmp_path)


def test_looking_needs_no_torch() -> None:
    code = "import sys, stages.tasks.template; print('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
