"""Equations of off-policy GRPO (arXiv 2505.22257) that TRL does not have, and weights above the cap.

Tensors have a row per completion, (B,) or (B, T); the completions of a group are neighbours.
"""

from __future__ import annotations

import torch


def population_advantages(rewards: torch.Tensor, group_size: int, of_batch: bool) -> torch.Tensor:
    """Return rewards minus their group's mean, over sqrt(var + 1e-4), (B,); missing ones are NaN and get 0.

    This is eq. 2 without its epsilon. `of_batch` takes the variance of all rewards instead of the group's.
    """
    grouped = rewards.view(-1, group_size)
    centred = grouped - grouped.nanmean(dim=1, keepdim=True)
    if of_batch:
        variance = ((rewards - rewards.nanmean()) ** 2).nanmean()
    else:
        variance = (centred**2).nanmean(1, keepdim=True)
    return (centred / (variance + 1e-4).sqrt()).nan_to_num(nan=0.0).flatten()


def mixed_groups(rewards: torch.Tensor, group_size: int) -> torch.Tensor:
    """Return the mask of completions in groups with different rewards, (B,) (eq. 8).

    Rewards are compared, because advantages have rounding errors. Missing rewards are NaN.
    """
    grouped = rewards.view(-1, group_size)
    lowest = grouped.nan_to_num(nan=torch.inf).amin(dim=1)
    highest = grouped.nan_to_num(nan=-torch.inf).amax(dim=1)
    return (lowest < highest).repeat_interleave(group_size)


def masked_log_ratios(log_probs: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return log-ratios of policy to sampler, as in TRL, (B, T); NaN counts as 0."""
    return ((log_probs - sampled) * mask).nan_to_num(nan=0.0)


def above_cap(log_ratios: torch.Tensor, mask: torch.Tensor, cap: float, *, of_tokens: bool) -> torch.Tensor:
    """Return the number of importance weights above the cap, and the number of weights, (2,)."""
    of_weights = log_ratios[mask.bool()] if of_tokens else log_ratios.sum(dim=1)
    n_above = (of_weights.exp() > cap).sum()
    return torch.stack([n_above, torch.tensor(len(of_weights), device=of_weights.device)])
