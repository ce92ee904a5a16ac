"""The sweep as a table: every candidate with its accuracy on the development problems, and which one was chosen.

The highest accuracy is chosen. Of several with the same one it is the smallest values, by the first key that differs: a
small rate that does as well as a large one has moved the policy less. The accuracy of what was chosen is the largest of
several that all have noise, so it flatters; nothing else in a report reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from g2d.experiment.keys import PolicyKey
from g2d.experiment.sweep import DEVELOPMENT, Candidate
from g2d.jobs.cost import Cost
from g2d.tables.accuracy import accuracy_row
from g2d.tables.frames import floats, frame, integers, strings

SWEEP_COLUMNS = {
    **strings("model", "swept", "settings"),
    **integers("K"),
    "group_size": "Int64",
    **integers("seed", "n_problems"),
    **floats("accuracy", "ci_low", "ci_high"),
    "chosen": "bool",
    **strings("edge"),
}


def candidate_table(tried: Sequence[tuple[Candidate, PolicyKey]], answers: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The candidates of one model and one swept regime.

    Args:
        tried: in ascending order of their values.
        answers: of each, to the development problems.

    Returns:
        `SWEEP_COLUMNS`, one row per candidate: accuracy and interval as in `main_table`, for one seed; chosen; and for
        that one, edge: the keys whose chosen value is the smallest or the largest tried, so that the best may lie
        beyond it.

    Raises:
        ValueError: the candidates answered different problems.
    """
    asked = [set(own["problem_id"]) for own in answers]
    if any(own != asked[0] for own in asked):
        raise ValueError(f"{tried[0][0].swept}: candidates answered different problems: evaluate all on the same file")
    rows = []
    for (candidate, key), own in zip(tried, answers, strict=True):
        row = accuracy_row({key: own}, {}, DEVELOPMENT)
        row |= {"swept": candidate.swept, "K": candidate.k, "seed": key.seed}
        row |= {"settings": ", ".join(f"{name}={value}" for name, value in candidate.values)}
        rows.append(row)
    place = _first_of_the_best([row["accuracy"] for row in rows])
    for number, row in enumerate(rows):
        row |= {"chosen": number == place, "edge": None}
    rows[place]["edge"] = edge_of(tried[place][0], [candidate for candidate, _ in tried])
    return frame(rows, SWEEP_COLUMNS)


def sweep_table(candidates: Mapping[Any, pd.DataFrame]) -> pd.DataFrame:
    """The tables of all models and swept regimes below each other."""
    return pd.concat(candidates.values(), ignore_index=True)


def sweep_bills(records: Mapping[PolicyKey, Sequence[Cost]], billed: Iterable[Cost]) -> dict[PolicyKey, list[Cost]]:
    """What a sweep cost, by model: its own bill, for what was chosen is used by many policies.

    Args:
        records: the bill of every candidate, its evaluation included.
        billed: the jobs that are on the bills of the grid's own policies, whose harvests candidates share.
    """
    known = {cost.job for cost in billed}
    bills: dict[PolicyKey, dict[str, Cost]] = {}
    for key, bill in records.items():
        own = bills.setdefault(PolicyKey(key.model, "sweep", 0, 0, key.seed, kind="sweep", role="entry"), {})
        own.update({cost.job: cost for cost in bill if cost.job not in known})
    return {key: list(own.values()) for key, own in bills.items()}


def best(table: pd.DataFrame) -> int:
    """The row of the chosen candidate."""
    return list(table["chosen"]).index(True)


def _first_of_the_best(accuracies: Sequence[float]) -> int:
    return max(range(len(accuracies)), key=lambda number: (accuracies[number], -number))


def edge_of(chosen: Candidate, tried: Sequence[Candidate]) -> str | None:
    """Which of the chosen values are the smallest or the largest tried; None where each lies between two others."""
    found = []
    for name, value in chosen.values:
        others = {dict(candidate.values)[name] for candidate in tried}
        if value in ((smallest := min(others)), max(others)):
            found.append(f"{name} is the {'smallest' if value == smallest else 'largest'} tried")
    return ", ".join(found) or None
