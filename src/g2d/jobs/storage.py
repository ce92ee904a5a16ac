"""Results in a storage (`--default-storage-provider`): where planning and jobs find them (docs/kubernetes.md).

Without a storage nothing here changes a path.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Environment variable: folder for checkpoints of running jobs, which survives them. Unset: beside the results.
WORK = "G2D_WORK"


def find(file: str) -> str | None:
    """Return where a finished result can be read, None if there is none; `workflow/rules/common.smk` replaces this."""
    exists = os.path.exists  # twice as fast as `Path` for thousands of files
    return file if exists(file) else None


def work_place(folder: Path) -> Path:
    """Return the folder in which a job keeps what its next attempt continues."""
    return Path(os.environ.get(WORK) or "", folder)


def enter(snakemake: Any) -> None:
    """Change to the folder with the local copies of `results/`, and shorten the job's paths to `results/...`."""
    here, (root, _, _) = Path.cwd(), str(snakemake.log[0]).rpartition("results/logs/")
    if not root:
        return

    def as_seen(file: str) -> str:
        return file.removeprefix(root) if file.startswith(root) else str(here / file)

    for name in ("input", "output", "log"):
        files = getattr(snakemake, name)
        setattr(snakemake, name, type(files)(toclone=files, custom_map=as_seen))
    os.chdir(root)
