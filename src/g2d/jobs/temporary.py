"""Temporary folders. The next process that makes one removes those that a killed process or a loss of power left."""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from g2d.jobs.orphans import has_ended, name_of, this_machine

PREFIX = "g2d-"
OWNER = ".process"  # file with the name of the process, and of the machine


def temporary_folder(purpose: str, parent: Path | None = None) -> TemporaryDirectory[str]:
    """Return a new folder for one purpose, such as `merged`, below `parent` or the system's folder for them."""
    parent = parent or Path(gettempdir())
    remove_left(parent)
    folder = TemporaryDirectory(prefix=f"{PREFIX}{purpose}-", dir=parent)
    Path(folder.name, OWNER).write_text(f"{name_of(os.getpid())}\n{platform.node()}")
    return folder


def remove_left(parent: Path) -> None:
    """Remove folders of this user's processes that have ended."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError, ValueError):  # another user's, or without a name yet
            if folder.stat().st_uid == os.getuid() and _is_left((folder / OWNER).read_text()):
                shutil.rmtree(folder)


def _is_left(owner: str) -> bool:
    process, machine = owner.split("\n")
    if has_ended(process):
        return True
    boot = process.split(" ")[2]
    return machine == platform.node() and boot != this_machine().split(" ")[0]
