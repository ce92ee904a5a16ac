"""Completions from `transformers.generate`: batched by prompt length, with a KV cache, on whatever device there is.

Sampling draws every token by inverse transform from a random stream that belongs to the rollout (seed, problem,
sample), not to the batch. So a rollout does not depend on which other prompts share its batch, its shard or its job,
which a call to `do_sample=True` cannot offer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from g2d.policies.policy import Policy, load_model, load_tokenizer
from g2d.prompts import Messages, render
from g2d.rollouts.engine import Completion, Decoding, Request

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class TransformersEngine:
    """Generates with a model held in this process."""

    name = "transformers"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model: Any = model  # transformers' own annotations deny that a model can generate
        self.tokenizer = tokenizer
        self.tokenizer.padding_side = "left"
        ends = model.generation_config.eos_token_id
        self.end_ids = frozenset(ends if isinstance(ends, list) else [ends]) | {tokenizer.eos_token_id}

    @classmethod
    def of(cls, policy: Policy) -> TransformersEngine:
        """Load a policy's weights and tokenizer."""
        return cls(load_model(policy), load_tokenizer(policy))

    def render(self, messages: Messages) -> str:
        """The conversation in the model's chat template, ready for the assistant's turn."""
        return render(self.tokenizer, messages)

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """Complete every request; neighbours in a batch have prompts of similar length."""
        if not requests:
            return []
        n = decoding.samples_per_prompt
        prompts = self.tokenizer([request.prompt_text for request in requests], add_special_tokens=False)["input_ids"]
        jobs = sorted(((i, j) for i in range(len(requests)) for j in range(n)), key=lambda job: len(prompts[job[0]]))
        completions: dict[tuple[int, int], Completion] = {}
        for start in range(0, len(jobs), decoding.batch_size):
            batch = jobs[start : start + decoding.batch_size]
            streams = [random_stream(decoding, requests[i].problem_id, j) for i, j in batch]
            texts = self._complete([prompts[i] for i, _ in batch], streams, decoding)
            completions.update(zip(batch, texts, strict=True))
        return [[completions[i, j] for j in range(n)] for i in range(len(requests))]

    @torch.inference_mode()
    def _complete(self, prompts: list[list[int]], streams: list[np.ndarray], decoding: Decoding) -> list[Completion]:
        encoded = self.tokenizer.pad({"input_ids": prompts}, return_tensors="pt").to(self.model.device)
        processors: list[Any] = []
        if decoding.temperature > 0:
            width = encoded["input_ids"].shape[1]
            processors.append(InverseTransformSampler(np.stack(streams), width, decoding.temperature, decoding.top_p))
        generated = self.model.generate(
            **encoded,
            do_sample=False,  # the sampler above leaves one candidate
            temperature=None,
            top_p=None,
            top_k=None,
            logits_processor=processors,
            max_new_tokens=decoding.max_completion_length,
            eos_token_id=sorted(self.end_ids),
            pad_token_id=self.tokenizer.pad_token_id,
        )
        return [self._completion(row) for row in generated[:, encoded["input_ids"].shape[1] :].tolist()]

    def _completion(self, tokens: list[int]) -> Completion:
        end = next((i for i, token in enumerate(tokens) if token in self.end_ids), None)
        kept = tokens if end is None else tokens[:end]
        text = str(self.tokenizer.decode(kept, skip_special_tokens=True))
        # The end-of-turn token was generated too, so it counts.
        return Completion(text, len(kept) + (end is not None), "length" if end is None else "stop")


def random_stream(decoding: Decoding, problem_id: str, sample: int) -> np.ndarray:
    """Uniform numbers for the tokens of one rollout, shape (max_completion_length,); empty when greedy."""
    if decoding.temperature == 0:
        return np.empty(0)
    digest = hashlib.sha256(f"{decoding.seed}/{problem_id}/{sample}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "big")))
    return generator.random(decoding.max_completion_length)


class InverseTransformSampler:
    """A logits processor that keeps one token per row: the one at quantile u of its (nucleus) distribution."""

    def __init__(self, uniforms: np.ndarray, prompt_width: int, temperature: float, top_p: float) -> None:
        self.uniforms = torch.from_numpy(uniforms)  # (batch, max_completion_length), float64
        self.prompt_width = prompt_width
        self.temperature = temperature
        self.top_p = top_p

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores (batch, vocabulary) with -inf everywhere but at the sampled token."""
        probabilities = torch.softmax(scores.double() / self.temperature, dim=-1)
        # Most likely first: the nucleus is then a prefix, and the draw is independent of the vocabulary's order.
        ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
        cumulative = ordered.cumsum(dim=-1)
        inside = cumulative - ordered < self.top_p
        mass = torch.where(inside, ordered, 0.0).sum(dim=-1, keepdim=True)
        u = self.uniforms[:, input_ids.shape[1] - self.prompt_width].to(scores.device).unsqueeze(-1)
        rank = (cumulative <= u * mass).sum(dim=-1, keepdim=True)
        rank = torch.minimum(rank, inside.sum(dim=-1, keepdim=True) - 1)
        chosen = tokens.gather(-1, rank)
        return torch.full_like(scores, -torch.inf).scatter_(-1, chosen, 0.0)
