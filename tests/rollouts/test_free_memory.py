"""An engine that starts where others lived: what can be freed is freed first, and what is left in the way is named."""

from __future__ import annotations

import os

import pytest
import torch

from g2d.rollouts import free_memory
from g2d.rollouts.free_memory import GIB, require_free


class Card:
    """A card of 80 GiB, as torch and the driver describe it.

    Args:
        taken: GiB, by whoever.
        cached: GiB of `taken` that torch gives back when it is asked to.
        tensors: GiB of this process.
        processes: PID and bytes.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        taken: float,
        cached: float = 0,
        tensors: float = 0,
        processes: list[tuple[int, int | None]] | None = None,
    ) -> None:
        self.taken, self.cached = taken, cached
        patch.setattr(torch.cuda, "empty_cache", self.empty_cache)
        patch.setattr(torch.cuda, "mem_get_info", lambda: (int((80 - self.taken) * GIB), 80 * GIB))
        patch.setattr(torch.cuda, "memory_allocated", lambda: int(tensors * GIB))
        patch.setattr(free_memory, "processes", lambda: processes or [])

    def empty_cache(self) -> None:
        self.taken, self.cached = self.taken - self.cached, 0.0


def test_enough_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    Card(monkeypatch, taken=8)
    require_free(0.9)


def test_what_torch_keeps_for_later_is_given_back_first(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch, taken=60, cached=55)
    require_free(0.9)
    assert card.cached == 0


def test_what_is_in_the_way_is_named_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    Card(monkeypatch, 51, tensors=20, processes=[(4711, 30 * GIB), (4712, None), (os.getpid(), 21 * GIB)])
    with pytest.raises(RuntimeError) as raised:
        require_free(0.9)
    said = str(raised.value)
    assert "\n" not in said
    assert "0.9 of the card, 72.0 GiB, and 29.0 GiB of 80.0 are free" in said
    assert (
        f"process 4711 has 30.0 GiB, process 4712 is on it, tensors of this process ({os.getpid()}) have 20.0" in said
    )
    assert "engine.gpu_memory_utilization" in said


def test_where_the_driver_is_silent_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Card(monkeypatch, taken=51)
    with pytest.raises(RuntimeError, match="names no process"):
        require_free(0.9)
