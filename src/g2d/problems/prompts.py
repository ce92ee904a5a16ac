"""Messages around a problem, and their tokens, for training, harvest and evaluation.

Only the chat template creates special tokens: a problem with `<|im_end|>` cannot end its turn.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import field_validator

from g2d.plain import first_line
from g2d.problems.problem import Problem
from g2d.settings import Section, key
from g2d.verifier.extraction import END_OF_THINKING, THINK
from g2d.verifier.pool import MIB, Limits, Pool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Example(Section):
    """A worked example: user and assistant turn."""

    problem: str = key(..., "Text of the problem; `template` is applied to it.")
    answer: str = key(..., "Reply of the assistant, verbatim.")


# A name in braces that is no argument of a LaTeX command.
PLACEHOLDER = re.compile(r"(?<![A-Za-z}\\])\{(\w+)\}")
IN_TWO_BRACES = re.compile(r"(?<![A-Za-z}\\])\{\{\s*problem\s*\}\}")  # as in other libraries
MEANT = ("question", "query", "prompt", "instruction", "input")  # names for the text of a problem elsewhere


class Prompt(Section):
    """Prompt format. The chat template comes from the model."""

    system: str | None = key(
        None, "System message; null: none (Qwen's template then inserts its own).", paper="not printed in the paper"
    )
    template: str = key("{problem}", "User message; {problem} is replaced by the problem text.", paper="not printed")
    examples: list[Example] = key([], "Worked examples before every problem.", paper="none", neutral=[])
    open_ended: str = key(
        "{problem}",
        "User message of open-ended prompts, without system message or examples.",
        paper="{problem}, in arXiv 2506.21495",
        neutral="{problem}",
    )

    @field_validator("template", "open_ended")
    @classmethod
    def _has_placeholder(cls, template: str) -> str:
        for name in PLACEHOLDER.findall(template):
            if name in MEANT:
                raise ValueError(f"the template has {{{name}}}, but the problem is {{problem}}: write that, or drop it")
        if IN_TWO_BRACES.search(template):
            raise ValueError("the template has {{problem}}: write {problem}: the outer braces would be printed")
        if "{problem}" not in template:
            raise ValueError("the template never mentions {problem}: add it where the problem text belongs")
        return template


Messages = list[dict[str, str]]


def conversation(problem: Problem, prompt: Prompt) -> Messages:
    """Build the messages of a problem.

    Open-ended prompts have a separate template and no examples (arXiv 2506.21495, figures 4 and 5).
    """
    if problem.kind == "open_ended":
        return [{"role": "user", "content": prompt.open_ended.replace("{problem}", problem.prompt)}]
    messages: Messages = []
    if prompt.system is not None:
        messages.append({"role": "system", "content": prompt.system})
    for example in prompt.examples:
        messages.append({"role": "user", "content": prompt.template.replace("{problem}", example.problem)})
        messages.append({"role": "assistant", "content": example.answer})
    messages.append({"role": "user", "content": prompt.template.replace("{problem}", problem.prompt)})
    return messages


KEY_OF_ROLE = {"system": "prompt.system", "assistant": "prompt.examples", "user": "prompt.template"}
DATE = "date_string"  # variable of Llama's chat templates
CLOCK = "strftime_now"  # function of transformers that chat templates call
LONGEST = 1_000_000  # characters of a rendered prompt


def with_values(template: str, values: Mapping[str, object]) -> str:
    """Return a chat template with variables set; `date_string` also replaces the clock."""
    # One line each: transformers strips the line break after a block.
    lines = [f"{{% set {name} = {value!r} %}}\n" for name, value in values.items()]
    if DATE in values:
        lines.append(f"{{% macro {CLOCK}(format) %}}{{{{ {DATE} }}}}{{% endmacro %}}\n")
    return "".join([*lines, template])


class ChatTemplateError(ValueError):
    """A chat template fails on a conversation."""


def require_finite(
    tokenizer: PreTrainedTokenizerBase, conversation: Messages, *, add_generation_prompt: bool = True
) -> None:
    """Raise a ValueError if the chat template exceeds the limits of a worker process, which renders it first.

    jinja2's sandbox limits a `range`, but neither nested loops nor the length of a text.
    """
    template = tokenizer.get_chat_template()
    limits = Limits(deadline_s=2.0)  # a usual template takes milliseconds
    pool = Pool(1, limits, ["chat_template"])
    try:
        asked = (template, tokenizer.special_tokens_map, conversation, LONGEST, add_generation_prompt)
        [reply] = pool.replies([asked])
    finally:
        pool.close()
    if reply.status in ("timeout", "limit"):
        raise ValueError(
            f"the chat template takes more than {limits.deadline_s:g} s, {limits.memory_bytes // MIB} MiB or "
            f"{LONGEST:,} characters for one prompt: use the one that the model was released with"
        )


def require_faithful(tokenizer: PreTrainedTokenizerBase, conversation: Messages, text: str) -> None:
    """Raise a ValueError if a rendered prompt lacks a part of a message, or has today's date."""
    for message in conversation:
        role = message["role"]
        content = message["content"].strip()
        if content not in text:
            raise ValueError(
                f"the chat template drops a part of the {role} message {reprlib.repr(content)}: write in "
                f"{KEY_OF_ROLE[role]} only what it keeps (many drop <think> of earlier turns, some a system message)"
            )
    formats: list[str] = []

    def another_day(date_format: str) -> str:
        formats.append(date_format)
        return datetime(2000, 1, 1).strftime(date_format)

    clock: dict[str, Any] = {CLOCK: another_day}
    then = render(tokenizer, conversation, **clock)
    if formats and then != text:
        today = json.dumps(datetime.now().strftime(formats[0]))
        raise ValueError(
            "the chat template prints today's date, so prompts would differ from day to day: fix it with "
            f"models.NAME.chat_template_kwargs: {{{DATE}: {today}}}"
        )


