"""The demonstration model as it is shipped: weights, tokenizer and the recipe that made them, with digests.

It is a model of `g2d.policies.scratch`. Trained anew on each machine it would be another one wherever a kernel rounds
differently, and so would every number after it. `benchmarks/embedded_model.py` made it and says how it was chosen.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

from g2d.jobs.files import read_json, sha256

FOLDER = Path(__file__).parent
RECIPE = "recipe.json"
FILES = (
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


@cache
def digests() -> dict[str, str]:
    """SHA-256 of every file, by name, as the recipe states them."""
    recipe: dict[str, Any] = read_json(FOLDER / RECIPE)
    return dict(recipe["sha256"])


def copy_embedded(folder: Path) -> None:
    """Put a copy of the model into a folder.

    Raises:
        ValueError: a file of this installation is not the one that was shipped; the message names it.
    """
    for name, digest in digests().items():
        if not (FOLDER / name).is_file() or sha256(FOLDER / name) != digest:
            raise ValueError(f"{FOLDER / name}: missing or not the file that g2d ships; install the package again")
        shutil.copyfile(FOLDER / name, folder / name)
