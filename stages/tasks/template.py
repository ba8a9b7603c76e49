"""The effort block of a chat template: put in, read back. No torch, so that the command line can look first.

``with_effort`` puts a block in front of a base template that reads ``reasoning_effort``. The block has the form of the
config:

* ``option``: a system message ``Reasoning effort: low`` before all messages, in the base template's own markup.
* ``mode_token``: the effort's name as one word before everything else.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from stages.core.errors import ConfigError, DataError
from stages.core.files import read_json
from stages.tasks.config import EffortMessage, PromptConfig

_BEGIN = "{#- reasoning effort: begin -#}"
_FINISH = "{#- reasoning effort: end #}"
_BLOCK = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_FINISH), re.DOTALL)
_EFFORT = """\
{%- set effort = reasoning_effort if reasoning_effort is defined and reasoning_effort is not none else DEFAULT -%}
{%- if effort is not none -%}
{%- if effort not in EFFORTS -%}
{{- raise_exception('reasoning_effort: got ' ~ effort ~ '; expected one of ALLOWED') -}}
{%- endif -%}
MESSAGE
{%- endif -%}
"""
_READ = re.compile(r"is not none else (none|\".*?\") -%}\n.*\n{%- if effort not in (\[.*?\]) -%}")
_MESSAGES = {
    "option": "{%- set messages = [{'role': 'system', 'content': OPTION_TEXT ~ effort}] + messages -%}",
    "mode_token": "{{- effort ~ ' ' -}}",
}


def option_text(effort: str) -> str:
    """Content of the option message."""
    return f"Reasoning effort: {effort}"


def with_effort(template: str, prompt: PromptConfig) -> str:
    """``template`` with the effort block before it; a block from an earlier call is replaced.

    The block: ``reasoning_effort`` undefined or None means ``message.default`` or no message, and a value that is not
    among ``prompt.efforts`` raises with the allowed ones.

    Raises:
        ConfigError: form ``mode_token`` on a template that begins with a BOS token, which must stay first.
    """
    base = _BLOCK.sub("", template)
    form = prompt.message.form
    if form == "mode_token" and "bos_token" in base:
        raise ConfigError(
            "message.form", got="mode_token", expected="a chat template without a BOS token", fix="use form 'option'"
        )
    default = prompt.message.default
    block = (
        _EFFORT.replace("MESSAGE", _MESSAGES[form])
        .replace("OPTION_TEXT", json.dumps(option_text("")))
        .replace("DEFAULT", "none" if default is None else json.dumps(default))
        .replace("EFFORTS", json.dumps(list(prompt.efforts)))
        .replace("ALLOWED", ", ".join(prompt.efforts) or "none")
    )
    return f"{_BEGIN}{block}{_FINISH}{base}"


def effort_of(template: str) -> PromptConfig:
    """What ``with_effort`` was told: the efforts that ``template`` takes, the form of the message and the default. The
    tags are the usual ones, for a template does not say which it means.

    No block: no efforts, so the template takes none.

    Raises:
        ConfigError: a block that was edited by hand.
    """
    block = _BLOCK.search(template)
    if block is None:
        return PromptConfig()
    read = _READ.search(block.group())
    if read is None:
        raise ConfigError(
            "chat template", got="an effort block of another form", expected="the one that training wrote",
            fix="export the checkpoint again",
        )  # fmt: skip
    default, efforts = read.groups()
    message = EffortMessage(
        form="mode_token" if _MESSAGES["mode_token"] in block.group() else "option",
        default=None if default == "none" else json.loads(default),
    )
    return PromptConfig(efforts=tuple(json.loads(efforts)), message=message)


def saved_effort(folder: Path) -> PromptConfig:
    """``effort_of`` the chat template in a model folder, in a file of its own or in the tokenizer's config.

    Raises:
        DataError: neither is there, so it is no model folder.
        ConfigError: see ``effort_of``.
    """
    path = folder / "chat_template.jinja"
    if path.is_file():
        return effort_of(path.read_text(encoding="utf-8"))
    try:
        template = read_json(folder / "tokenizer_config.json").get("chat_template")
    except (OSError, ValueError, AttributeError):
        raise DataError(str(folder), got="no tokenizer with a chat template", expected="a model folder") from None
    return effort_of(template) if isinstance(template, str) else PromptConfig()
