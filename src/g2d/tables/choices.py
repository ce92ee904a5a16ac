"""What is chosen on development problems: the settings that a sweep tried, and the checkpoints of a training.

The best score is chosen; of equal ones the smallest values of a sweep, by the first key that differs, or the smallest
K. That of a checkpoint is the accuracy on verifiable prompts, the reward at equal length on open-ended ones
(`g2d.analysis.win_rates`), and the mean of both where a training asks both (arXiv 2506.21495, section 3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis.win_rates import at_equal_length
from g2d.experiment.keys import PolicyKey
from g2d.experiment.sweep import DEVELOPMENT, Candidate
from g2d.jobs.cost import Cost
from g2d.tables.accuracy import accuracy_row
from g2d.tables.evaluations import share
from g2d.tables.frames import Rows, columns, frame, table_of

SWEEP_COLUMNS = columns("model swept settings K group_size seed n_problems accuracy ci_low ci_high chosen edge")


def candidate_table(tried: Sequence[tuple[Candidate, PolicyKey]], answers: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The candidates of one model and one swept regime, in ascending order of their values, by their answers to the
    development problems: `SWEEP_COLUMNS`, with `edge_of` the chosen one.

    Raises:
        ValueError: the candidates answered different problems.
    """
    asked = [set(own["problem_id"]) for own in answers]
    if any(own != asked[0] for own in asked):
        raise ValueError(f"{tried[0][0].swept}: candidates answered different problems: evaluate all on the same file")
    rows = []
    for (candidate, key), own in zip(tried, answers, strict=True):
        settings = ", ".join(f"{name}={value}" for name, value in candidate.values)
        row = accuracy_row({key: own}, {}, DEVELOPMENT)
        row |= {"swept": candidate.swept, "K": candidate.k, "seed": key.seed, "settings": settings}
        rows.append(row | {"chosen": False, "edge": None})
    place = int(np.argmax([row["accuracy"] for row in rows]))  # of equal ones the first
    rows[place] |= {"chosen": True, "edge": edge_of(tried[place][0], [candidate for candidate, _ in tried])}
    return frame(rows, SWEEP_COLUMNS)


@table_of(SWEEP_COLUMNS)
def sweep_table(candidates: Mapping[Any, pd.DataFrame]) -> Rows:
    """The candidates of all models and swept regimes."""
    yield from (row for own in candidates.values() for row in own.to_dict("records"))


def sweep_bills(records: Mapping[PolicyKey, Sequence[Cost]], billed: Iterable[Cost]) -> dict[PolicyKey, list[Cost]]:
    """What a sweep cost, by model: the bills of its candidates without the jobs that the grid's own policies are billed
    for, whose harvests candidates share."""
    known = {cost.job for cost in billed}
    bills: dict[PolicyKey, dict[str, Cost]] = {}
    for key, bill in records.items():
        own = bills.setdefault(PolicyKey(key.model, "sweep", 0, 0, key.seed, kind="sweep", role="entry"), {})
        own.update({cost.job: cost for cost in bill if cost.job not in known})
    return {key: list(own.values()) for key, own in bills.items()}


def best(table: pd.DataFrame) -> int:
    """The row of the chosen candidate."""
    return list(table["chosen"]).index(True)


def edge_of(chosen: Candidate, tried: Sequence[Candidate]) -> str | None:
    """Which of the chosen values are the smallest or the largest tried; None where each lies between two others."""
    found = []
    for name, value in chosen.values:
        others = {dict(candidate.values)[name] for candidate in tried}
        if value in ((smallest := min(others)), max(others)):
            found.append(f"{name} is the {'smallest' if value == smallest else 'largest'} tried")
    return ", ".join(found) or None


CHARACTERS = 1000  # as many as `length_penalty` of a reward model is about

CANDIDATE_COLUMNS = columns(
    "K n_problems accuracy ci_low ci_high n_prompts not_judged",
    "reward length reward_per_1000 reward_at_equal_length score chosen",
    **dict.fromkeys(("n_problems", "n_prompts", "not_judged"), "Int64"),
)
SELECTION_COLUMNS = columns("model policy group_size seed") | CANDIDATE_COLUMNS
OF_REPLIES = ("problem_id", "sample", "completion_text", "reward")


def checkpoint_table(
    steps: Sequence[int], answers: Sequence[pd.DataFrame], replies: Sequence[pd.DataFrame]
) -> pd.DataFrame:
    """The candidates of one training, by K: `CANDIDATE_COLUMNS`; what is not asked is null.

    Args:
        answers: of each, to the verifiable development problems; empty where none are asked.
        replies: of each, to the open-ended ones, with the scores of what judged them in training; empty likewise.

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
    correct = [own.groupby("problem_id", sort=True)["reward"].mean() for own in answers]
    _require_same(correct)
    for row, own in zip(rows, correct, strict=True):
        row.update({"n_problems": len(own)} | share(own.to_numpy()[None]))
    return np.array([row["accuracy"] for row in rows])


def _rewards(rows: Sequence[dict[str, Any]], replies: Sequence[pd.DataFrame]) -> np.ndarray:
    """Add what open-ended prompts say, and return the rewards at equal length."""
    indexed = [own.set_index(["problem_id", "sample"]).sort_index() for own in replies]
    _require_same(indexed)
    rewards = np.stack([own["reward"].unstack("sample").to_numpy(dtype=float) for own in indexed])
    lengths = [own["completion_text"].str.len().unstack("sample").to_numpy(dtype=float) for own in indexed]
    found = at_equal_length(rewards, np.stack(lengths))
    for number, row in enumerate(rows):
        row |= {"n_prompts": rewards.shape[1], "not_judged": int(indexed[number]["reward"].isna().sum())}
        row |= {"reward": found.raw[number], "length": found.lengths[number]}
        row |= {"reward_per_1000": CHARACTERS * found.slope, "reward_at_equal_length": found.rewards[number]}
    return found.rewards


def _require_same(candidates: Sequence[pd.Series[Any] | pd.DataFrame]) -> None:
    if any(not own.index.equals(candidates[0].index) for own in candidates):
        raise ValueError("checkpoints answered different development problems: have all answer the same file")


@table_of(SELECTION_COLUMNS)
def selection_table(candidates: Mapping[PolicyKey, pd.DataFrame]) -> Rows:
    """The candidates of every training that a policy was selected from."""
    for key, table in candidates.items():
        names = {"model": key.model, "policy": key.label, "group_size": key.group_size, "seed": key.seed}
        yield from [{**names, **row} for row in table.to_dict("records")]
