"""Share of a LoRA adapter's effect that remains in a bfloat16 model.

PEFT rounds a layer's output before and after adding the adapter's, and loses small changes (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from g2d.jobs.files import read_json
from g2d.policies.model_keys import ADAPTER_WEIGHTS

LAYERS = 8  # sampled to compute an effect
OUTPUTS = 256  # sampled per layer
INPUTS = 64
PREFIX = "base_model.model."
A = ".lora_A.weight"
B = ".lora_B.weight"


def recorded_effect(base: str | Path, adapter: str | Path) -> float | None:
    """Return `effect_left` if the policy runs in bfloat16, that is on a GPU."""
    if torch.cuda.is_available():
        return effect_left(base, adapter)
    return None


def effect_left(base: str | Path, adapter: str | Path) -> float | None:
    """Estimate the share of an adapter's effect that remains after rounding twice, averaged over layers.

    Inputs are random. None if M0's file stores its layers differently.
    """
    generator = torch.Generator().manual_seed(0)
    shares = []
    for layer in adapted_layers(base, adapter, OUTPUTS, most=LAYERS):
        x = torch.randn(INPUTS, layer.a.shape[1], generator=generator).bfloat16().float()
        change = layer.scale * (x @ layer.a.T @ layer.b.T)
        rounded = (x @ layer.rows.bfloat16().float().T).bfloat16().float()
        effect = (rounded + change).bfloat16().float() - rounded
        size = float(change.square().sum())
        if size:
            shares.append(float((effect * change).sum()) / size)
    if not shares:
        return None
    return sum(shares) / len(shares)


class AdaptedLayer(NamedTuple):
    name: str
    rows: torch.Tensor  # first rows of M0's weights, (n_rows, inputs)
    a: torch.Tensor  # (rank, inputs)
    b: torch.Tensor  # its first rows, (n_rows, rank)
    scale: float  # factor of B A


def adapted_layers(
    base: str | Path, adapter: str | Path, n_rows: int, most: int | None = None
) -> Iterator[AdaptedLayer]:
    """Yield about `most` layers, evenly spaced; layers that M0's file stores transposed or packed are left out."""
    settings = read_json(Path(adapter) / "adapter_config.json")
    tensors = load_file(Path(adapter) / ADAPTER_WEIGHTS)
    names = [name.removeprefix(PREFIX).removesuffix(A) for name in sorted(tensors) if name.endswith(A)]
    if most is not None:
        names = names[:: -(-len(names) // most) or 1]
    for file in sorted(Path(base).glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            stored = {*weights.keys()}
            for name in names:
                if f"{name}.weight" not in stored:
                    continue
                rows = weights.get_slice(f"{name}.weight")[:n_rows]
                a = tensors[f"{PREFIX}{name}{A}"].float()
                b = tensors[f"{PREFIX}{name}{B}"].float()
                if rows.shape[1] == a.shape[1]:
                    yield AdaptedLayer(name, rows, a, b[: len(rows)], settings["lora_alpha"] / settings["r"])
