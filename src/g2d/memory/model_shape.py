"""Sizes of a model, counted on a model without weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from g2d.jobs.files import parse_json
from g2d.memory.passes import shortened, skeleton
from g2d.policies.model_keys import CONFIG, GgufModel, HubModel, LocalModel, Lora, file_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

SHAPES = Path(__file__).parent / "shapes"  # config.json files of shipped configurations


@dataclass(frozen=True)
class ModelShape:
    parameters: int
    adapter: int  # 0 if all weights are trained
    blocks: int
    vocabulary: int
    cache_per_token: int  # numbers, summed over blocks
    trains_all: bool = False


class NoConfigError(ValueError):
    """The config.json of a model is missing."""


def config_file(name: str, source: LocalModel | HubModel | GgufModel) -> Path:
    """Return a model's config.json, or raise a NoConfigError with the way to get it."""
    if isinstance(source, GgufModel):
        made = Path("results", name, "base/model", CONFIG)
        if made.is_file():
            return made
        raise NoConfigError(f"models.{name}: its GGUF file is not converted yet: snakemake --cores 1 {made}")
    present = file_of(source)
    if present is not None:
        return present
    if isinstance(source, LocalModel):
        file = Path(source.path, CONFIG)
        raise NoConfigError(f"models.{name}: {file} does not exist: correct path, or --config-json {name}=FILE")
    shipped = SHAPES / f"{source.id.replace('/', '--')}.json"
    if shipped.is_file():
        return shipped
    raise NoConfigError(
        f"models.{name}: {CONFIG} of {source.id} is not in the Hub's cache; this fetches it and nothing else: "
        f"hf download {source.id} {CONFIG} --revision {source.revision} (or give one: --config-json {name}=FILE)"
    )


def model_config(file: Path) -> PreTrainedConfig:
    """Load a configuration without the model's code; a ValueError names a file that transformers cannot read."""
    from transformers import AutoConfig

    try:
        values = dict(parse_json(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: no JSON object ({error}): put the model's own there") from None
    kind = values.pop("model_type", None)
    try:
        return AutoConfig.for_model(kind, **values)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{file}: no configuration of a model that transformers knows (model_type {kind!r})"
        ) from error


def model_shape(config: PreTrainedConfig, lora: Lora) -> ModelShape:
    adapted = skeleton(config, lora, dtype=torch.bfloat16)
    adapter = 0
    if not lora.trains_all:
        adapter = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    one = skeleton(shortened(config, 1), None, dtype=torch.bfloat16)
    with torch.no_grad():
        token = torch.empty(1, 1, dtype=torch.long, device="meta")
        cache = one(input_ids=token, use_cache=True).past_key_values
    per_block = sum(keys.numel() + values.numel() for keys, values, *_ in cache)
    return ModelShape(
        parameters=sum(p.numel() for p in adapted.parameters()) - adapter,
        adapter=adapter,
        blocks=config.num_hidden_layers,
        vocabulary=config.vocab_size,
        cache_per_token=per_block * config.num_hidden_layers,
        trains_all=lora.trains_all,
    )
