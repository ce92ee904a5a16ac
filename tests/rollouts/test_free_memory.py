"""An engine that starts where others lived: what can be freed is freed first, and what is left in the way is named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from g2d.rollouts.free_memory import GIB, CudaMemory, Holder, require_free


@dataclass
class Card(CudaMemory):
    """A card of 80 GiB that says what a real one would."""

    taken: float  # GiB, by whoever
    cached: float = 0.0  # GiB of `taken` that torch gives back when it is asked to
    tensors: float = 0.0  # GiB
    processes: list[Holder] = field(default_factory=list)

    def empty_cache(self) -> None:
        self.taken, self.cached = self.taken - self.cached, 0.0

    def free_and_total(self) -> tuple[int, int]:
        return int((80 - self.taken) * GIB), 80 * GIB

    def own_tensors(self) -> int:
        return int(self.tensors * GIB)

    def holders(self) -> Sequence[Holder]:
        return self.processes


def test_enough_is_enough() -> None:
    require_free(0.9, Card(taken=8))


def test_what_torch_keeps_for_later_is_given_back_first() -> None:
    card = Card(taken=60, cached=55)
    require_free(0.9, card)
    assert card.cached == 0


def test_what_is_in_the_way_is_named_with_its_size() -> None:
    own = Holder(os.getpid(), 21 * GIB)
    card = Card(taken=51, tensors=20, processes=[Holder(4711, 30 * GIB), Holder(4712, None), own])
    with pytest.raises(RuntimeError) as raised:
        require_free(0.9, card)
    said = str(raised.value)
    assert "\n" not in said
    assert "0.9 of the card, 72.0 GiB, and 29.0 GiB of 80.0 are free" in said
    assert (
        f"process 4711 has 30.0 GiB, process 4712 is on it, tensors of this process ({os.getpid()}) have 20.0" in said
    )
    assert "engine.gpu_memory_utilization" in said


def test_where_the_driver_is_silent_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="names no process"):
        require_free(0.9, Card(taken=51))
