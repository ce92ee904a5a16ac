"""Float32 weights as bfloat16 ones that are right on average: each is rounded up or down at random.

Rounded to the nearest, a merged weight that moved by less than half of its last place is M0's again: .43 of the effect
of a small adapter is left (docs/performance.md).
"""

from __future__ import annotations

import hashlib

import torch


def round_stochastically(model: torch.nn.Module, seed: str) -> None:
    """Turn the weights of a float32 model into bfloat16 ones, the same for the same seed on one kind of device.

    Those that bfloat16 has, as an M0 in bfloat16 before an adapter was merged, stay what they are.
    """
    for name, weights in model.named_parameters():
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        generator = torch.Generator(weights.device).manual_seed(int.from_bytes(digest[:4], "big"))
        weights.data = to_bfloat16(weights.data, generator)


def to_bfloat16(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Finite float32 numbers as one of their two neighbours in bfloat16, the nearer one more often: E[result] = number.

    bfloat16 is the upper half of float32's bits, so adding a random lower half carries with the right probability.
    """
    bits = weights.contiguous().view(torch.int32)
    noise = torch.randint(0, 2**16, bits.shape, dtype=torch.int32, device=bits.device, generator=generator)
    return ((bits + noise) & -(2**16)).view(torch.float32).bfloat16()
