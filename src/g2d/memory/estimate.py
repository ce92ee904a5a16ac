"""GPU memory that a job needs, as a sum of named terms."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from g2d.memory.workload import SamplingLoad, ScoringLoad, Training
from g2d.policies.model_keys import Lora
from g2d.rollouts.free_memory import GIB
from g2d.rollouts.rollout_keys import SEQUENCES, EngineSettings

if TYPE_CHECKING:  # both import torch
    from g2d.memory.passes import Counted, ModelShape, PassMemory

CONTEXT = GIB  # assumed: CUDA context, kernels and their workspaces
ROOMY = 0.9  # share of the card; torch's allocator leaves gaps
VLLM = "vLLM"
GRAPHS = GIB // 2  # assumed
DOUBT = 14  # per cent: peaks on one H100 differed by 1 to 14 % (docs/performance.md)
SAMPLER = 3  # float32 copies of a step's logits in vLLM


@dataclass(frozen=True)
class Term:
    name: str
    bytes: int
    how: str
    of_reward: bool = False  # whether a reward model needs it


@dataclass(frozen=True)
class MemoryEstimate:
    job: str
    terms: list[Term]
    card: int
    notes: list[str] = field(default_factory=list)  # notes on vLLM's cache
    needs_more: bool = False  # vLLM's share cannot hold one sequence

    @property
    def total(self) -> int:
        return sum(term.bytes for term in self.terms)

    @property
    def verdict(self) -> str:
        if self.needs_more or self.total > self.card:
            return "does not fit"
        if self.total > ROOMY * self.card:
            return "tight"
        return "fits"

    def has_room(self, free: int) -> bool:
        """Return whether `free` bytes suffice even if the forecast, except vLLM's share, is too low by `DOUBT`."""
        sure = sum(term.bytes for term in self.terms if term.name == VLLM)
        return not self.needs_more and (100 + DOUBT) * (self.total - sure) <= 100 * (free - sure)


