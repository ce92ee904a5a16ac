"""How many rows a pass of a training has where the card decides: the most for which the forecast fits."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

from g2d.memory.need import VLLM, Card, Need, training_need
from g2d.memory.workload import Training
from g2d.rollouts.settings import EngineSettings

if TYPE_CHECKING:  # both import torch
    from g2d.memory.model_shape import ModelShape
    from g2d.memory.passes import Counted

DOUBT = 14  # per cent of a forecast: peaks on one H100 were 1 to 14 % away from it (docs/performance.md)


def fits(need: Need, free: int) -> bool:
    """Whether a training has room with all doubt added; vLLM's share of the card is a setting, and sure.

    Args:
        free: bytes.
    """
    sure = sum(part.bytes for part in need.parts if part.name == VLLM)
    return not need.needs_more and (100 + DOUBT) * (need.total - sure) <= 100 * (free - sure)


def divided(
    training: Training, shape: ModelShape, counted: Counted, engine: EngineSettings, card: Card, free: int | None = None
) -> Training:
    """The training with what is left to the card filled in: the most rows of a pass that fit, one unit if none do;
    then, of these, all activations kept if they fit. Where passes are equal, their rows divide those of an update.

    Args:
        free: bytes of the card; all of it if None.
    """
    free = card.memory if free is None else free

    def has_room(found: Training) -> bool:
        return fits(training_need(found, shape, counted, engine, card), free)

    if (update := training.update) is not None:
        choices = [n for n in range(1, update + 1) if update % n == 0 or training.passes != "equal"]
        if not has_room(training.with_units(update)):  # as a rule it has
            first_without = bisect_left(choices, True, key=lambda n: not has_room(training.with_units(n)))
            update = choices[max(first_without - 1, 0)]
        training = training.with_units(update)
    if training.choose_checkpointing and has_room(without := replace(training, checkpointing=False)):
        return without
    return training
