"""How a token is chosen: the likeliest, or by inverse transform from random numbers that belong to the rollout.

The random numbers of a rollout are a stream of its own, made from seed, problem and sample, and not the batch's. So it
does not depend on which other prompts share its batch, its shard or its job, which `do_sample=True` cannot offer.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from g2d.rollouts.engine import Decoding


def random_stream(decoding: Decoding, problem_id: str, sample: int) -> np.ndarray:
    """Uniform numbers for the tokens of one rollout, shape (max_completion_length,); zeros, never used, when greedy."""
    if decoding.temperature == 0:
        return np.zeros(decoding.max_completion_length)
    digest = hashlib.shake_256(f"{decoding.seed}/{problem_id}/{sample}".encode()).digest(
        8 * decoding.max_completion_length
    )
    return (np.frombuffer(digest, "<u8") >> 11) * 2.0**-53


def request_seed(seed: int, problem_id: str) -> int:
    """The seed of a problem's first sample. Samples count on from it, so neighbours must be far apart: 62 bits."""
    digest = hashlib.sha256(f"{seed}/{problem_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


def choose_tokens(logits: torch.Tensor, uniforms: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """The next token of every row, shape (rows,).

    The tokens of the vocabulary divide the unit interval between them in their own order, each as its probability is,
    and the one that the uniform number falls on is drawn. In this order a change of the last bits of the logits moves a
    border by as little; ordered by probability, two tokens that are all but tied would trade places.

    Args:
        logits: (rows, vocabulary).
        uniforms: (rows,) in [0, 1), float64.
        temperature: 0 is greedy.
        top_p: mass of the nucleus: the likeliest tokens until their sum reaches it.
    """
    if temperature == 0:
        return logits.argmax(dim=-1)
    probabilities = torch.softmax(logits.double() / temperature, dim=-1)
    if top_p < 1:
        ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
        outside = ordered.cumsum(dim=-1) - ordered >= top_p
        probabilities = probabilities.scatter(-1, tokens, ordered.masked_fill(outside, 0.0))
    cumulative = probabilities.cumsum(dim=-1)
    # A double below 1 keeps the product below the whole mass, so there is always a token to the right of it.
    targets = uniforms.unsqueeze(-1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True).squeeze(-1)
