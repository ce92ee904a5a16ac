"""What a job does on a card: how many sequences at once, of how many tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

# All have as many rows; or, where the card divides an update, as many rows of alike lengths as have room; or so many
# whole groups, which the trainer itself deals to them.
Passes = Literal["equal", "by_length", "groups"]


@dataclass(frozen=True)
class Drawing:
    """Completions from a frozen policy: calibration, harvest, evaluation, drift."""

    name: str
    section: str  # of the configuration
    budget: int  # tokens of a completion, at most
    batch: int  # completions at once, with transformers
    samples: int  # completions of a prompt
    completions: int | None  # of one job; None where the number of problems is not configured
    compared: bool = False  # drawn by transformers, then read by the policy and by M0 beside it


@dataclass(frozen=True)
class Training:
    """Gradient steps of one policy."""

    budget: int  # tokens of a completion, at most
    rows: int  # sequences of a forward and backward pass
    per_row: int = 1  # sequences that one unit of per_device_batch_size brings: 2 for a pair
    reference: bool = False  # its pass runs while the policy's activations are kept
    reference_model: bool = False  # without an adapter a second model is in memory, also where its pass comes before
    teacher: float | None = None  # parameters of a frozen model beside; 0: as many as M0's; None: there is none
    adapters: int = 1  # in memory: 2 where the reference is not M0
    at_once: int | None = None  # completions that one process draws at once; None: it draws none
    batch: int | None = None  # of these, how many transformers generates together
    own_copy: bool = False  # transformers generates from copies of M0 beside the trainer's
    completions: int | None = None  # the most that one run generates
    group: int = 1  # completions of a prompt, of GRPO
    float32_head: bool = False  # the head has float32 weights of its own
    parts: int = 1  # processes that the model is divided among
    update: int | None = None  # units of a gradient step, which the card divides into passes; None: `rows` is given
    passes: Passes = "equal"  # of an update
    checkpointing: bool = True  # of activations, one state a block is kept, and the block is run again backwards
    choose_checkpointing: bool = False  # the card decides that
    name: str = ""
    section: str = ""  # of the configuration

    @property
    def units(self) -> int:
        """The value of per_device_batch_size."""
        return self.rows // self.per_row

    def with_units(self, units: int) -> Training:
        """The same with other passes."""
        return replace(self, rows=units * self.per_row)

    def shared(self, processes: int, strategy: str, checkpointing: bool | Literal["auto"]) -> Training:
        """What one of several processes does of it, with `training.gradient_checkpointing`."""
        return replace(
            self,
            checkpointing=checkpointing is not False,
            choose_checkpointing=checkpointing == "auto",
            parts=processes if strategy == "fsdp" else 1,
            at_once=largest_part(self.at_once, processes),
            batch=largest_part(self.batch, processes),
            update=largest_part(self.update, processes),
        )


def largest_part(total: int | None, n: int) -> int | None:
    """What one of n processes does of something that all do together, at most; None stays None."""
    return None if total is None else -(-total // n)
