"""What a policy is shown: the messages around a problem. Training, harvest and evaluation all call `messages`, and
the chat template of the model turns them into the same bytes everywhere (a test compares them)."""

from __future__ import annotations

from typing import Any

from g2d.config import Prompt

Messages = list[dict[str, str]]


def messages(problem_text: str, prompt: Prompt) -> Messages:
    """The conversation that asks for a solution: an optional system message and one user message."""
    asked: Messages = [{"role": "user", "content": prompt.template.replace("{problem}", problem_text)}]
    if prompt.system is not None:
        asked.insert(0, {"role": "system", "content": prompt.system})
    return asked


def render(tokenizer: Any, conversation: Messages) -> str:
    """The conversation in the model's chat template, up to where the assistant's turn begins."""
    return str(tokenizer.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False))
