"""Training with smaller passes after the GPU ran out of memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from g2d.regimes.common.regime import Trained, TrainingJob
from g2d.rollouts.free_memory import unless_out_of_memory

Settings = TypeVar("Settings")
Data = TypeVar("Data")


def train_within_memory(
    train: Callable[[TrainingJob[Settings, Data]], Trained], job: TrainingJob[Settings, Data]
) -> Trained:
    """Train, and resume from the newest checkpoint with half the rows per pass each time the GPU runs out of memory.

    The gradient steps stay the same. Raises a RuntimeError if the passes cannot be divided further.
    """
    tokens_before = job.meter.tokens_generated
    while True:
        trained = unless_out_of_memory(partial(train, job))
        if trained is not None:
            return trained
        job.passes.halve()
        job.meter.tokens_generated = tokens_before  # a checkpoint adds the tokens of its steps
