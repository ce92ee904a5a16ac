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
    """Train; whenever the GPU runs out of memory, go on with half the rows per pass from the newest checkpoint.

    Smaller passes have the same gradient. A RuntimeError if they cannot be divided further.
    """
    tokens_before = job.meter.tokens_generated
    while True:
        trained = unless_out_of_memory(partial(train, job))
        if trained is not None:
            return trained
        job.passes.halve()
        job.meter.tokens_generated = tokens_before  # a checkpoint has the count of its steps
