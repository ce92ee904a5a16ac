"""A Rollout: one completion of one prompt with its verdict, and its Parquet file format (one row per completion).

Everything statistical downstream (informativeness, pairs, accuracy) is computed from these rows alone, without the
model that wrote them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from g2d.jobs.files import atomic
from g2d.verifier import Verdict

if TYPE_CHECKING:
    import pandas as pd

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion. `reward` is what training sees: 1 for the verdict `correct` and else 0, where no other reward was
    chosen (`g2d.rewards`); `verdict` is the truth, whatever was rewarded."""

    problem_id: str
    level: int | None
    reference_answer: str | None  # None: the problem is open-ended
    sample: int  # 0 .. G'-1 within the prompt
    prompt_text: str  # exactly the bytes the policy saw, chat template included
    completion_text: str
    token_count: int
    finish_reason: FinishReason
    verdict: Verdict
    reward: float  # NaN where the reward had no number, which `reward_status` then says
    extracted_answer: str | None
    disputed: bool  # the verifier's second opinion contradicts the verdict
    engine: str
    temperature: float  # 0 means greedy
    seed: int
    policy_id: str
    budget_verdicts: str | None = None  # JSON, token budget -> verdict on the completion cut there (`budgets`)
    reward_status: str | None = None  # `g2d.rewards.reward.Status`; absent from files that the verifier alone judged
    reward_details: str | None = None  # JSON, what the reward found out; absent from the same
    # What is trained on; absent where nobody trains on the rollouts, and from files of 0.1.0 (`g2d.rollouts.tokens`).
    prompt_ids: tuple[int, ...] | None = None  # the tokens that the policy read
    completion_ids: tuple[int, ...] | None = None  # those it drew, the one that ended the completion included
    tokenizer_sha256: str | None = None  # says which token an id is (`g2d.policies.policy.tokenizer_sha256`)


COLUMNS = tuple(field.name for field in fields(Rollout))
BUDGET_VERDICTS = "budget_verdicts"  # evaluations only; null elsewhere, absent from files of before there were budgets
OF_REWARDS = ("reward_status", "reward_details")
IDS = ("prompt_ids", "completion_ids")  # lists of int32
OF_TOKENS = (*IDS, "tokenizer_sha256")
LEFT_OUT = (*OF_REWARDS, *OF_TOKENS)  # where they are empty
OPTIONAL = (BUDGET_VERDICTS, *LEFT_OUT)
TEXTLESS = tuple(name for name in COLUMNS if name not in ("prompt_text", "completion_text", *OPTIONAL))


def to_frame(rollouts: Sequence[Rollout]) -> pd.DataFrame:
    """Rows in the given order, columns as in `Rollout` but for empty ones of `LEFT_OUT`, `level` a nullable integer,
    `IDS` arrays of int32."""
    import numpy as np
    import pandas as pd

    columns: dict[str, list[Any]] = {name: [getattr(rollout, name) for rollout in rollouts] for name in COLUMNS}
    for name in IDS:
        columns[name] = [None if ids is None else np.array(ids, dtype=np.int32) for ids in columns[name]]
    return without_unused(pd.DataFrame(columns).astype({"level": "Int64"}))


def without_unused(frame: pd.DataFrame) -> pd.DataFrame:
    """Without the columns of `LEFT_OUT` that are empty: the file is then what it was before there were any."""
    return frame.drop(columns=[name for name in LEFT_OUT if name in frame and frame[name].isna().all()])


def write_rollouts(path: str | Path, rollouts: pd.DataFrame | Sequence[Rollout]) -> None:
    """Write a Parquet file that pandas, polars and DuckDB read as it is."""
    frame = to_frame(rollouts) if isinstance(rollouts, Sequence) else rollouts
    kept = without_unused(frame)
    order = [*(name for name in COLUMNS if name in kept), *(name for name in kept if name not in COLUMNS)]
    with atomic(path) as draft:  # in one order, whatever was added when: merged shards are the bytes of a whole draw
        kept[order].to_parquet(draft, index=False)


def read_rollouts(path: str | Path, columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
    """Read rollouts as a frame.

    Args:
        columns: those that are needed; texts and tokens are most of a file. Those of `LEFT_OUT` are not there where the
            file has none.

    Raises:
        ValueError: the file is not Parquet or lacks a column; the message names it.
    """
    import pandas as pd
    import pyarrow.parquet

    try:
        available = pyarrow.parquet.read_schema(path).names
        if missing := [column for column in columns if column not in (*available, *OPTIONAL)]:
            raise ValueError(f"rollouts lack the column {missing[0]}")
        frame = pd.read_parquet(path, columns=[column for column in columns if column in available])
        missing = [column for column in columns if column not in (*available, *LEFT_OUT)]
        return frame.assign(**dict.fromkeys(missing))
    except Exception as error:  # pyarrow raises several unrelated types for a truncated file
        raise ValueError(
            f"{path}: not a readable file of rollouts ({error}); delete it to have it made again"
        ) from None
