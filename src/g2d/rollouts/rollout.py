"""A Rollout: one completion of one prompt with its verdict, and its Parquet file format (one row per completion).

Everything statistical downstream (informativeness, pairs, accuracy) is computed from these rows alone, without the
model that wrote them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from g2d.jobs.files import atomic
from g2d.verifier import Verdict

if TYPE_CHECKING:
    import pandas as pd

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion. `reward` is 1 only for the verdict `correct`."""

    problem_id: str
    level: int | None
    reference_answer: str
    sample: int  # 0 .. G'-1 within the prompt
    prompt_text: str  # exactly the bytes the policy saw, chat template included
    completion_text: str
    token_count: int
    finish_reason: FinishReason
    verdict: Verdict
    reward: float
    extracted_answer: str | None
    disputed: bool  # the verifier's second opinion contradicts the reward
    engine: str
    temperature: float  # 0 means greedy
    seed: int
    policy_id: str
    budget_verdicts: str | None = None  # JSON, token budget -> verdict on the completion cut there (`budgets`)


COLUMNS = tuple(field.name for field in fields(Rollout))
BUDGET_VERDICTS = "budget_verdicts"  # evaluations only; null elsewhere, absent from files of before there were budgets
TEXTLESS = tuple(name for name in COLUMNS if name not in ("prompt_text", "completion_text", BUDGET_VERDICTS))


def to_frame(rollouts: Sequence[Rollout]) -> pd.DataFrame:
    """Rows in the given order, columns as in `Rollout`, `level` a nullable integer."""
    import pandas as pd

    frame = pd.DataFrame([asdict(rollout) for rollout in rollouts], columns=list(COLUMNS))
    return frame.astype({"level": "Int64"})


def write_rollouts(path: str | Path, rollouts: pd.DataFrame | Sequence[Rollout]) -> None:
    """Write a Parquet file that pandas, polars and DuckDB read as it is."""
    frame = to_frame(rollouts) if isinstance(rollouts, Sequence) else rollouts
    with atomic(path) as draft:
        frame.to_parquet(draft, index=False)


def read_rollouts(path: str | Path, columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
    """Read rollouts as a frame.

    Args:
        columns: those that are needed; the texts are most of a file.

    Raises:
        ValueError: the file is not Parquet or lacks a column; the message names it.
    """
    import pandas as pd
    import pyarrow.parquet

    try:
        available = pyarrow.parquet.read_schema(path).names
        if missing := [column for column in columns if column not in (*available, BUDGET_VERDICTS)]:
            raise ValueError(f"rollouts lack the column {missing[0]}")
        frame = pd.read_parquet(path, columns=[column for column in columns if column in available])
        return frame if len(frame.columns) == len(columns) else frame.assign(**{BUDGET_VERDICTS: None})
    except Exception as error:  # pyarrow raises several unrelated types for a truncated file
        raise ValueError(
            f"{path}: not a readable file of rollouts ({error}); delete it to have it made again"
        ) from None
