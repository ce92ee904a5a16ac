"""Positive and negative rollouts by reward.

A binary reward is the label. For a scalar reward, a prompt's best rollouts are positive and its worst are negative
(arXiv 2506.21495, section 4.2). Others, and rollouts without a reward, are neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from g2d.verifier.verifier import NO_REFERENCE

if TYPE_CHECKING:
    import pandas as pd


def is_binary(rewards: pd.Series) -> bool:
    return bool(rewards.dropna().isin((0, 1)).all())


def is_open_ended(rollouts: pd.DataFrame) -> pd.Series:
    return rollouts["verdict"] == NO_REFERENCE


def labels(rollouts: pd.DataFrame, margin: float | None = None) -> pd.Series:
    """Return True for positive, False for negative and NA for other rollouts, with their (unique) index.

    `margin` is the smallest difference between a prompt's best and worst scalar reward; None: above 0.
    """
    open_ended = is_open_ended(rollouts)
    if open_ended.any() and not open_ended.all():  # a mixed batch: label each kind by its reward
        verifiable = labels(rollouts[~open_ended])
        return labels(rollouts[open_ended], margin).reindex(rollouts.index).where(open_ended, verifiable)
    reward = rollouts["reward"]
    if is_binary(reward):
        return (reward == 1).astype("boolean").mask(reward.isna())
    by_prompt = reward.groupby(rollouts["problem_id"])
    best = by_prompt.transform("max")
    worst = by_prompt.transform("min")
    apart = (best > worst) & (best - worst >= (margin or 0))
    return (reward == best).astype("boolean").where(apart & ((reward == best) | (reward == worst)))


def lengths(rollouts: pd.DataFrame) -> tuple[float | None, float | None]:
    """Return the mean length in tokens of positive and of negative rollouts; None without any.

    A mixed batch uses only its open-ended prompts.
    """
    open_ended = is_open_ended(rollouts)
    if open_ended.any():
        rollouts = rollouts[open_ended]
    tokens = rollouts["token_count"]
    label = labels(rollouts)
    return _mean(tokens[label.eq(True).fillna(False)]), _mean(tokens[label.eq(False).fillna(False)])


def _mean(tokens: pd.Series) -> float | None:
    return float(tokens.mean()) if len(tokens) else None
