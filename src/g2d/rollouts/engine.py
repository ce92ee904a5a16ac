"""Engines, which render conversations and complete prompts, and the choice of an engine for a policy.

Problems and verdicts are added by `g2d.rollouts.draw`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from g2d.jobs.run_process import current_run
from g2d.policies.policy import Policy
from g2d.problems.prompts import Messages, document, prompt_ids, render, token_ids
from g2d.rollouts.rollout import FinishReason
from g2d.rollouts.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to decode. `temperature` 0 is greedy, with one sample per prompt."""

    samples_per_prompt: int
    temperature: float
    top_p: float
    max_completion_length: int  # tokens
    batch_size: int  # completions generated together by transformers
    seed: int
    token_budgets: tuple[int, ...] = ()  # also return the text of the first b tokens, for each of these b


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to complete; its random numbers depend on problem_id."""

    problem_id: str
    prompt_text: str
    prompt_ids: tuple[int, ...] | None = None  # its tokens; None: those of the text


@dataclass(frozen=True, slots=True)
class Completion:
    """One sample of an engine."""

    text: str
    token_count: int
    finish_reason: FinishReason
    prefixes: Mapping[int, str] = field(default_factory=dict)  # text at every token budget that cuts this completion
    # With the token that ended the completion; None where text alone was recorded.
    prompt_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None


Drawn = tuple[list[int], FinishReason]  # the tokens of a completion and why it ended


class Engine(Protocol):
    """Generates completions of rendered prompts."""

    name: str

    def render(self, shown: Messages | str) -> str:
        """The exact text that the policy continues: a conversation in the model's chat template, ready for the
        assistant's turn, or a text as the beginning of a document."""

    def request(self, problem_id: str, shown: Messages | str) -> Request:
        """The request to complete a conversation or a text, whose own special tokens are plain text."""

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """`samples_per_prompt` completions for every request, in order."""


class ModelEngine:
    """An engine that holds a model; `context` is its name in messages, and the most tokens that it can hold, None where
    it states none."""

    def __init__(self, tokenizer: Any, end_ids: Iterable[int], context: tuple[str, int | None]) -> None:
        self.tokenizer = tokenizer
        self.end_ids = frozenset(end_ids)
        self.context = context

    def render(self, shown: Messages | str) -> str:
        """As `Engine`."""
        return document(self.tokenizer, shown) if isinstance(shown, str) else render(self.tokenizer, shown)

    def request(self, problem_id: str, shown: Messages | str) -> Request:
        """As `Engine`; a ValueError names a problem with a special token that the tokenizer cannot spell."""
        try:
            ids = prompt_ids(self.tokenizer, shown)
        except ValueError as error:
            raise ValueError(f"problem {problem_id}: {error}") from None
        return Request(problem_id, self.render(shown), tuple(ids))

    def tokens_of(self, requests: Iterable[Request]) -> list[list[int]]:
        """The tokens of prompts."""
        return [
            token_ids(self.tokenizer, [request.prompt_text])[0]
            if request.prompt_ids is None
            else list(request.prompt_ids)
            for request in requests
        ]

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """As `Engine`; a ValueError names a problem that does not fit the model with its completion."""
        if not requests:
            return []
        prompts = self.tokens_of(requests)
        names = [request.problem_id for request in requests]
        require_room(prompts, [f"problem {name}" for name in names], decoding.max_completion_length, self.context)
        return [
            [self._completion(tuple(prompt), *sample, decoding) for sample in samples]
            for prompt, samples in zip(prompts, self._samples(prompts, names, decoding), strict=True)
        ]

    def _samples(self, prompts: Sequence[Sequence[int]], names: Sequence[str], decoding: Decoding) -> list[list[Drawn]]:
        """The samples of every prompt; their random numbers belong to its name."""
        raise NotImplementedError

    def _completion(
        self, prompt: tuple[int, ...], tokens: list[int], reason: FinishReason, decoding: Decoding
    ) -> Completion:
        def text(part: list[int]) -> str:
            return str(self.tokenizer.decode(part, skip_special_tokens=True))

        # No token depends on the budget, so a completion at a smaller one is the beginning of this one.
        cut = {budget: text(tokens[:budget]) for budget in decoding.token_budgets if budget < len(tokens)}
        whole = text(tokens[:-1] if reason == "stop" else tokens)
        # The end-of-turn token was generated too, so it counts.
        return Completion(whole, len(tokens), reason, cut, prompt, tuple(tokens))


def require_room(
    prompts: Sequence[Sequence[int]], names: Sequence[str], budget: int, context: tuple[str, int | None]
) -> None:
    """Raise a ValueError that names the longest prompt where it leaves no room for a completion of `budget` tokens.

    Args:
        names: of the prompts, in the message.
        context: as of `ModelEngine`.
    """
    model, limit = context
    longest = max(range(len(prompts)), key=lambda i: len(prompts[i]), default=None)
    if limit is not None and longest is not None and len(prompts[longest]) + budget > limit:
        raise ValueError(
            f"{names[longest]}: its {len(prompts[longest])} tokens and max_completion_length={budget} exceed the "
            f"{limit} that {model} can hold: lower max_completion_length or leave the problem out"
        )


def engine_for(
    policy: Policy, settings: EngineSettings | None = None, *, adapter_rank: int | None = None, longest: int = 0
) -> Engine:
    """The engine of a policy: a replay of recorded completions, or the configured one.

    Args:
        adapter_rank: of all adapters of this M0; None where it has none.
        longest: completion that any job of this M0 draws, in tokens. Both are for an engine that its jobs share.
    """
    if policy.is_recorded:
        from g2d.rollouts.replay_engine import ReplayEngine

        return ReplayEngine(policy.base)
    if settings is not None and settings.name == "vllm":
        if settings.keep_alive:
            from g2d.rollouts.engine_host import SharedEngine

            if (run := current_run()) is not None:
                return cast(Engine, SharedEngine(run, policy, settings, adapter_rank, longest))
        from g2d.rollouts.vllm_engine import VllmEngine

        return VllmEngine(policy, settings)
    from g2d.rollouts.transformers_engine import TransformersEngine

    return TransformersEngine.of(policy, cuda_graph=settings is not None and settings.cuda_graph)
