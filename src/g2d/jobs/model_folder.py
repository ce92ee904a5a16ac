"""A folder with a model in Hugging Face format, checked without transformers and without reading weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from g2d.jobs.files import read_json, text_value

MAX_HEADER = 100_000_000  # bytes; the limit of safetensors
ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
WRAPPERS = ("module.", "_orig_mod.")  # prefixes of DistributedDataParallel and torch.compile


class Tensor(TypedDict):
    """Entry of a tensor in the header of a safetensors file."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


def tensors(file: Path) -> dict[str, Tensor]:
    """Return the header's entry of each tensor; a ValueError if the file is not whole."""
    size = file.stat().st_size
    with open(file, "rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > min(size, MAX_HEADER):
            raise ValueError(f"{file}: no safetensors file, or cut short: put a complete copy there")
        try:
            header = json.loads(opened.read(length))
            entries: dict[str, Tensor] = {name: entry for name, entry in header.items() if name != "__metadata__"}
            end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(f"{file}: its header cannot be read: put a complete copy there") from None
    if 8 + length + end != size:
        raise ValueError(f"{file}: {size} bytes instead of {8 + length + end}: put a complete copy there")
    return entries


def mistake_in_weights(folder: Path) -> str | None:
    """Return why transformers would not find all weights in a folder, as far as headers and index show."""
    try:
        if (folder / ONE_FILE).is_file():
            names = list(tensors(folder / ONE_FILE))
        else:
            names = _shards(folder)
    except ValueError as error:
        return str(error)
    for wrapper in WRAPPERS:
        if names and all(name.startswith(wrapper) for name in names):
            return (
                f"{folder}: every tensor's name begins with {wrapper}, so transformers would initialise the model at "
                "random: save the model without its wrapper"
            )
    return None


def _shards(folder: Path) -> list[str]:
    index = folder / INDEX
    if not index.is_file():
        if any(folder.glob("*.safetensors")):
            raise ValueError(f"{folder}: neither {ONE_FILE} nor {INDEX} in it: put a complete copy there")
        return []
    try:
        file_of = dict(read_json(index)["weight_map"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{index}: no weight_map can be read in it: put a complete copy there") from None
    for name in sorted(set(file_of.values())):
        shard = folder / name
        if not shard.is_file():
            raise ValueError(f"{folder}: no {name}, which {INDEX} lists: put a complete copy there")
        held = tensors(shard)
        for tensor, file in file_of.items():
            if file == name and tensor not in held:
                raise ValueError(f"{shard}: no tensor {tensor}, which {INDEX} lists: put a complete copy there")
    return list(file_of)


def attention_of(config: Mapping[str, object]) -> str | None:
    """Return the attention that computes a model as published, by its config.json; None: transformers' default.

    Only transformers' attention `eager` caps the scores (Gemma 2); the others ignore the cap without a warning.
    """
    if text_value(config, "attn_logit_softcapping"):
        return "eager"
    return None


def hide_progress() -> None:
    """Switch off the bars of transformers: they fill logs."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    try:
        return bool(read_json(folder / "tokenizer_config.json").get("chat_template"))
    except (OSError, ValueError):
        return False
