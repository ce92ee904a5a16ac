"""Positive and negative rollouts by their rewards, for regimes on pairs, groups and single rollouts.

A binary reward is the label. Of a scalar one, the best rollouts of a prompt are positive and the worst negative
("Bridging Offline and Online RL", arXiv 2506.21495, section 4.2). Others, and rollouts without a reward, are neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from g2d.verifier.verdict import NO_REFERENCE

if TYPE_CHECKING:
    import pandas as pd


def is_binary(rewards: pd.Series) -> bool:
    """Whether all rewards are 0, 1 or missing."""
    return bool(rewards.dropna().isin((0, 1)).all())


def is_open_ended(rollouts: pd.DataFrame) -> pd.Series:
    """Which rollouts are of open-ended problems."""
    return rollouts["verdict"] == NO_REFERENCE


def labels(rollouts: pd.DataFrame, margin: float | None = None) -> pd.Series:
    """True: positive; False: negative; NA: neither. Indexed as `rollouts`, whose index has no duplicates; NaN is no
    reward.

    Args:
        margin: smallest distance of the best and the worst scalar reward of a prompt; None: above 0.
    """
    open_ended = is_open_ended(rollouts)
    if open_ended.any() and not open_ended.all():  # a batch of both: each kind by its own reward
        verifiable = labels(rollouts[~open_ended])
        return labels(rollouts[open_ended], margin).reindex(rollouts.index).where(open_ended, verifiable)
    reward = rollouts["reward"]
    if is_binary(reward):
        return (reward == 1).astype("boolean").mask(reward.isna())
    by_prompt = reward.groupby(rollouts["problem_id"])
    best, worst = by_prompt.transform("max"), by_prompt.transform("min")
    apart = (best > worst) & (best - worst >= (margin or 0))
    return (reward == best).astype("boolean").where(apart & ((reward == best) | (reward == worst)))


def lengths(rollouts: pd.DataFrame) -> tuple[float | None, float | None]:
    """Mean length in tokens of positive and of negative rollouts; None without any.

    Of a mixed batch it is that of open-ended prompts. Where the first is larger, a reward pays for length.
    """
    open_ended = is_open_ended(rollouts)
    if open_ended.any():
        rollouts = rollouts[open_ended]
    tokens, label = rollouts["token_count"], labels(rollouts)
    best, worst = (tokens[label.eq(side).fillna(False)] for side in (True, False))
    return (float(best.mean()) if len(best) else None), (float(worst.mean()) if len(worst) else None)
