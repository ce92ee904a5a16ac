"""The files of a reward model: their digest, and the reasons why a folder cannot be used."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from g2d.jobs.digests import remembered_digest
from g2d.jobs.files import parse_json, read_json

# Pickled weights and modules can run code on loading; only these are fetched or counted.
PATTERNS = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.txt")


def content(folder: str | Path) -> str:
    """Digest of a folder's files with their names. Weights are read whole: a new head changes few bytes of them."""
    files = sorted(file for pattern in PATTERNS for file in Path(folder).glob(pattern) if file.is_file())
    lines = (f"{remembered_digest(file)}  {file.name}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def mistake(folder: str | Path, max_length: int | None) -> str | None:
    """Why a folder cannot be used as a reward model, and the fix; None if it can, as far as its files say.

    Args:
        max_length: tokens that it is to read; None for all it can.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return f"{folder} is no folder: name one with config.json, safetensors and a tokenizer"
    try:
        config = dict(parse_json((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        return f"{folder}: its config.json cannot be read ({str(error).splitlines()[0]}): put a complete copy there"
    if not any(folder.glob("*.safetensors")):
        return f"{folder}: no *.safetensors in it, and pickled weights are not loaded: convert it with save_pretrained"
    if "AutoModelForSequenceClassification" in (config.get("auto_map") or {}):
        return (
            f"{folder}: its class comes with the model, and no such code is run: choose one of a class of transformers"
        )
    if not any(name.endswith("ForSequenceClassification") for name in config.get("architectures") or ()):
        made = ", ".join(config.get("architectures") or ()) or "nothing"
        return f"{folder}: made for {made}, not for sequence classification: choose a reward model"
    if (labels := _labels(config)) != 1:
        return f"{folder}: {labels} labels instead of 1, so there is no one score: choose a reward model"
    if not _has_template(folder):
        return f"{folder}: its tokenizer has no chat template: add the one it was trained with, as chat_template.jinja"
    limit = config.get("max_position_embeddings")
    if max_length is not None and limit is not None and max_length > limit:
        return f"{folder}: reads {limit} tokens at most, not {max_length}: lower max_length"
    return None


def _labels(config: dict[str, Any]) -> int:
    """Number of labels as transformers counts them: two by default."""
    named = config.get("id2label")
    return len(named) if named else int(config.get("num_labels", 2))


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    try:
        return bool(read_json(folder / "tokenizer_config.json").get("chat_template"))
    except (OSError, ValueError):
        return False
