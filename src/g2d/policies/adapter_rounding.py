"""Share of a LoRA adapter's effect that remains in a bfloat16 model.

PEFT rounds a layer's output before and after adding the adapter's, and loses small changes (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from g2d.jobs.files import read_json

LAYERS = 8  # sampled to compute an effect
OUTPUTS = 256  # sampled per layer
INPUTS = 64
PREFIX, A, B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


def recorded_effect(base: str | Path, adapter: str | Path) -> float | None:
    return effect_left(base, adapter) if torch.cuda.is_available() else None


def effect_left(base: str | Path, adapter: str | Path) -> float | None:
    """Estimate the share of an adapter's effect that remains after rounding twice, averaged over layers.

    Inputs are random. None if M0's file stores its layers differently.
    """
    generator = torch.Generator().manual_seed(0)
    shares = []
    for _, rows, a, b, scale in adapted_layers(base, adapter, OUTPUTS, most=LAYERS):
        x = torch.randn(INPUTS, a.shape[1], generator=generator).bfloat16().float()
        change = scale * (x @ a.T @ b.T)
        rounded = (x @ rows.bfloat16().float().T).bfloat16().float()
        effect = (rounded + change).bfloat16().float() - rounded
        if size := float(change.square().sum()):
            shares.append(float((effect * change).sum()) / size)
    return sum(shares) / len(shares) if shares else None


def adapted_layers(
    base: str | Path, adapter: str | Path, n_rows: int, most: int | None = None
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor, float]]:
    """Yield about `most` layers, evenly spaced, without those that M0's file stores transposed or packed.

    A layer is its name, the first rows of M0's weights (n_rows, inputs), A (rank, inputs), the first rows of B (n_rows,
    rank), and the scale of B A.
    """
    settings = read_json(Path(adapter) / "adapter_config.json")
    tensors = load_file(Path(adapter) / "adapter_model.safetensors")
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
                a, b = (tensors[f"{PREFIX}{name}{part}"].float() for part in (A, B))
                if rows.shape[1] == a.shape[1]:
                    yield name, rows, a, b[: len(rows)], settings["lora_alpha"] / settings["r"]
