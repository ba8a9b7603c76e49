"""The micro model's tokenizer: one word, one token; decoding joins the words by spaces."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from stages.tasks.config import PromptConfig
from stages.tasks.environments import OBSERVATION_WORDS
from stages.tasks.prompts import CALL_CLOSE
from stages.tasks.template import option_text

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
USER, ASSISTANT, OPTION, END = "<user>", "<assistant>", "<option>", "<end>"
EFFORT_WORDS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Always in the vocabulary, so that a tier added later needs no new tokenizer."""

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if not loop.first %} {% endif -%}
{%- if message.role == 'system' -%}
{{- '<option> ' ~ message.content ~ ' <end>' -}}
{%- elif message.role == 'user' -%}
{{- '<user> ' ~ message.content -}}
{%- elif message.role == 'assistant' -%}
{{- '<assistant> ' ~ message.content ~ ' ' ~ eos_token -}}
{%- else -%}
{{- raise_exception('unknown role ' ~ message.role) -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %} <assistant> OPEN_TAG{% endif -%}
"""


def build_word_tokenizer(
    texts: Iterable[str], prompt: PromptConfig, extra_words: Iterable[str] = ()
) -> PreTrainedTokenizerFast:
    """A tokenizer that knows every word of ``texts``; the same words give the same ids in whatever order they come.

    Args:
        texts: prompts, answers and demonstrations; words are what white space separates.
        extra_words: further words, e.g. efforts beyond the usual ones.
    """
    tags = prompt.tags
    fixed = [
        PAD,
        EOS,
        UNK,
        USER,
        ASSISTANT,
        OPTION,
        END,
        tags.open,
        tags.close,
        "<call>",
        CALL_CLOSE,
        "<obs>",
        "</obs>",
    ]
    words = {word for text in texts for word in text.split()}
    words.update(EFFORT_WORDS, prompt.efforts, option_text("").split(), OBSERVATION_WORDS, extra_words)
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys([*fixed, *sorted(words)]))}
    backend = Tokenizer(WordLevel(vocabulary, unk_token=UNK))
    backend.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE.replace("OPEN_TAG", tags.open)
    return tokenizer
