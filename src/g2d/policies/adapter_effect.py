"""How much of an adapter's effect is left in bfloat16 where its part is added to an output that is already rounded.

From the weights alone: a few layers of M0 and of the adapter, with random inputs. The share depends on how large the
adapter's part is beside the output, not on the scale of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from g2d.jobs.files import read_json

LAYERS = 8  # at most, evenly spaced
OUTPUTS = 256  # of a layer, at most
INPUTS = 64
PREFIX, A, B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


def recorded_effect(base: str | Path, adapter: str | Path) -> float | None:
    """`effect_left` where there is a GPU, which computes in bfloat16; None without one."""
    return effect_left(base, adapter) if torch.cuda.is_available() else None


def effect_left(base: str | Path, adapter: str | Path) -> float | None:
    """The share of an adapter's effect that two roundings leave, mean over layers.

    Args:
        base: folder of M0's weights.
        adapter: folder of the LoRA adapter.

    Returns:
        1 where nothing is lost; None where the adapter does nothing, or where M0's file has its layers otherwise.
    """
    settings = read_json(Path(adapter) / "adapter_config.json")
    weights = load_file(Path(adapter) / "adapter_model.safetensors")
    names = [name.removeprefix(PREFIX).removesuffix(A) for name in sorted(weights) if name.endswith(A)]
    names = names[:: -(-len(names) // LAYERS) or 1]
    generator = torch.Generator().manual_seed(0)
    shares = []
    for name, rows in _rows(Path(base), names):
        a, b = (weights[f"{PREFIX}{name}{part}"].float() for part in (A, B))
        if rows.shape[1] != a.shape[1]:
            continue  # stored transposed, or packed
        x = torch.randn(INPUTS, a.shape[1], generator=generator).bfloat16().float()
        change = settings["lora_alpha"] / settings["r"] * (x @ a.T @ b[: len(rows)].T)
        rounded = (x @ rows.bfloat16().float().T).bfloat16().float()
        found = (rounded + change).bfloat16().float() - rounded
        if size := float(change.square().sum()):
            shares.append(float((found * change).sum()) / size)
    return sum(shares) / len(shares) if shares else None


def _rows(base: Path, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """The first rows of layers, of those that are there."""
    for file in sorted(base.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            there = {*weights.keys()}
            for name in names:
                if f"{name}.weight" in there:
                    yield name, weights.get_slice(f"{name}.weight")[:OUTPUTS]
