"""Workload of a job on a card, and the passes that an update is divided into."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from g2d.plain import say
from g2d.rewards.model import RewardModel

TO_FIT = (
    "set training.gradient_checkpointing: true, lower max_completion_length or, with vLLM, "
    "engine.training_gpu_memory_utilization, or use a card with more memory"
)

# Passes of an update have equal numbers of rows, rows of similar length, or whole groups.
Passes = Literal["equal", "by_length", "groups"]


@dataclass(frozen=True)
class ScoringLoad:
    """A reward model that a job loads at its first score, and keeps."""

    name: str
    model: RewardModel


@dataclass(frozen=True)
class SamplingLoad:
    name: str
    section: str
    budget: int  # most tokens per completion
    batch: int  # completions that transformers generates together
    samples: int
    completions: int | None  # per job; None if not configured
    scorers: tuple[ScoringLoad, ...] = ()


@dataclass(frozen=True)
class Training:
    budget: int  # most tokens per completion
    rows: int  # sequences per forward and backward pass
    per_row: int = 1  # 2 for a pair
    group_rows: int = 1  # sequences of a group that no pass divides
    reference: bool = False  # while the policy's activations are kept
    reference_model: bool = False  # a second model stays in memory even if its pass comes first
    adapters: int = 1  # 2 if the reference is not M0
    at_once: int | None = None  # completions that are generated together
    batch: int | None = None  # completions that transformers generates together
    own_copy: bool = False  # transformers generates from copies of M0
    completions: int | None = None
    group: int = 1
    update: int | None = None  # units per gradient step; None: `rows` is fixed
    passes: Passes = "equal"
    divisible: bool = True  # smaller passes have the same gradient; False: the loss has means over a pass
    checkpointing: bool = True  # one state per block is kept
    choose_checkpointing: bool = False  # fit on the card
    scorers: tuple[ScoringLoad, ...] = ()
    name: str = ""
    section: str = ""

    @property
    def units(self) -> int:
        return self.rows // self.per_row

    def with_units(self, units: int) -> Training:
        return replace(self, rows=units * self.per_row)

    def with_checkpointing(self, checkpointing: bool | Literal["auto"]) -> Training:
        """Apply `training.gradient_checkpointing`."""
        return replace(self, checkpointing=checkpointing is not False, choose_checkpointing=checkpointing == "auto")


@dataclass(frozen=True)
class MicroBatches:
    """Passes that make up an update. A resumed training keeps them."""

    rows: int  # a pair counts as one
    checkpointing: bool  # of activations
    tokens: int = 0  # most tokens per pass, with padding; 0: rows are not sorted by length
    shared_prompts: bool = False  # a pass reads each prompt once
    autocast: bool = False  # to bfloat16, on a CPU
    whole_logits: bool = False  # compute all logits of a pass together

    def with_rows(self, rows: int) -> MicroBatches:
        return replace(self, rows=rows, tokens=-(-self.tokens * rows // self.rows))

    @property
    def arguments(self) -> dict[str, bool]:
        return {"checkpointing": self.checkpointing, "autocast": self.autocast}

    @property
    def recorded(self) -> dict[str, object]:
        entries: dict[str, object] = {}
        if self.shared_prompts:
            entries["shared_prompts"] = True
        if self.autocast:
            entries["precision"] = "bfloat16"
        return entries


@dataclass
class PassLimit:
    """Most rows per pass of a training, lowered each time its card runs out of memory."""

    rows: int | None = None  # None: as chosen
    used: tuple[MicroBatches, Training] | None = None

    def within(self, chosen: MicroBatches, training: Training) -> MicroBatches:
        if self.rows is not None and chosen.rows > self.rows:
            chosen = chosen.with_rows(self.rows)
        self.used = chosen, training
        return chosen

    def halve(self) -> None:
        """Lower the limit to a divisor of the rows in use; a RuntimeError if their passes cannot be divided."""
        if self.used is None:
            raise RuntimeError(f"out of memory before the first pass: {TO_FIT}")
        chosen, training = self.used
        if not training.divisible:
            raise RuntimeError(
                f"out of memory with per_device_batch_size={chosen.rows}, and the loss has means over the tokens of a "
                f"pass: lower per_device_batch_size, which changes the result, {TO_FIT}"
            )
        smallest = max(1, training.group_rows // training.per_row)
        if chosen.rows <= smallest:
            unit = "row" if smallest == 1 else "group"
            raise RuntimeError(f"out of memory with one {unit} per pass: {TO_FIT}")
        rows = chosen.rows // 2
        while chosen.rows % rows:
            rows -= 1
        say(f"out of memory: per_device_batch_size {chosen.rows} -> {rows}; gradient steps stay the same")
        self.rows = rows
