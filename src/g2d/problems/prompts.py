"""The messages around a problem. Training, harvest and evaluation all use `conversation` and the model's chat template,
so they show the same bytes (a test compares them)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import field_validator

from g2d.problems.problem import Problem
from g2d.settings import Section, key


class Prompt(Section):
    """What the policy is shown. The chat template itself comes from the model."""

    system: str | None = key(
        None,
        "System message; null sends none (Qwen's template then inserts its own).",
        paper="not printed in the paper",
    )
    template: str = key("{problem}", "User message; {problem} stands for the problem text.", paper="not printed")
    open_ended: str = key(
        "{problem}",
        "User message of an open-ended prompt, which is shown without the system message.",
        paper="{problem}, in arXiv 2506.21495",
        neutral="{problem}",
    )

    @field_validator("template", "open_ended")
    @classmethod
    def _has_placeholder(cls, template: str) -> str:
        if "{problem}" not in template:
            raise ValueError("the template never mentions {problem}: add it where the problem text belongs")
        return template


Messages = list[dict[str, str]]


def conversation(problem: Problem, prompt: Prompt) -> Messages:
    """The conversation that asks a problem; open-ended ones have a template of their own and no system message
    ("Bridging Offline and Online RL", arXiv 2506.21495, figures 4 and 5)."""
    if problem.kind == "open_ended":
        return [{"role": "user", "content": prompt.open_ended.replace("{problem}", problem.prompt)}]
    system: Messages = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
    return [*system, {"role": "user", "content": prompt.template.replace("{problem}", problem.prompt)}]


def document(tokenizer: Any, text: str) -> str:
    """A text as the beginning of a document: after the tokenizer's first token, if it adds one."""
    begins = tokenizer.bos_token_id is not None and tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]
    return f"{tokenizer.bos_token}{text}" if begins else text


def token_ids(tokenizer: Any, texts: Iterable[str]) -> list[list[int]]:
    """The tokens of texts, and nothing that the tokenizer would add."""
    found: list[list[int]] = tokenizer([*texts], add_special_tokens=False)["input_ids"]
    return found


def render(tokenizer: Any, conversation: Messages) -> str:
    """The conversation in the model's chat template, up to the assistant's turn."""
    return str(tokenizer.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False))
