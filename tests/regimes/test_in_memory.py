"""A trainer hands its adapters to vLLM in memory, if there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from g2d.regimes.common import online
from g2d.regimes.common.online import ROOM, Sampler, in_memory


def test_adapters_are_in_memory_if_it_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "SHARED_MEMORY", tmp_path)
    for free, folder in ((ROOM, tmp_path), (ROOM - 1, None)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert in_memory() == folder
    monkeypatch.setattr(online, "SHARED_MEMORY", tmp_path / "absent")
    assert in_memory() is None


JOB = SimpleNamespace(engine=SimpleNamespace(name="transformers"), start=None)
SAMPLER = """
import sys
from tests.regimes.test_in_memory import sampler
alive = sampler()
print(alive.folder.parent, flush=True)
sys.stdin.read()
"""


def sampler() -> Sampler:
    return Sampler(JOB, [], None, every=1, at_once=1)


@contextmanager
def other_sampler(parent: Path) -> Iterator[Path]:
    """Yield the folder of a sampler in another process, which is killed afterwards."""
    environment = dict(os.environ) | {"TMPDIR": str(parent)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SAMPLER], env=environment, **pipes) as process:
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        yield folder
        process.kill()


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_a_sampler_removes_the_folders_of_killed_ones(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = {"memory": tmp_path / "memory", "disk": tmp_path / "disk"}
    for parent in parents.values():
        parent.mkdir()
    monkeypatch.setattr(online, "SHARED_MEMORY", parents["memory"])
    monkeypatch.setattr(tempfile, "tempdir", str(parents["disk"]))
    unknown = parents[place] / "g2d-generator-unknown"
    unknown.mkdir()
    with other_sampler(parents[place]) as running:
        with other_sampler(parents[place]) as killed:
            pass
        assert killed.is_dir()
        sampler().close()
        assert set(parents[place].iterdir()) == {unknown, running}
