"""Workload of a job on a card, and the passes that an update is divided into."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

# Passes of an update have equal numbers of rows, rows of similar length, or whole groups.
Passes = Literal["equal", "by_length", "groups"]


@dataclass(frozen=True)
class SamplingLoad:
    name: str
    section: str
    budget: int  # most tokens per completion
    batch: int  # completions that transformers generates together
    samples: int
    completions: int | None  # per job; None if not configured


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
    checkpointing: bool = True  # one state per block is kept
    choose_checkpointing: bool = False  # fit on the card
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
