"""Proofs on the exported folder: the knob reaches the prompt, and the context holds what the tiers were trained for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jinja2 import TemplateError
from transformers import AutoConfig, PreTrainedTokenizerBase

from stages.core.errors import ConfigError, StageFailed
from stages.tasks.config import PromptConfig
from stages.tasks.prompts import Renderer


def prove_knob(
    exported: PreTrainedTokenizerBase, trained: PreTrainedTokenizerBase, prompt: PromptConfig
) -> dict[str, int]:
    """Render one question at every effort with the exported tokenizer alone, as a serving engine would.

    Args:
        trained: the student's own tokenizer, which training and evaluation rendered with.

    Returns:
        Prompt tokens by effort.

    Raises:
        StageFailed: two efforts render alike, an unknown effort renders at all, or a rendering differs from the one
            that training and evaluation used.
    """
    # The efforts' own names are words that every tokenizer of ours can encode.
    question = " ".join(prompt.efforts)
    renderer = Renderer(trained, prompt)
    seen: dict[tuple[int, ...], str] = {}
    for effort in prompt.efforts:
        ids = serve(exported, question, effort)
        if ids in seen:
            raise StageFailed(
                f"chat template, effort '{effort}'", got=f"the same tokens as '{seen[ids]}'", expected="its own tokens"
            )
        expected = renderer.prompt_ids(question, effort)
        if ids != expected:
            raise StageFailed(
                f"chat template, effort '{effort}'",
                got=f"token ids {list(ids)}",
                expected=f"{list(expected)} as in training",
            )
        seen[ids] = effort
    _prove_refusal(exported, prompt, question)
    return {effort: len(ids) for ids, effort in seen.items()}


def serve(tokenizer: PreTrainedTokenizerBase, question: str, effort: str) -> tuple[int, ...]:
    """Prompt ids of a one-message chat through the tokenizer's own template."""
    messages = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, reasoning_effort=effort)
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _prove_refusal(tokenizer: PreTrainedTokenizerBase, prompt: PromptConfig, question: str) -> None:
    unknown = "".join(prompt.efforts) + "-unknown"
    try:
        serve(tokenizer, question, unknown)
    except (TemplateError, ValueError):
        return
    raise StageFailed(
        "chat template", got=f"a prompt for the unknown effort '{unknown}'", expected="an error, never a silent default"
    )


def prove_context(folder: Path, prompt_tokens: Mapping[str, int], caps: Mapping[str, int]) -> None:
    """The context must hold the shortest prompt and the largest cap, or serving cuts what training allowed.

    Raises:
        ConfigError: it does not.
    """
    context = int(AutoConfig.from_pretrained(folder).get_text_config().max_position_embeddings)
    for domain, cap_tokens in caps.items():
        needed = max(prompt_tokens.values()) + cap_tokens
        if context < needed:
            raise ConfigError(
                f"domains.{domain}.cap_tokens",
                got=f"a context of {context} tokens",
                expected=f"at least {needed}: the cap of {cap_tokens} and a prompt",
                fix="lower cap_tokens or give the base model a longer context",
            )
