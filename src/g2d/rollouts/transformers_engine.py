"""Completions from a transformers model in this process, on a GPU or a CPU.

`continuous_batching` decodes models that only cache keys and values; others use their `generate`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import GenerationConfig

from g2d.plain import say
from g2d.policies.record import PolicyRecord, end_tokens, load_model, load_tokenizer
from g2d.rollouts.continuous_batching import ContinuousBatch, Sample, is_supported
from g2d.rollouts.engine import Decoding, ModelEngine, Sampled
from g2d.rollouts.free_memory import unless_out_of_memory
from g2d.rollouts.sampling import choose_tokens, random_stream
from g2d.rollouts.weights_check import Reference, fixed_texts, log_probabilities, require_adapter, require_same

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


Stream = Callable[[Sample], np.ndarray]  # uniform numbers for the tokens of a sample


class TransformersEngine(ModelEngine):
    """Generates with a model in this process."""

    name = "transformers"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, end_ids: Collection[int]) -> None:
        self.model: Any = model  # transformers' annotations lack `generate`
        limit = getattr(self.model.config.get_text_config(decoder=True), "max_position_embeddings", None)
        super().__init__(tokenizer, end_ids, (self.model.name_or_path, limit))
        self.tokenizer.padding_side = "left"
        self.largest_batch = sys.maxsize  # completions that fit into the GPU's memory, as far as is known
        # Ignore the model's defaults, such as a repetition penalty.
        self.model.generation_config = GenerationConfig()

    @classmethod
    def of(cls, policy: PolicyRecord) -> TransformersEngine:
        tokenizer = load_tokenizer(policy)
        model = load_model(policy)
        require_adapter(model, policy)
        return cls(model, tokenizer, end_tokens(policy, tokenizer))

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    def compare(self, name: str, reference: Reference) -> None:
        """See `VllmEngine`."""
        require_same(name, self, log_probabilities(self.model, fixed_texts(self.tokenizer)), reference)

    def _samples(
        self, prompts: Sequence[Sequence[int]], names: Sequence[str], decoding: Decoding
    ) -> list[list[Sampled]]:
        # Longest prompts first, so that a lack of memory shows early.
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]), reverse=True)
        samples: list[Sample] = []
        for i in order:
            samples += [(i, j) for j in range(decoding.samples_per_prompt)]
        drawn = self._drawn(prompts, decoding, lambda at: random_stream(decoding, names[at[0]], at[1]), samples)
        by_prompt: list[list[Sampled]] = []
        for i in range(len(prompts)):
            by_prompt.append([self._with_reason(drawn[i, j]) for j in range(decoding.samples_per_prompt)])
        return by_prompt

    def _with_reason(self, tokens: list[int]) -> Sampled:
        return tokens, "stop" if tokens[-1] in self.end_ids else "length"

    def sample(self, prompts: Sequence[Sequence[int]], names: Sequence[str], decoding: Decoding) -> list[list[int]]:
        """Sample a completion per tokenized prompt, as `VllmEngine.sample`, without log-probabilities."""
        first_of: dict[tuple[int, ...], int] = {}  # equal prompts are read once
        samples: list[Sample] = []
        for place, prompt in enumerate(prompts):
            first = first_of.setdefault(tuple(prompt), place)
            samples.append((first, place))
        drawn = self._drawn(prompts, decoding, lambda at: random_stream(decoding, names[at[1]], 0), samples)
        return [drawn[sample] for sample in samples]

    def _drawn(
        self, prompts: Sequence[Sequence[int]], decoding: Decoding, stream: Stream, samples: Sequence[Sample]
    ) -> dict[Sample, list[int]]:
        """Return the tokens of every sample, from smaller batches whenever the GPU runs out of memory."""
        drawn: dict[Sample, list[int]] = {}
        while True:
            left = [sample for sample in samples if sample not in drawn]
            fitting = replace(decoding, batch_size=min(decoding.batch_size, self.largest_batch))
            if unless_out_of_memory(partial(self._draw, prompts, fitting, stream, left, drawn)) is not None:
                return drawn
            self._halve(min(fitting.batch_size, len(left)))

    def _halve(self, batch_size: int) -> None:
        if batch_size == 1:
            raise RuntimeError(
                "out of memory with one completion at a time: lower max_completion_length, or use a card with more "
                "memory"
            )
        self.largest_batch = batch_size // 2
        say(f"out of memory: batch_size {batch_size} -> {self.largest_batch}; rollouts stay the same")

    def _draw(
        self,
        prompts: Sequence[Sequence[int]],
        decoding: Decoding,
        stream: Stream,
        samples: Sequence[Sample],
        drawn: dict[Sample, list[int]],
    ) -> dict[Sample, list[int]]:
        """Add the tokens of samples to `drawn` as they are completed, and return it."""
        with torch.inference_mode():
            if is_supported(self.model):
                ContinuousBatch(self.model, prompts, decoding, stream, self.end_ids, drawn).complete(samples)
                return drawn
            for start in range(0, len(samples), decoding.batch_size):
                self._generate(prompts, decoding, stream, samples[start : start + decoding.batch_size], drawn)
        return drawn

    def _generate(
        self,
        prompts: Sequence[Sequence[int]],
        decoding: Decoding,
        stream: Stream,
        samples: Sequence[Sample],
        drawn: dict[Sample, list[int]],
    ) -> None:
        """Add the tokens of a batch to `drawn`, by the model's `generate`."""
        rows = [list(prompts[i]) for i, _ in samples]
        encoded = self.tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        width = encoded["input_ids"].shape[1]
        uniforms = torch.from_numpy(np.stack([stream(sample) for sample in samples])).to(self.model.device)
        generated = self.model.generate(
            **encoded.to(self.model.device),
            do_sample=False,  # the processor leaves one candidate
            logits_processor=[partial(only_the_chosen, uniforms=uniforms, width=width, decoding=decoding)],
            max_new_tokens=decoding.max_completion_length,
            eos_token_id=sorted(self.end_ids),
            pad_token_id=self.tokenizer.pad_token_id,
        )
        for sample, tokens in zip(samples, generated[:, width:].tolist(), strict=True):
            end = next((i for i, token in enumerate(tokens) if token in self.end_ids), len(tokens) - 1)
            drawn[sample] = tokens[: end + 1]


def only_the_chosen(
    tokens: torch.Tensor, logits: torch.Tensor, *, uniforms: torch.Tensor, width: int, decoding: Decoding
) -> torch.Tensor:
    """Logits processor that leaves only the token from `choose_tokens`; prompts are padded to `width`."""
    at = uniforms[:, tokens.shape[1] - width]
    chosen = choose_tokens(logits, at, decoding.temperature, decoding.top_p)
    return torch.full_like(logits, -torch.inf).scatter_(-1, chosen.unsqueeze(-1), 0.0)
