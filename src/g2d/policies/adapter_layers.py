"""LoRA layers of bfloat16 models that round once.

PEFT rounds a layer's output to bfloat16, adds the adapter's part and rounds again. What is below half of the output's
last place is then lost every time: .45 of the effect is left where B has a standard deviation of 1e-4, as after a few
steps of GRPO (docs/performance.md). Here the base layer's output stays in float32 until the adapter's part is added.

Importing this imports PEFT. Float32 models have PEFT's own layers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from peft import PeftConfig, PeftModel
from peft.tuners.lora import Linear


class OnceRounded(Linear):
    """A linear layer with LoRA adapters whose output is rounded to bfloat16 after they are added."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The layer's output, (..., out), in the precision of its weights."""
        weight = self.base_layer.weight
        if weight.dtype != torch.bfloat16 or self.merged:
            unchanged: torch.Tensor = super().forward(x, *args, **kwargs)
            return unchanged
        total = _Float32Linear.apply(x, weight)
        if self.base_layer.bias is not None:
            total = total + self.base_layer.bias
        for name in [] if self.disable_adapters else self.active_adapters:
            if name in self.lora_A:
                own = self.lora_dropout[name](self._cast_input_dtype(x, self.lora_A[name].weight.dtype))
                total = total + self.lora_B[name](self.lora_A[name](own)) * self.scaling[name]
        return total.to(weight.dtype)


class _Float32Linear(torch.autograd.Function):
    """x W^T of bfloat16 numbers, summed and returned in float32; W has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        ctx.dtype = x.dtype
        rows = x.to(weight.dtype).flatten(0, -2)
        if rows.is_cuda:
            out = torch.mm(rows, weight.T, out_dtype=torch.float32)
        else:  # a CPU has no such kernel
            with torch.autocast(x.device.type, enabled=False):
                out = rows.float() @ weight.T.float()
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (weight,) = ctx.saved_tensors
        return (gradient.to(weight.dtype) @ weight).to(ctx.dtype), None  # its numbers come from a bfloat16 output


def round_once(config: Any) -> None:
    """Have PEFT make `OnceRounded` layers for a LoraConfig."""
    config._register_custom_module({torch.nn.Linear: OnceRounded})


def load_adapter(
    model: Any, folder: str | Path, rounding: Literal["twice", "once"], *, is_trainable: bool = False
) -> Any:
    """A model with the adapter in a folder, as a `PeftModel`.

    Args:
        rounding: of the layers of a bfloat16 model.
    """
    config = PeftConfig.from_pretrained(str(folder))
    if rounding == "once":
        round_once(config)
    return PeftModel.from_pretrained(model, folder, config=config, is_trainable=is_trainable)
