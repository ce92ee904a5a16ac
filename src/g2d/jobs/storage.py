"""Paths of results in a storage (docs/kubernetes.md); without a storage they are unchanged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Folder for checkpoints of running jobs, which survives them. Unset: beside the results.
WORK = "G2D_WORK"


def find(file: str) -> str | None:
    """Return the path of a finished result, or None; `workflow/rules/common.smk` replaces this function."""
    exists = os.path.exists  # twice as fast as `Path` for thousands of files
    return file if exists(file) else None


def work_place(folder: Path) -> Path:
    """Return the folder for the state that a job's next attempt continues."""
    return Path(os.environ.get(WORK) or "", folder)


def enter(snakemake: Any) -> None:
    """Change to the folder with the local copies of `results/`, and adapt the job's paths."""
    here, (root, _, _) = Path.cwd(), str(snakemake.log[0]).rpartition("results/logs/")
    if not root:
        return

    def as_seen(file: str) -> str:
        return file.removeprefix(root) if file.startswith(root) else str(here / file)

    for name in ("input", "output", "log"):
        files = getattr(snakemake, name)
        setattr(snakemake, name, type(files)(toclone=files, custom_map=as_seen))
    os.chdir(root)
