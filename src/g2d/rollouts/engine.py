"""Interface of engines: an engine completes prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from g2d.problems.prompts import Messages, conversation_ids, opens_thinking, render
from g2d.rollouts.rollout import FinishReason
from g2d.rollouts.weights_check import Reference

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
    prompt_ids: tuple[int, ...]
    in_thinking: bool = False  # see `opens_thinking`


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    token_count: int
    finish_reason: FinishReason
    token_ids: tuple[int, ...]  # including the token that ended it


Sampled = tuple[list[int], FinishReason]  # (tokens of a completion, reason why it ended)


class Engine(Protocol):
    name: str

    def request(self, problem_id: str, conversation: Messages) -> Request:
        """Build the request; special tokens inside the text are plain text."""

    def expect(self, requests: Sequence[Request], max_completion_length: int) -> None:
        """Announce requests that follow in parts, so that the engine has room for all of them from the start."""

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """Generate `samples_per_prompt` completions for every request, in order."""

    def compare(self, name: str, reference: Reference) -> None:
        """Raise a WrongWeightsError if the engine does not answer like the policy `name` in `reference`."""


class ModelEngine:
    """Base class of engines that hold a model. `context` is the model's name and its longest sequence."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, end_ids: Iterable[int], context: tuple[str, int | None]
    ) -> None:
        self.tokenizer = tokenizer
        self.end_ids = frozenset(end_ids)
        self.context = context

    def request(self, problem_id: str, conversation: Messages) -> Request:
        """See `Engine`; a ValueError names a problem with a special token that the tokenizer cannot spell out."""
        try:
            ids = conversation_ids(self.tokenizer, conversation)
        except ValueError as error:
            raise ValueError(f"problem {problem_id}: {error}") from None
        text = render(self.tokenizer, conversation)
        return Request(problem_id, text, tuple(ids), opens_thinking(self.tokenizer, text))

    def expect(self, requests: Sequence[Request], max_completion_length: int) -> None:
        """See `Engine`; a model in this process has room for any."""

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """See `Engine`; a ValueError names a problem that does not fit the model with its completion."""
        if not requests:
            return []
        prompts = [request.prompt_ids for request in requests]
        names = [request.problem_id for request in requests]
        require_room(prompts, [f"problem {name}" for name in names], decoding.max_completion_length, self.context)
        completions: list[list[Completion]] = []
        for samples in self._samples(prompts, names, decoding):
            completions.append([self._completion(tokens, reason) for tokens, reason in samples])
        return completions

    def _samples(
        self, prompts: Sequence[Sequence[int]], names: Sequence[str], decoding: Decoding
    ) -> list[list[Sampled]]:
        """Sample completions of every prompt; random numbers depend on the prompt's name."""
        raise NotImplementedError

    def _completion(self, tokens: list[int], reason: FinishReason) -> Completion:
        shown = tokens[:-1] if reason == "stop" else tokens
        text = str(self.tokenizer.decode(shown, skip_special_tokens=True))
        return Completion(text, len(tokens), reason, tuple(tokens))


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
