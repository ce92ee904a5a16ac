"""Weights of tokens and completions that another policy sampled than the one in training: what TRL 1.16 lacks, which
makes them of tokens or of completions, masked or truncated at a cap. Pure functions over tensors."""

from __future__ import annotations

import torch


def masked_log_ratios(log_probs: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Log of the policy's over the sampler's probability of every token, as TRL has it, (B, T); 0 where there is none.

    Args:
        log_probs: of the tokens under the policy in training, (B, T).
        sampled: under the policy that sampled them; NaN where it gave none, which counts as the policy's own.
        mask: 1 where there is a token.
    """
    return ((log_probs - sampled) * mask).nan_to_num(nan=0.0)


def above_cap(log_ratios: torch.Tensor, mask: torch.Tensor, cap: float, *, of_tokens: bool) -> torch.Tensor:
    """How many weights exceed the cap, and how many there are, (2,). A weight is a token's, or the product over a
    completion. `log_ratios` are from `masked_log_ratios`."""
    of_weights = log_ratios[mask.bool()] if of_tokens else log_ratios.sum(dim=1)
    return torch.stack([(of_weights.exp() > cap).sum(), torch.tensor(len(of_weights), device=of_weights.device)])


def within_second_moment(log_ratios: torch.Tensor, mask: torch.Tensor, threshold: float) -> torch.Tensor:
    """Which tokens M2PO keeps (arXiv 2510.01161), (B, T): those with the largest squared log-ratios, of all completions
    of an update, are masked until the mean of the others is at most the threshold.

    Tokens that are as large as the smallest one masked are masked too, so that their order does not matter; where every
    square exceeds the threshold, nothing is kept but what is no token.
    """
    squares = log_ratios.double() ** 2
    ascending = squares[mask.bool()].sort().values
    means = ascending.cumsum(0) / torch.arange(1, len(ascending) + 1, device=ascending.device)
    kept = int((means <= threshold).sum())  # the means ascend too
    return squares < ascending[kept] if kept < len(ascending) else torch.ones_like(squares, dtype=torch.bool)
