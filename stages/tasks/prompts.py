"""The one renderer of prompts, for training, evaluation and serving: the checkpoint's own chat template.

A serving engine that passes ``reasoning_effort`` to the template (see stages.tasks.template) renders what training
rendered.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from stages.core.errors import ConfigError, DataError
from stages.core.records import MODEL, TOOL, IntArray, Segment
from stages.tasks.config import PromptConfig
from stages.tasks.template import with_effort

CALL_CLOSE = "</call>"
"""Ends a tool call, and so a turn, where the tokenizer has it."""

CACHED = 1 << 16
"""Texts whose token ids a renderer remembers."""


def set_template(tokenizer: PreTrainedTokenizerBase, prompt: PromptConfig) -> None:
    """Install the effort block in the tokenizer's chat template, for the checkpoint that it is saved with."""
    tokenizer.chat_template = with_effort(_template_of(tokenizer), prompt)


def _template_of(tokenizer: PreTrainedTokenizerBase) -> str:
    template = tokenizer.chat_template
    if not isinstance(template, str):
        raise ConfigError(
            "chat template",
            got="none" if template is None else "several",
            expected="a tokenizer with one chat template",
            fix="set tokenizer.chat_template in the base model's folder",
        )
    return template


class Renderer:
    """Text to token ids and back, for one checkpoint.

    Args:
        tokenizer: with a chat template; it is left as it is.

    Raises:
        ConfigError: no chat template, no EOS, or a thinking tag that is not one token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: PromptConfig) -> None:
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._template = with_effort(_template_of(tokenizer), prompt)
        if tokenizer.eos_token_id is None:
            raise ConfigError("tokenizer", got="no EOS token", expected="one", fix="set eos_token in its config")
        self.eos_ids = frozenset({int(tokenizer.eos_token_id)})
        self.think_open_id = self._tag_id(prompt.tags.open)
        self.think_close_id = self._tag_id(prompt.tags.close)
        call_close_id = tokenizer.get_vocab().get(CALL_CLOSE)
        self.turn_end_ids: frozenset[int] = frozenset() if call_close_id is None else frozenset({call_close_id})
        self._unknown_id = tokenizer.unk_token_id
        # One problem is asked many times over, and an environment says the same few things.
        self._render = functools.lru_cache(maxsize=CACHED)(self._render_ids)
        self._encode = functools.lru_cache(maxsize=CACHED)(self._encode_text)
        ids = self.prompt_ids("", None)
        self.opened_by_prompt = _last(ids, self.think_open_id) > _last(ids, self.think_close_id)
        """Whether the template opens the thinking span."""

    def _tag_id(self, tag: str) -> int:
        ids = self._tokenizer.encode(tag, add_special_tokens=False)
        if len(ids) != 1 or ids[0] == self._tokenizer.unk_token_id:
            raise ConfigError(f"tags: {tag}", got=f"{len(ids)} tokens", expected="one token of the tokenizer")
        return int(ids[0])

    def prompt_ids(self, prompt: str, effort: str | None) -> tuple[int, ...]:
        """Token ids of the whole prompt, up to where the response begins.

        Raises:
            ConfigError: an effort that the template does not take.
            DataError: a word that the tokenizer does not know.
        """
        self._check_effort(effort)
        return self._render(prompt, effort)

    def _check_effort(self, effort: str | None) -> None:
        if effort is not None and effort not in self._prompt.efforts:
            raise ConfigError(
                "reasoning_effort", got=f"'{effort}'", expected=f"one of {', '.join(self._prompt.efforts) or 'none'}"
            )

    def _render_ids(self, prompt: str, effort: str | None) -> tuple[int, ...]:
        text = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            chat_template=self._template,
            reasoning_effort=effort,
            add_generation_prompt=True,
            tokenize=False,
        )
        return self._encode_text(text)

    def _encode_text(self, text: str) -> tuple[int, ...]:
        # Special tokens stand in the text where the template wants them: adding them again would double the BOS.
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        if self._unknown_id is not None and self._unknown_id in ids:
            vocabulary = self._tokenizer.get_vocab()
            words = sorted({word for word in text.split() if word not in vocabulary})
            raise DataError(
                f"text '{text[:60]}'",
                got=f"words that the tokenizer does not know: {', '.join(words[:5])}",
                expected="words of the cold start's data",
                fix="reword it, or train the cold start on data with these words",
            )
        return tuple(ids)

    def encode_many(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of each text: what one call for each would give, in a fraction of the time.

        Raises:
            DataError: a word that the tokenizer does not know.
        """
        if not texts:
            return []
        found = self._tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False)["input_ids"]
        # The slow way round names the unknown word.
        return [
            self._encode_text(text) if self._unknown_id is not None and self._unknown_id in ids else tuple(ids)
            for text, ids in zip(texts, found, strict=True)
        ]

    def prompts_ids(self, prompts: Sequence[str], effort: str | None) -> list[tuple[int, ...]]:
        """``prompt_ids`` of many prompts, rendered and tokenised in one call each."""
        if not prompts:
            return []
        self._check_effort(effort)
        texts = self._tokenizer.apply_chat_template(
            [[{"role": "user", "content": prompt}] for prompt in prompts],
            chat_template=self._template,
            reasoning_effort=effort,
            add_generation_prompt=True,
            tokenize=False,
        )
        return self.encode_many(texts)

    def response_ids(self, segments: Iterable[Segment]) -> tuple[IntArray, IntArray]:
        """A demonstration's token ids_T and roles_T (MODEL or TOOL), with the closing EOS, which the model writes.

        Raises:
            DataError: a word that the tokenizer does not know.
        """
        return self.responses_ids([tuple(segments)])[0]

    def responses_ids(self, responses: Sequence[Sequence[Segment]]) -> list[tuple[IntArray, IntArray]]:
        """``response_ids`` of many demonstrations, their distinct texts tokenised in one call."""
        texts = list(dict.fromkeys(segment.content for segments in responses for segment in segments))
        known = dict(zip(texts, self.encode_many(texts), strict=True))
        found = []
        for segments in responses:
            parts = [(known[segment.content], MODEL if segment.role == "assistant" else TOOL) for segment in segments]
            parts.append(((self._tokenizer.eos_token_id,), MODEL))
            token_ids = [token for ids, _ in parts for token in ids]
            roles = [role for ids, role in parts for _ in ids]
            found.append((np.asarray(token_ids, dtype=np.int64), np.asarray(roles, dtype=np.int64)))
        return found

    def observation_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of what an environment answered."""
        return self._encode(text)

    def answer_text(self, token_ids_T: IntArray, roles_T: IntArray) -> str:
        """What the verifier is given: the model's text after the first closing tag, found by token id, without special
        tokens; empty where the thinking span was never closed. A second span stays in the text, and so spoils it.

        A response without any tag, where the prompt opened none either, is all answer.
        """
        own_ids = token_ids_T[roles_T == MODEL]
        closes = np.flatnonzero(own_ids == self.think_close_id)
        if closes.size:
            own_ids = own_ids[closes[0] + 1 :]
        elif self.opened_by_prompt or self.think_open_id in own_ids:
            return ""
        return str(self._tokenizer.decode(own_ids.tolist(), skip_special_tokens=True)).strip()

    def text(self, ids: Sequence[int] | IntArray) -> str:
        """Ids as text, special tokens included."""
        return str(self._tokenizer.decode(list(map(int, ids)), skip_special_tokens=False))

    def effort_ids(self) -> dict[str, tuple[int, ...]]:
        """Per effort the prompt token ids that no other effort's prompt has."""
        rendered = {effort: self.prompt_ids("", effort) for effort in self._prompt.efforts}
        return {
            effort: tuple(
                token
                for token in dict.fromkeys(ids)
                if all(token not in others for name, others in rendered.items() if name != effort)
            )
            for effort, ids in rendered.items()
        }


def _last(ids: Sequence[int], token: int) -> int:
    """Index of the last occurrence; -1 where there is none."""
    return max((index for index, other in enumerate(ids) if other == token), default=-1)
