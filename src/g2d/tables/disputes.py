"""Label noise: the answers on which the verifier's second opinion contradicts its verdict."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from g2d.tables.frames import frame, integers, strings

DISPUTE_COLUMNS = {
    **strings("source", "problem_id", "reference_answer", "extracted_answer", "verdict"),
    **integers("n_rollouts"),
}


def dispute_table(rollouts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Label noise, listed: answers on which the verifier's second opinion contradicts the reward.

    Returns:
        `DISPUTE_COLUMNS`, one row per answer, the most frequent first; n_rollouts counts them.
    """
    disputed = [rows[rows["disputed"]].assign(source=source) for source, rows in rollouts.items()]
    disputed = [rows for rows in disputed if not rows.empty]
    if not disputed:
        return frame([], DISPUTE_COLUMNS)
    keys = [name for name in DISPUTE_COLUMNS if name != "n_rollouts"]
    counted = pd.concat(disputed).groupby(keys, sort=True).size().reset_index(name="n_rollouts")
    counted = counted.sort_values("n_rollouts", ascending=False, kind="stable")
    return counted[list(DISPUTE_COLUMNS)].reset_index(drop=True)
