"""Which rollouts are to be imitated and which to be avoided, by their rewards: what every regime on pairs, groups or
single rollouts asks.

A binary reward says it itself. Of a scalar one, the best of a prompt stand against its worst ("Bridging Offline and
Online RL", arXiv 2506.21495, section 4.2), and what lies between is neither. A rollout without a reward is neither too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from g2d.verifier.verdict import NO_REFERENCE

if TYPE_CHECKING:
    import pandas as pd


def is_binary(rewards: pd.Series) -> bool:
    """Whether there is nothing but 0 and 1 among the rewards that are there."""
    return bool(rewards.dropna().isin((0, 1)).all())


def is_open_ended(rollouts: pd.DataFrame) -> pd.Series:
    """Which rollouts are of problems without a right answer, where a scalar reward judges."""
    return rollouts["verdict"] == NO_REFERENCE


def labels(rollouts: pd.DataFrame, margin: float | None = None) -> pd.Series:
    """True: to be imitated; False: to be avoided; NA: neither. Indexed as `rollouts`.

    Args:
        rollouts: problem_id, reward and verdict are read; NaN is no reward. The index has no duplicates.
        margin: of a scalar reward, how far the best and the worst of a prompt are apart at least; any distance if None.
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
    """Mean length in tokens of what is to be imitated and of what is to be avoided; None of nothing.

    Of a mixed batch it is that of open-ended prompts. Where the first is larger, a reward pays for length: "Bridging
    Offline and Online RL" (arXiv 2506.21495, section 4.2) sees completions grow under a reward model.
    """
    open_ended = is_open_ended(rollouts)
    if open_ended.any():
        rollouts = rollouts[open_ended]
    tokens, label = rollouts["token_count"], labels(rollouts)
    best, worst = (tokens[label.eq(side).fillna(False)] for side in (True, False))
    return (float(best.mean()) if len(best) else None), (float(worst.mean()) if len(worst) else None)
