"""Interface of engines: render conversations and complete prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from g2d.problems.prompts import Messages, conversation_ids, render, token_ids
from g2d.rollouts.rollout import FinishReason


@dataclass(frozen=True, slots=True)
class Decoding:
    """Decoding settings. `temperature` 0 is greedy, with one sample per prompt."""

    samples_per_prompt: int
    temperature: float
    top_p: float
    max_completion_length: int  # tokens
    batch_size: int  # completions that transformers generates together
    seed: int


@dataclass(frozen=True, slots=True)
class Request:
    problem_id: str
    prompt_text: str
    prompt_ids: tuple[int, ...] | None = None  # None: tokenize the text


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    token_count: int
    finish_reason: FinishReason
    # Includes the token that ended it; None if only text was recorded.
    prompt_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None


Drawn = tuple[list[int], FinishReason]  # (tokens of a completion, reason why it ended)


class Engine(Protocol):
    name: str

    def render(self, conversation: Messages) -> str:
        """Return the text to continue, in the chat template."""

    def request(self, problem_id: str, conversation: Messages) -> Request:
        """Build the request; special tokens inside the text are plain text."""

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """Generate `samples_per_prompt` completions for every request, in order."""


class ModelEngine:
    """Base class of engines that hold a model. `context` is the model's name and its longest sequence."""

    def __init__(self, tokenizer: Any, end_ids: Iterable[int], context: tuple[str, int | None]) -> None:
        self.tokenizer = tokenizer
        self.end_ids = frozenset(end_ids)
        self.context = context

    def render(self, conversation: Messages) -> str:
        return render(self.tokenizer, conversation)

    def request(self, problem_id: str, conversation: Messages) -> Request:
        """See `Engine`; a ValueError names a problem with a special token that the tokenizer cannot spell out."""
        try:
            ids = conversation_ids(self.tokenizer, conversation)
        except ValueError as error:
            raise ValueError(f"problem {problem_id}: {error}") from None
        return Request(problem_id, self.render(conversation), tuple(ids))

    def tokens_of(self, requests: Iterable[Request]) -> list[list[int]]:
        return [
            token_ids(self.tokenizer, [request.prompt_text])[0]
            if request.prompt_ids is None
            else list(request.prompt_ids)
            for request in requests
        ]

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """See `Engine`; a ValueError names a problem that does not fit the model with its completion."""
        if not requests:
            return []
        prompts = self.tokens_of(requests)
        names = [request.problem_id for request in requests]
        require_room(prompts, [f"problem {name}" for name in names], decoding.max_completion_length, self.context)
        return [
            [self._completion(tuple(prompt), *sample) for sample in samples]
            for prompt, samples in zip(prompts, self._samples(prompts, names, decoding), strict=True)
        ]

    def _samples(self, prompts: Sequence[Sequence[int]], names: Sequence[str], decoding: Decoding) -> list[list[Drawn]]:
        """Sample completions of every prompt; random numbers depend on the prompt's name."""
        raise NotImplementedError

    def _completion(self, prompt: tuple[int, ...], tokens: list[int], reason: FinishReason) -> Completion:
        shown = tokens[:-1] if reason == "stop" else tokens
        text = str(self.tokenizer.decode(shown, skip_special_tokens=True))
        return Completion(text, len(tokens), reason, prompt, tuple(tokens))


def require_room(
    prompts: Sequence[Sequence[int]], names: Sequence[str], budget: int, context: tuple[str, int | None]
) -> None:
    """Raise a ValueError that names the longest prompt if `budget` tokens do not fit after it."""
    model, limit = context
    longest = max(range(len(prompts)), key=lambda i: len(prompts[i]), default=None)
    if limit is not None and longest is not None and len(prompts[longest]) + budget > limit:
        raise ValueError(
            f"{names[longest]}: its {len(prompts[longest])} tokens and max_completion_length={budget} exceed the "
            f"{limit} that {model} can hold: lower max_completion_length or leave the problem out"
        )
