"""Rewards of checkpoints at equal length, by which one of them is selected on development prompts.

An analysis of covariance: the slope of the reward on the length between replies of one checkpoint to one prompt is
taken out. "Bridging Offline and Online RL" (arXiv 2506.21495, sections 3.1 and 4.2) selects by length-normalised
rewards and gives no formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class AtEqualLength:
    """Rewards of candidates, each (n_candidates,); prompts have equal weights."""

    rewards: np.ndarray  # as they would be at the mean length of all candidates
    raw: np.ndarray  # as they are
    lengths: np.ndarray  # mean length
    slope: float  # reward for one more unit of length


def at_equal_length(rewards: np.ndarray, lengths: np.ndarray) -> AtEqualLength:
    """The rewards of several candidates at equal length.

    Where no two replies of a candidate to a prompt differ in length, the slope is 0.

    Args:
        rewards: (n_candidates, n_prompts, n_samples), all to the same prompts; NaN where the judge gave none.
        lengths: of the same shape.

    Raises:
        ValueError: there is no prompt of which every candidate has a reward.
    """
    everywhere = np.isfinite(rewards).any(axis=2).all(axis=0)
    if not everywhere.any():
        raise ValueError("no prompt has a reply of every checkpoint that was judged: look at reward_status of them")
    rewards = rewards[:, everywhere]
    lengths = np.where(np.isfinite(rewards), lengths[:, everywhere], np.nan)
    reward_of_cell, length_of_cell = (np.nanmean(values, axis=2) for values in (rewards, lengths))
    longer = np.nan_to_num(lengths - length_of_cell[..., None])
    better = np.nan_to_num(rewards - reward_of_cell[..., None])
    spread = float((longer**2).sum())
    slope = float((longer * better).sum()) / spread if spread else 0.0
    raw, mean_lengths = reward_of_cell.mean(axis=1), length_of_cell.mean(axis=1)
    return AtEqualLength(raw - slope * (mean_lengths - mean_lengths.mean()), raw, mean_lengths, slope)
