"""Memory for an engine that starts: unused memory is freed first, and processes that hold the rest are named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from g2d.policies import PolicyRecord
from g2d.regimes.common.microbatches import card_memory
from g2d.rollouts import free_memory, weights_check
from g2d.rollouts.free_memory import GIB, require_free


def card(
    patch: pytest.MonkeyPatch,
    taken: float,
    cached: float = 0,
    tensors: float = 0,
    processes: Sequence[tuple[int, int | None]] = (),
    available: float | None = None,
) -> list[float]:
    """Patch torch and the driver to describe a card of 80 GiB, and return what torch has cached.

    Args:
        taken: GiB, including `cached`, which torch frees when asked, and the `tensors` of this process.
        processes: PID and bytes.
        available: GiB that the kernel can free, for a card that shares its memory with the CPU.
    """
    cache = [cached]
    properties = SimpleNamespace(is_integrated=int(available is not None))
    patch.setattr(torch.cuda, "get_device_properties", lambda *_: properties)
    if available is not None:
        patch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=int(available * GIB)))
    patch.setattr(torch.cuda, "empty_cache", cache.clear)
    patch.setattr(torch.cuda, "mem_get_info", lambda: (int((80 - taken + cached - sum(cache)) * GIB), 80 * GIB))
    patch.setattr(torch.cuda, "memory_allocated", lambda: int(tensors * GIB))
    patch.setattr(free_memory, "processes", lambda: processes)
    return cache


def test_enough_is_free_also_after_emptying_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    card(monkeypatch, taken=8)
    require_free(0.9)
    cache = card(monkeypatch, taken=60, cached=55)
    require_free(0.9)
    assert not cache


def test_what_is_in_the_way_is_named_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    card(monkeypatch, 51, tensors=20, processes=[(4711, 30 * GIB), (4712, None), (os.getpid(), 21 * GIB)])
    holders = rf"process 4711 has 30.0 GiB, process 4712 is on it, .* \({os.getpid()}\) have 20.0"
    with pytest.raises(RuntimeError, match=rf"72.0 GiB, and 29.0 GiB of 80.0 .*{holders}.*gpu_memory_utilization"):
        require_free(0.9)


def test_where_the_driver_is_silent_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    card(monkeypatch, taken=51)
    with pytest.raises(RuntimeError, match="names no process"):
        require_free(0.9)


def test_the_page_cache_of_shared_memory_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card(monkeypatch, taken=20, available=75)
    require_free(0.9)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert card_memory() == (75 * GIB, 80 * GIB)
    with open(tmp_path / "model.safetensors", "wb") as weights:
        weights.truncate(35 * GIB)  # needs twice as much
    assert weights_check._device(PolicyRecord("m0", "m", "base", str(tmp_path)), may_use_gpu=True) == "cuda"
    card(monkeypatch, taken=5, available=30)
    with pytest.raises(RuntimeError, match=r"30\.0 GiB of 80\.0"):
        require_free(0.9)
