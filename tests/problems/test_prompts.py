"""Rendered prompts; `tests/policies/test_pretrained.py` has those of published chat templates."""

from __future__ import annotations

from typing import Any

import pytest

from g2d.problems.prompts import opens_thinking


def tokenizer_with(end_of_thinking: str, *, special: bool) -> Any:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({"[UNK]": 0, "So": 1}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.add_tokens([AddedToken(end_of_thinking, special=special)])
    return PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]")


@pytest.mark.parametrize(
    ("prompt", "end", "special", "opens"),
    [
        ("So<think>\n", "</think>", False, True),
        ("So<think>\n\n</think>\n\n", "</think>", False, False),  # thinking is switched off
        ("So", "</think>", False, False),
        ("So<think>\n", "</think>", True, False),  # decoding leaves it out, so nobody sees that thinking ended
        ("So<think>\n", "</thought>", False, False),  # the model cannot write it
    ],
)
def test_a_prompt_opens_thinking_if_completions_can_close_it(prompt: str, end: str, special: bool, opens: bool) -> None:
    assert opens_thinking(tokenizer_with(end, special=special), prompt) is opens
