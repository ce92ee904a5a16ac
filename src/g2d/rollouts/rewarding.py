"""Rewards of rollouts for training, in addition to the verifier's verdicts.

A judgement depends on the rollout's group, its position in the group and the seed, so existing rollouts can be judged
by another reward without a model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pandas as pd

from g2d.problems import Problem
from g2d.rewards.catalogue import TRUTH
from g2d.rewards.judging import judge
from g2d.rewards.reward import Attempt, Context
from g2d.settings import Section
from g2d.verifier import Judgement, Verifier

GROUP = ["problem_id", "sample", "completion_text", "verdict", "extracted_answer"]


def with_rewards(
    rollouts: pd.DataFrame,
    problems: Sequence[Problem],
    reward: Section,
    *,
    seed: int,
    stream: str,
    verifier: Verifier,
) -> pd.DataFrame:
    """Add rewards to rollouts, with statuses and details unless the reward is the default; raises the errors of
    `judge`.

    Args:
        rollouts: whole groups, by problem_id.
        seed, stream: as in `Context`.
    """
    if reward == TRUTH:
        return rollouts.assign(reward=(rollouts["verdict"] == "correct").astype("float64"))
    by_id = {problem.problem_id: problem for problem in problems}
    attempts = [
        Attempt(by_id[name], name, int(sample), text, Judgement(verdict, None if pd.isna(answer) else answer))
        for name, sample, text, verdict, answer in zip(*(rollouts[column] for column in GROUP), strict=True)
    ]
    judgements = judge(reward, attempts, Context(verifier, seed, stream))
    details = [json.dumps(dict(judgement.details)) if judgement.details else None for judgement in judgements]
    return rollouts.assign(
        reward=[math.nan if judgement.reward is None else judgement.reward for judgement in judgements],
        reward_status=[judgement.status for judgement in judgements],
        reward_details=pd.Series(details, rollouts.index, dtype="object"),
    )
