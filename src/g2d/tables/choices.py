"""Choices on development problems: settings of a sweep, and the checkpoint of a training (docs/rewards.md).

The best score is chosen, of equal ones the smallest values or K.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis.win_rates import at_equal_length
from g2d.experiment.arms import Arm
from g2d.experiment.keys import PolicyKey
from g2d.experiment.sweep import DEVELOPMENT, Candidate
from g2d.jobs.cost import Cost
from g2d.tables.accuracy import accuracy_row
from g2d.tables.evaluations import share
from g2d.tables.frames import Rows, columns, frame, table_of

SWEEP_COLUMNS = columns("model swept settings K group_size seed n_problems accuracy ci_low ci_high chosen edge")


def candidate_table(tried: Sequence[tuple[Candidate, PolicyKey]], answers: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return a row per candidate of one model and swept regime, in ascending order of values.

    Raises:
        ValueError: the candidates answered different problems.
    """
    problems = [set(rows["problem_id"]) for rows in answers]
    if any(ids != problems[0] for ids in problems):
        raise ValueError(f"{tried[0][0].swept}: candidates answered different problems: evaluate all on the same file")
    rows = []
    for (candidate, key), candidate_answers in zip(tried, answers, strict=True):
        settings = ", ".join(f"{name}={value}" for name, value in candidate.values)
        row = accuracy_row({key: candidate_answers}, DEVELOPMENT)
        row |= {"swept": candidate.swept, "K": candidate.k, "seed": key.seed, "settings": settings}
        rows.append(row | {"chosen": False, "edge": None})
    place = int(np.argmax([row["accuracy"] for row in rows]))  # the first of equal ones
    rows[place] |= {"chosen": True, "edge": edge_of(tried[place][0], [candidate for candidate, _ in tried])}
    return frame(rows, SWEEP_COLUMNS)


@table_of(SWEEP_COLUMNS)
def sweep_table(candidates: Mapping[Any, pd.DataFrame]) -> Rows:
    yield from (row for table in candidates.values() for row in table.to_dict("records"))


def sweep_costs(records: Mapping[PolicyKey, Sequence[Cost]], charged: Iterable[Cost]) -> dict[PolicyKey, list[Cost]]:
    jobs_of_grid = {cost.job for cost in charged}
    by_sweep: dict[PolicyKey, dict[str, Cost]] = {}
    sweep_arm = Arm("sweep", "sweep", "entry")
    for key, costs in records.items():
        sweep = by_sweep.setdefault(PolicyKey.of(key.model, sweep_arm, (0, 0), key.seed), {})
        sweep.update({cost.job: cost for cost in costs if cost.job not in jobs_of_grid})
    return {key: list(sweep.values()) for key, sweep in by_sweep.items()}


def best(table: pd.DataFrame) -> int:
    return list(table["chosen"]).index(True)


def edge_of(chosen: Candidate, tried: Sequence[Candidate]) -> str | None:
    """Name the chosen values that are the smallest or the largest tried; None without any."""
    edges = []
    for name, value in chosen.values:
        others = {dict(candidate.values)[name] for candidate in tried}
        if value in ((smallest := min(others)), max(others)):
            edges.append(f"{name} is the {'smallest' if value == smallest else 'largest'} tried")
    return ", ".join(edges) or None


CHARACTERS = 1000  # unit of `length_penalty` of a reward model

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
    """Return a row per checkpoint of one training, from its answers to verifiable development problems and its scored
    replies to open-ended ones; null if one of them is empty.

    Raises:
        ValueError: checkpoints answered different problems, or no reply was judged.
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
    correct = [candidate.groupby("problem_id", sort=True)["reward"].mean() for candidate in answers]
    _require_same(correct)
    for row, values in zip(rows, correct, strict=True):
        row.update({"n_problems": len(values)} | share(values.to_numpy()[None]))
    return np.array([row["accuracy"] for row in rows])


def _rewards(rows: Sequence[dict[str, Any]], replies: Sequence[pd.DataFrame]) -> np.ndarray:
    indexed = [candidate.set_index(["problem_id", "sample"]).sort_index() for candidate in replies]
    _require_same(indexed)
    rewards = np.stack([candidate["reward"].unstack("sample").to_numpy(dtype=float) for candidate in indexed])
    lengths = [candidate["completion_text"].str.len().unstack("sample").to_numpy(dtype=float) for candidate in indexed]
    adjusted = at_equal_length(rewards, np.stack(lengths))
    for number, row in enumerate(rows):
        row |= {"n_prompts": rewards.shape[1], "not_judged": int(indexed[number]["reward"].isna().sum())}
        row |= {"reward": adjusted.raw[number], "length": adjusted.lengths[number]}
        row |= {"reward_per_1000": CHARACTERS * adjusted.slope, "reward_at_equal_length": adjusted.rewards[number]}
    return adjusted.rewards


def _require_same(candidates: Sequence[pd.Series[Any] | pd.DataFrame]) -> None:
    if any(not candidate.index.equals(candidates[0].index) for candidate in candidates):
        raise ValueError("checkpoints answered different development problems: have all answer the same file")


@table_of(SELECTION_COLUMNS)
def selection_table(candidates: Mapping[PolicyKey, pd.DataFrame]) -> Rows:
    for key, table in candidates.items():
        names = {"model": key.model, "policy": key.label, "group_size": key.group_size, "seed": key.seed}
        yield from [{**names, **row} for row in table.to_dict("records")]
