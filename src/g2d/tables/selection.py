"""Selected checkpoints as a table: every candidate with what it scored on the development problems, and the choice.

The highest score is chosen, of equal ones the smallest K. The score is the accuracy on verifiable prompts, the reward
at equal length on open-ended ones (`g2d.analysis.equal_length`), and the mean of both where a training asks both
("Bridging Offline and Online RL", arXiv 2506.21495, section 3.3). The chosen score is biased upwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis.equal_length import at_equal_length
from g2d.analysis.statistics import accuracy_interval
from g2d.experiment.keys import PolicyKey
from g2d.tables.frames import floats, frame, integers, strings

CHARACTERS = 1000  # as many as `length_penalty` of a reward model is about

CANDIDATE_COLUMNS = {
    **integers("K"),
    "n_problems": "Int64",
    **floats("accuracy", "ci_low", "ci_high"),
    **dict.fromkeys(("n_prompts", "not_judged"), "Int64"),
    **floats("reward", "length", "reward_per_1000", "reward_at_equal_length", "score"),
    "chosen": "bool",
}
SELECTION_COLUMNS = {
    **strings("model", "policy"),
    **dict.fromkeys(("group_size", "seed"), "Int64"),
    **CANDIDATE_COLUMNS,
}
OF_REPLIES = ("problem_id", "sample", "completion_text", "reward")


def checkpoint_table(
    steps: Sequence[int], answers: Sequence[pd.DataFrame], replies: Sequence[pd.DataFrame]
) -> pd.DataFrame:
    """The candidates of one training.

    Args:
        steps: K of each, ascending.
        answers: of each, to the verifiable development problems; empty where none are asked.
        replies: of each, to the open-ended ones, with the scores of what judged them in training; empty likewise.

    Returns:
        `CANDIDATE_COLUMNS`, one row per candidate: accuracy with the 95 % interval of `main_table`, for one seed; of
        open-ended prompts, the mean reward and the mean length in characters, the reward that 1,000 characters more
        bring (reward_per_1000, the same for all) and the reward at equal length; replies without a reward are counted
        in not_judged. What is not asked is null.

    Raises:
        ValueError: candidates answered different problems, or nothing of theirs was judged.
    """
    rows: list[dict[str, Any]] = [{"K": k} for k in steps]
    scores = []
    if answers:
        scores.append(_accuracies(rows, answers))
    if replies:
        scores.append(_rewards(rows, replies))
    score = np.mean(scores, axis=0)
    for number, row in enumerate(rows):
        row |= {"score": score[number], "chosen": number == int(np.argmax(score))}
    return frame(rows, CANDIDATE_COLUMNS)


def _accuracies(rows: Sequence[dict[str, Any]], answers: Sequence[pd.DataFrame]) -> np.ndarray:
    """Add what verifiable prompts say, and return it."""
    correct = [own.groupby("problem_id", sort=True)["reward"].mean() for own in answers]
    _require_same(correct)
    for row, own in zip(rows, correct, strict=True):
        low, high = accuracy_interval(own.to_numpy()[None])
        row |= {"n_problems": len(own), "accuracy": own.mean(), "ci_low": low, "ci_high": high}
    return np.array([own.mean() for own in correct])


def _rewards(rows: Sequence[dict[str, Any]], replies: Sequence[pd.DataFrame]) -> np.ndarray:
    """Add what open-ended prompts say, and return the rewards at equal length."""
    indexed = [own.set_index(["problem_id", "sample"]).sort_index() for own in replies]
    _require_same(indexed)
    rewards = np.stack([own["reward"].unstack("sample").to_numpy(dtype=float) for own in indexed])
    texts = [own["completion_text"].str.len() for own in indexed]
    found = at_equal_length(rewards, np.stack([own.unstack("sample").to_numpy(dtype=float) for own in texts]))
    for number, row in enumerate(rows):
        row |= {"n_prompts": rewards.shape[1], "not_judged": int(indexed[number]["reward"].isna().sum())}
        row |= {"reward": found.raw[number], "length": found.lengths[number]}
        row |= {"reward_per_1000": CHARACTERS * found.slope, "reward_at_equal_length": found.rewards[number]}
    return found.rewards


def _require_same(candidates: Sequence[pd.Series[Any] | pd.DataFrame]) -> None:
    if any(not own.index.equals(candidates[0].index) for own in candidates):
        raise ValueError("checkpoints answered different development problems: have all answer the same file")


def selection_table(candidates: Mapping[PolicyKey, pd.DataFrame]) -> pd.DataFrame:
    """The candidates of every training.

    Args:
        candidates: by the policy that was selected, from `checkpoint_table`.

    Returns:
        `SELECTION_COLUMNS`, one row per selected policy and candidate.
    """
    rows = []
    for key, table in candidates.items():
        names = {"model": key.model, "policy": key.label, "group_size": key.group_size, "seed": key.seed}
        rows += [{**names, **row} for row in table.to_dict("records")]
    return frame(rows, SELECTION_COLUMNS)
