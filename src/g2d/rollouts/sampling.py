"""The choice of a token: greedy, or by inverse transform from the rollout's random numbers.

These depend on seed, problem and sample, so a rollout does not depend on the other prompts of its batch, shard or job.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from g2d.rollouts.engine import Decoding

AT_ONCE = 2**19  # probabilities per part, on a CPU
BLOCK = 256  # words whose probabilities are summed before the search


def random_stream(decoding: Decoding, problem_id: str, sample: int) -> np.ndarray:
    """Return uniform numbers for one rollout's tokens, shape (max_completion_length,); zeros if greedy."""
    if decoding.temperature == 0:
        return np.zeros(decoding.max_completion_length)
    digest = hashlib.shake_256(f"{decoding.seed}/{problem_id}/{sample}".encode()).digest(
        8 * decoding.max_completion_length
    )
    return (np.frombuffer(digest, "<u8") >> 11) * 2.0**-53


def request_seed(seed: int, problem_id: str) -> int:
    """Return the seed of a problem's first sample, 62 bits: sample j adds j."""
    digest = hashlib.sha256(f"{seed}/{problem_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


def choose_tokens(logits: torch.Tensor, uniforms: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """Choose the next token of every row, shape (rows,).

    The uniform number is looked up in the cumulative distribution in vocabulary order, where last bits of the logits
    hardly matter. Ordered by probability, two nearly tied tokens would swap places.

    Args:
        logits: (rows, vocabulary).
        uniforms: (rows,) in [0, 1), float64.
        top_p: mass of the nucleus, the most probable tokens until their sum reaches it.
    """
    if temperature == 0:
        return logits.argmax(dim=-1)
    if top_p < 1:
        return _chosen_from_nucleus(logits, uniforms, temperature, top_p)
    # A few rows at a time fit into the cache and reuse memory.
    rows = len(logits) if logits.is_cuda else max(1, AT_ONCE // logits.shape[-1])
    parts = zip(logits.split(rows), uniforms.split(rows), strict=True)
    return torch.cat([_chosen_by_blocks(*part, temperature) for part in parts])


def _chosen_from_nucleus(
    logits: torch.Tensor, uniforms: torch.Tensor, temperature: float, top_p: float
) -> torch.Tensor:
    probabilities = torch.softmax(logits.double() / temperature, dim=-1)
    ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    outside = ordered.cumsum(dim=-1) - ordered >= top_p
    probabilities = probabilities.scatter(-1, tokens, ordered.masked_fill(outside, 0.0))
    return _chosen(probabilities, uniforms)[0]


def _chosen(masses: torch.Tensor, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the column of every row whose mass contains its uniform number, and the place within it, in [0, 1)."""
    cumulative = masses.cumsum(dim=-1)
    # The uniform number is below 1, so the target is below the total mass and a token is found.
    targets = uniforms.unsqueeze(-1) * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, targets, right=True)
    mass = masses.gather(-1, chosen)
    within = (targets - (cumulative.gather(-1, chosen) - mass)) / mass
    return chosen.squeeze(-1), within.clamp(0, 1 - 2.0**-53).squeeze(-1)


def _chosen_by_blocks(logits: torch.Tensor, uniforms: torch.Tensor, temperature: float) -> torch.Tensor:
    """Search for a block of the vocabulary, then a token in it: fewer sums than over all words."""
    rows, words = logits.shape
    masses = logits.float()
    masses = (masses - masses.amax(dim=-1, keepdim=True)).div_(temperature).exp_()
    if words % BLOCK:
        masses = torch.nn.functional.pad(masses, (0, -words % BLOCK))
    masses = masses.view(rows, -1, BLOCK)
    block, within = _chosen(masses.sum(dim=-1).double(), uniforms)
    return block * BLOCK + _chosen(masses[torch.arange(rows, device=logits.device), block].double(), within)[0]
