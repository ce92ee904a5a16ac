"""Temporary folders of killed processes do not stay."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from g2d.jobs.orphans import this_machine
from g2d.jobs.temporary import OWNER, temporary_folder

OTHER = """
import sys
from g2d.jobs.temporary import temporary_folder
folder = temporary_folder("merged")
print(folder.name, flush=True)
sys.stdin.read()
"""


@contextmanager
def of_another_process(parent: Path) -> Iterator[Path]:
    """Yield the folder of another process, which is killed afterwards."""
    environment = dict(os.environ) | {"TMPDIR": str(parent)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", OTHER], env=environment, **pipes) as process:
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        yield folder
        process.kill()


def test_folders_of_killed_processes_are_removed_and_no_others(tmp_path: Path) -> None:
    unknown = tmp_path / "g2d-unknown"
    unknown.mkdir()
    with of_another_process(tmp_path) as running:
        with of_another_process(tmp_path) as killed:
            pass
        assert killed.is_dir()
        with temporary_folder("generator", tmp_path) as own:
            assert set(tmp_path.iterdir()) == {unknown, running, Path(own)}
    assert not Path(own).exists()


@pytest.mark.parametrize(("machine", "stays"), [(platform.node(), False), ("another", True)])
def test_folders_from_before_a_restart_of_this_machine_are_removed(tmp_path: Path, machine: str, stays: bool) -> None:
    left = tmp_path / "g2d-merged-left"
    left.mkdir()
    (left / OWNER).write_text(f"1 1 another-boot {this_machine().split(' ')[1]}\n{machine}")
    temporary_folder("merged", tmp_path).cleanup()
    assert left.exists() is stays