def token_ids(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> list[list[int]]:
    """Return the tokens of texts, without tokens that the tokenizer would add."""
    ids: list[list[int]] = tokenizer([*texts], add_special_tokens=False)["input_ids"]
    return ids


def render(
    tokenizer: PreTrainedTokenizerBase, conversation: Messages, *, add_generation_prompt: bool = True, **given: Any
) -> str:
    """Render a conversation with the chat template, and functions `given` to it."""
    try:
        return str(
            tokenizer.apply_chat_template(
                conversation, add_generation_prompt=add_generation_prompt, tokenize=False, **given
            )
        )
    except Exception as error:  # a template can raise any
        raise ChatTemplateError(
            f"the chat template fails: {first_line(error)}: write the messages that it expects (prompt.system, "
            "prompt.examples), or use the one that the model was released with"
        ) from error


def opens_thinking(tokenizer: PreTrainedTokenizerBase, prompt: str) -> bool:
    """Return whether a rendered prompt ends in `<think>`, and completions show the `</think>` that closes it.

    Decoding leaves `</think>` out if the tokenizer has it as a special token.
    """
    if not prompt.rstrip().endswith(THINK):
        return False
    (ids,) = token_ids(tokenizer, [END_OF_THINKING])
    return END_OF_THINKING in tokenizer.decode(ids, skip_special_tokens=True)


def conversation_ids(
    tokenizer: PreTrainedTokenizerBase, conversation: Messages, *, add_generation_prompt: bool = True
) -> list[int]:
    """Return the tokens of a conversation; message text never becomes a special token.

    Private characters replace texts of special tokens in the rendered template. Raises a ValueError if the tokenizer
    cannot do that, or if a prompt lacks a part of a message or has today's date.
    """
    special, pattern = _special_tokens(tokenizer)
    contents = [message["content"] for message in conversation]
    stands_for = _private_characters(contents, pattern)
    masked: Messages = []
    for message in conversation:
        content = pattern.sub(lambda match: stands_for[match[0]], message["content"])
        masked.append({**message, "content": content})
    text = render(tokenizer, masked, add_generation_prompt=add_generation_prompt)
    if add_generation_prompt:
        require_faithful(tokenizer, masked, text)
    if not stands_for:
        return token_ids(tokenizer, [text])[0]
    if not tokenizer.is_fast:
        raise ValueError(f"{min(stands_for)} in it is a special token to this tokenizer, a slow one: remove it")

    def unmasked(part: str, tokens: list[int]) -> list[int]:
        original = part
        for match, character in stands_for.items():
            original = original.replace(character, match)
        return tokens if original == part else plain_ids(tokenizer, original)

    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids: list[int] = []
    begin = 0  # start of the text behind the last special token
    since: list[int] = []  # tokens of that text
    for token, (first, last) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        # This token is from the template. Unknown tokens may be special too, but do not match the text.
        if token in special and special[token] in text[first:last]:
            ids += unmasked(text[begin:first], since)
            ids.append(token)
            begin = last
            since = []
        else:
            since.append(token)
    return ids + unmasked(text[begin:], since)


NOTHING = r"(?!)"  # a pattern that never matches
PRIVATE = range(0xF0000, 0xFFFFE)  # a Unicode private use area


def _private_characters(texts: Sequence[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Return an unused private character for each match of the pattern."""
    matches: set[str] = set()
    used: set[str] = set()
    for text in texts:
        matches.update(pattern.findall(text))
        used.update(text)
    unused = (chr(code) for code in PRIVATE if chr(code) not in used)
    return dict(zip(sorted(matches), unused, strict=False))


def plain_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Tokenize as plain text; a ValueError if the tokenizer cannot spell a special token."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    special, _ = _special_tokens(tokenizer)
    left = special.keys() & (set(ids) - {tokenizer.unk_token_id})
    if left:
        raise ValueError(f"{special[min(left)]} is a special token, and this tokenizer cannot spell it: remove it")
    return ids


@lru_cache(maxsize=4)
def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[dict[int, str], re.Pattern[str]]:
    tokens = {token: added.content for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    texts = sorted(filter(None, tokens.values()), key=len, reverse=True)
    alternatives = "|".join(map(re.escape, texts))
    return tokens, re.compile(alternatives or NOTHING)
