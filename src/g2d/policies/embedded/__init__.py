"""The demonstration model (`benchmarks/embedded_model.py`). It is shipped because other CPU kernels train another."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from g2d.jobs.files import read_json, sha256

FOLDER = Path(__file__).parent
RECIPE = "recipe.json"


@cache
def digests() -> dict[str, str]:
    return dict(read_json(FOLDER / RECIPE)["sha256"])


def copy_embedded(folder: Path) -> None:
    """Copy the model; a ValueError names a file that was changed."""
    for name, digest in digests().items():
        if not (FOLDER / name).is_file() or sha256(FOLDER / name) != digest:
            raise ValueError(f"{FOLDER / name}: missing or not the file that g2d ships; install the package again")
        shutil.copyfile(FOLDER / name, folder / name)
