"""LoRA adapters of bfloat16 models: rounding once, the effect of rounding twice, and unbiased merging.

PEFT rounds a layer's output before and after adding the adapter's, and loses small changes (docs/performance.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from peft import PeftConfig, PeftModel
from peft.tuners.lora import Linear
from safetensors import safe_open
from safetensors.torch import load_file

from g2d.jobs.files import read_json

LAYERS = 8  # sampled to compute an effect
OUTPUTS = 256  # sampled per layer
INPUTS = 64
PREFIX, A, B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


class OnceRounded(Linear):
    """A linear layer that rounds its output only after adding its adapters."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        weight = self.base_layer.weight
        if weight.dtype != torch.bfloat16 or self.merged:
            return super().forward(x, *args, **kwargs)
        total = _Float32Linear.apply(x, weight)
        if self.base_layer.bias is not None:
            total = total + self.base_layer.bias
        for name in [] if self.disable_adapters else self.active_adapters:
            if name in self.lora_A:
                dropped = self.lora_dropout[name](self._cast_input_dtype(x, self.lora_A[name].weight.dtype))
                total = total + self.lora_B[name](self.lora_A[name](dropped)) * self.scaling[name]
        return total.to(weight.dtype)


class _Float32Linear(torch.autograd.Function):
    """x W^T for bfloat16 inputs, in float32; W gets no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        ctx.dtype = x.dtype
        rows = x.to(weight.dtype).flatten(0, -2)
        if rows.is_cuda:
            out = torch.mm(rows, weight.T, out_dtype=torch.float32)
        else:  # the CPU has no such kernel
            with torch.autocast(x.device.type, enabled=False):
                out = rows.float() @ weight.T.float()
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (weight,) = ctx.saved_tensors
        return (gradient.to(weight.dtype) @ weight).to(ctx.dtype), None  # it is of a bfloat16 output


def round_once(config: Any) -> None:
    config._register_custom_module({torch.nn.Linear: OnceRounded})


def load_adapter(
    model: Any, folder: str | Path, rounding: Literal["twice", "once"], *, is_trainable: bool = False
) -> Any:
    config = PeftConfig.from_pretrained(str(folder))
    if rounding == "once":
        round_once(config)
    return PeftModel.from_pretrained(model, folder, config=config, is_trainable=is_trainable)


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


def round_stochastically(model: torch.nn.Module, seed: str) -> None:
    """Convert float32 weights to bfloat16 without bias; a seed fixes the result on one kind of device."""
    for name, weights in model.named_parameters():
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        generator = torch.Generator(weights.device).manual_seed(int.from_bytes(digest[:4], "big"))
        weights.data = to_bfloat16(weights.data, generator)


def to_bfloat16(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Round float32 numbers at random to one of their two bfloat16 neighbours, so that E[result] = number.

    bfloat16 is the upper half of float32: adding a random lower half carries with the right probability.
    """
    bits = weights.contiguous().view(torch.int32)
    noise = torch.randint(0, 2**16, bits.shape, dtype=torch.int32, device=bits.device, generator=generator)
    return ((bits + noise) & -(2**16)).view(torch.float32).bfloat16()
