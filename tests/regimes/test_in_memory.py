"""A trainer hands its adapters to vLLM in memory, if there is room."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from g2d.regimes.common import online
from g2d.regimes.common.online import ROOM, in_memory


def test_adapters_are_in_memory_if_it_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "SHARED_MEMORY", tmp_path)
    for free, folder in ((ROOM, tmp_path), (ROOM - 1, None)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert in_memory() == folder
    monkeypatch.setattr(online, "SHARED_MEMORY", tmp_path / "absent")
    assert in_memory() is None