@dataclass(frozen=True)
class Forecast:
    """Memory of the jobs of one model on one card.

    Args:
        of_rewards: config.json of reward models that are elsewhere, by name.
    """

    shape: ModelShape
    counted: Counted
    engine: EngineSettings
    memory: int
    prompt_tokens: int
    of_rewards: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        file: Path,
        lora: Lora,
        engine: EngineSettings,
        memory: int,
        prompt_tokens: int,
        of_rewards: Mapping[str, Path] | None = None,
    ) -> Forecast:
        """Forecast from a model's config.json; raises the errors of `model_config`."""
        from g2d.memory.passes import Counted, model_config, model_shape

        config = model_config(file)
        counted = Counted(config, lora)
        return cls(model_shape(config, lora), counted, engine, memory, prompt_tokens, of_rewards or {})

    def training(self, training: Training) -> MemoryEstimate:
        shape = self.shape
        rows = max(training.rows, training.group_rows)
        training = replace(training, rows=rows)
        tokens = self.prompt_tokens + training.budget
        of_pass = self.counted.training(rows, tokens, training.checkpointing)
        peak = self._largest_peak(training, of_pass)
        held = of_pass.kept + peak.bytes
        blocks = "checkpointed blocks" if training.checkpointing else "blocks"
        terms = [
            *self._lasting(training),
            Term("activations kept", of_pass.kept, f"{rows} x {tokens} tokens, {shape.blocks} {blocks}"),
            peak,
        ]
        notes = []
        needs_more = False
        if training.at_once is not None and self.engine.name == "vllm":
            share = self.engine.training_gpu_memory_utilization
            cache = self._vllm_cache(share, training.budget, most_sequences=training.at_once)
            terms.append(Term(VLLM, int(share * self.memory), f"{share:g} of the card"))
            needs_more = cache.sequences < 1
            notes.append(cache.words("engine.training_gpu_memory_utilization"))
        elif training.batch is not None:
            if training.own_copy:
                terms.append(Term("M0 to generate", 4 * shape.parameters, "as it is and as it was handed over"))
            generation = self.counted.sampling(training.batch, tokens).peak
            if generation > held:  # activations are freed before generation
                how = f"keys and values of {training.batch} x {tokens} tokens"
                terms.append(Term("generation, beyond these", generation - held, how))
        adam = 4 * shape.parameters
        if shape.trains_all and adam > held:
            how = f"{shape.parameters:,} x 4 bytes: its intermediates"
            terms.append(Term("AdamW's step, beyond these", adam - held, how))
        terms += self._scorers(training.scorers, tokens, held)
        terms.append(Term("context and kernels", CONTEXT, "assumed"))
        return MemoryEstimate(training.name, terms, self.memory, notes, needs_more)

    def _scorers(self, scorers: Sequence[ScoringLoad], tokens: int, held: int) -> Iterator[Term]:
        """Yield the weights of reward models, and their passes beyond `held` bytes that are free while they score."""
        for scorer in scorers:
            file = self.of_rewards.get(scorer.name)
            parameters, counted, limit = _reward_model(scorer, file)
            yield replace(_numbers(f"reward model {scorer.name}", parameters, 2), of_reward=True)
            rows = scorer.model.batch_size
            length = min(tokens, limit)
            peak = counted.scoring(rows, length).peak
            if peak > held:
                how = f"{rows} x {length} tokens"
                yield Term(f"scoring by {scorer.name}, beyond these", peak - held, how, of_reward=True)

    def _largest_peak(self, training: Training, of_pass: PassMemory) -> Term:
        """Return the largest memory that is only needed for a moment, beside the activations kept."""
        block = "one block, run again backwards" if training.checkpointing else "one block backwards"
        peaks = {
            block: of_pass.peak - of_pass.kept,
            "tiles of the logits": self.counted.head(training.rows * training.budget),
        }
        if training.reference:
            tokens = self.prompt_tokens + training.budget
            peaks["the reference's pass"] = self.counted.reading(training.rows, tokens).peak
        largest = max(peaks, key=peaks.__getitem__)
        return Term("largest peak", peaks[largest], largest)

    def _lasting(self, training: Training) -> list[Term]:
        """M0 is in bfloat16 if it has an adapter; else all weights and the reference are in float32."""
        shape = self.shape
        if shape.trains_all:
            terms = [_numbers("weights, gradients, Adam", shape.parameters, 16)]
            if training.reference or training.reference_model:
                terms.append(_numbers("reference", shape.parameters, 4))
            return terms
        state = 16 + 4 * (training.adapters - 1)
        each = "16 bytes" if training.adapters == 1 else "(16 + 4 of the reference) bytes"
        return [
            _numbers("weights", shape.parameters, 2),
            Term("adapter, gradient, Adam", state * shape.adapter, f"{shape.adapter:,} x {each}"),
        ]

    def sampling(self, load: SamplingLoad) -> MemoryEstimate:
        if self.engine.name == "vllm":
            share = self.engine.gpu_memory_utilization
            cache = self._vllm_cache(share, load.budget, split=self.engine.tensor_parallel_size)
            terms = [*cache.terms, Term("keys and values", cache.bytes, f"the rest of {share:g} of the card")]
            terms += self._scorers(load.scorers, self.prompt_tokens + load.budget, held=0)
            notes = [cache.words("engine.gpu_memory_utilization")]
            return MemoryEstimate(load.name, terms, self.memory, notes, cache.sequences < 1)
        tokens = self.prompt_tokens + load.budget
        generation = self.counted.sampling(load.batch, tokens)
        step = generation.peak - generation.kept
        prompts = -(-load.batch // load.samples)
        read = self.counted.reading(prompts, self.prompt_tokens, adapted=False).peak
        how = f"{load.batch} x {tokens} tokens x {2 * self.shape.cache_per_token:,} bytes"
        largest = max(step, read)
        terms = [
            *self._policy(4),
            Term("keys and values", generation.kept, how),
            Term("largest peak", largest, "one token of all rows, or their prompts"),
            *self._scorers(load.scorers, tokens, held=generation.kept + largest),
            Term("context and kernels", CONTEXT, "assumed"),
        ]
        return MemoryEstimate(load.name, terms, self.memory)

    def _policy(self, of_adapter: int, split: int = 1) -> list[Term]:
        terms = [_numbers("weights", self.shape.parameters, 2, split)]
        if not self.shape.trains_all:
            terms.append(_numbers("adapter", self.shape.adapter, of_adapter, split))
        return terms

    def _vllm_cache(self, share: float, budget: int, *, split: int = 1, most_sequences: int | None = None) -> VllmCache:
        length = self.prompt_tokens + budget
        # `EngineArgs.get_batch_defaults` of vLLM 0.31, offline; an 80 GB A100 has the smaller values.
        if self.memory >= 70 * GIB:
            sequences = 1024
            batched = 16384
        else:
            sequences = SEQUENCES
            batched = 8192
        if most_sequences is not None and most_sequences < SEQUENCES:
            sequences = most_sequences
        read = self.counted.reading(-(-batched // length), length, adapted=False).peak // split
        vocabulary = self.shape.vocabulary
        terms = [
            *self._policy(2, split),
            Term("largest step", read, f"{batched:,} tokens read at once"),
            Term(
                "sampler", SAMPLER * 4 * sequences * vocabulary, f"{sequences} x {vocabulary:,} x 4 bytes x {SAMPLER}"
            ),
            Term("CUDA graphs", GRAPHS, "assumed"),
        ]
        rest = int(share * self.memory) - sum(term.bytes for term in terms)
        return VllmCache(terms, max(rest, 0), 2 * self.shape.cache_per_token // split, length, sequences)

    def divided(self, training: Training, free: int | None = None) -> Training:
        """Choose the most rows that fit into `free` bytes, then turn checkpointing off if activations fit."""
        if free is None:
            free = self.memory
        if training.update is not None:
            training = training.with_units(self._most_units(training, training.update, free))
        if training.choose_checkpointing:
            without = replace(training, checkpointing=False)
            if self.training(without).has_room(free):
                return without
        return training

    def _most_units(self, training: Training, update: int, free: int) -> int:
        """Return the most units of an update that fit, by bisection; the fewest if none fit."""

        def needs_more(units: int) -> bool:
            return not self.training(training.with_units(units)).has_room(free)

        if not needs_more(update):
            return update
        choices = [n for n in range(1, update + 1) if update % n == 0 or training.passes != "equal"]
        first_without = bisect_left(choices, True, key=needs_more)
        return choices[max(first_without - 1, 0)]


@cache
def _reward_model(scorer: ScoringLoad, file: Path | None) -> tuple[int, Counted, int]:
    """Return a reward model's parameters, its passes, and the tokens that it reads at most."""
    import torch

    from g2d.memory.passes import Counted, model_config, reward_config_file, skeleton

    config = model_config(file or reward_config_file(scorer.name, scorer.model))
    model = skeleton(config, None, dtype=torch.bfloat16, scores=True)
    limit = getattr(config.get_text_config(), "max_position_embeddings", None) or sys.maxsize
    return model.num_parameters(), Counted(config, Lora()), min(limit, scorer.model.max_length or limit)


def _numbers(name: str, count: int, size: int, cards: int = 1) -> Term:
    among = f" / {cards}" if cards > 1 else ""
    return Term(name, size * count // cards, f"{count:,} x {size} bytes{among}")


@dataclass(frozen=True)
class VllmCache:
    terms: list[Term]
    bytes: int
    per_token: int
    length: int  # tokens of a prompt and its completion
    wanted: int  # sequences it would run concurrently

    @property
    def sequences(self) -> int:
        return self.bytes // (self.per_token * self.length)

    def words(self, key: str) -> str:
        words = (
            f"vLLM's cache: {self.bytes / GIB:.1f} GiB / {self.per_token:,} bytes = {self.bytes // self.per_token:,} "
            f"tokens, {self.sequences:,} sequences of {self.length}"
        )
        if self.sequences < 1:
            return f"{words}: {key} is too small for this card"
        if self.sequences < self.wanted:
            return f"{words} of {self.wanted} side by side if all are that long; the others wait"
        return f"{words}; {self.wanted} side by side are all it would run"
