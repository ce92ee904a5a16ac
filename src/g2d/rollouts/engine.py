"""The interface of engines, which generate completions, and the choice of an engine for a policy.

An engine renders conversations with the model's chat template and completes prompts; problems and verdicts are added by
`g2d.rollouts.draw`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from g2d.jobs.run_process import current_run
from g2d.policies.policy import Policy
from g2d.problems.prompts import Messages
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


class Engine(Protocol):
    """Generates completions of rendered prompts."""

    name: str

    def render(self, messages: Messages) -> str:
        """The exact text the policy continues."""

    def document(self, text: str) -> str:
        """A text as the beginning of a document, without a chat template."""

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """`samples_per_prompt` completions for every request, in order."""


def require_room(
    prompts: Sequence[Sequence[int]], names: Sequence[str], budget: int, *, model: str, limit: int | None
) -> None:
    """Check that every prompt leaves room for a completion.

    Args:
        prompts: tokens of each.
        names: of each in the message.
        budget: tokens of a completion, at most.
        model: name of the model.
        limit: of the tokens of a prompt and its completion; None where the model states none.

    Raises:
        ValueError: the longest prompt is too long; the message names it.
    """
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
                return SharedEngine(policy, settings, run, adapter_rank, longest)
        from g2d.rollouts.vllm_engine import VllmEngine

        return VllmEngine(policy, settings)
    from g2d.rollouts.transformers_engine import TransformersEngine

    return TransformersEngine.of(policy, cuda_graph=settings is not None and settings.cuda_graph)
