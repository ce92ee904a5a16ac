"""Muon with its orthogonalisation in float32: PyTorch's runs it in bfloat16, for which most CPUs have no arithmetic.

On a CPU with AVX2 that is 60 % of the time it takes to train the embedded model; in float32, matrices of one shape
together, it is 10 %. What it computes is `torch.optim.Muon` with Nesterov momentum and `adjust_lr_fn="original"`, up to
rounding (a test compares). Left out on purpose: everything that the embedded model does not need.
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
    """Momentum whose update is the nearest orthogonal matrix, about.

    Args:
        params: matrices.
        lr: learning rate, of a square matrix.
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
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # so that none is above 1
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
