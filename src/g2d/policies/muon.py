"""Muon with its orthogonalisation in float32, which is fast on CPUs without bfloat16 arithmetic.

It is `torch.optim.Muon` with Nesterov momentum and `adjust_lr_fn="original"`, up to rounding (a test compares), with
the options of the embedded model alone. PyTorch's takes 60 % of its training on a CPU with AVX2, this one 10 %.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Keller Jordan's quintic, kellerjordan.github.io/posts/muon
ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Momentum whose update is approximately the nearest orthogonal matrix.

    Args:
        params: matrices.
        lr: learning rate of a square matrix.
        weight_decay: decoupled from the gradient.
        momentum: Nesterov's.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], *, lr: float, weight_decay: float, momentum: float
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update every matrix by its gradient."""
        for group in self.param_groups:
            of_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                of_shape[parameter.shape].append(parameter)
            for (rows, columns), matrices in of_shape.items():
                gradients = torch.stack([matrix.grad for matrix in matrices if matrix.grad is not None])
                average = self.state[matrices[0]].setdefault("average", torch.zeros_like(gradients))
                average.lerp_(gradients, 1 - group["momentum"])
                updates = orthogonalised(gradients.lerp_(average, group["momentum"]))
                rate = group["lr"] * math.sqrt(max(1.0, rows / columns))
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-rate)


def orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    """Matrices (n, rows, columns) with their singular values moved close to 1, by Newton-Schulz iterations."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # singular values at most 1
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
