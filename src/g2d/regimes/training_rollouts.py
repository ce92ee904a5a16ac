"""The rollouts of training as records: what GRPO was rewarded for, step by step, one Parquet row per completion.

They are collected where every completion passes anyway, in the reward, so both engines leave the same file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from g2d.jobs.files import atomic
from g2d.regimes.processes import gathered, is_first
from g2d.rewards.reward import Judgement as Rewarded
from g2d.rewards.training import Completion, completion_text
from g2d.verifier import Judgement

if TYPE_CHECKING:
    import pandas as pd

Keep = Literal["none", "verdicts", "sampled", "completions"]
COLUMNS = (
    "step",  # gradient step that consumed the completion, from 1; the first of several
    "problem_id",
    "sample",  # 0 .. G-1 within the prompt's group
    "token_count",
    "finish_reason",
    "verdict",
    "reward",  # what training saw; the verdict is the truth whatever was rewarded
    "extracted_answer",
    "completion_text",  # null unless asked for
)


class TrainingRollouts:
    """Collects a row of every completion that the reward judges: `TrainingReward(..., on_judged=rollouts.record)`.

    The data set needs a column `problem_id`.

    Args:
        eos_token_ids: tokens that end a completion.
        keep: nothing, the rows, the rows with the text of one group a generation, or with all texts.
        stale: whether rollouts may be of an older policy than the one they train; the rows then have one more column,
            `generated_at`, the first step after the one that left the policy it was drawn from.
        lag: steps that this policy is behind at every generation.
        statuses: whether a reward may have no number; the rows then have a column `reward_status`, and NaN for it.
    """

    def __init__(
        self,
        eos_token_ids: Collection[int],
        keep: Keep,
        *,
        stale: bool = False,
        lag: int = 0,
        statuses: bool = False,
    ) -> None:
        self.eos_token_ids = frozenset(eos_token_ids)
        self.keep = keep
        self.lag = lag
        self.columns = (*COLUMNS, *(["generated_at"] if stale else []), *(["reward_status"] if statuses else []))
        self.rows: list[dict[str, Any]] = []

    def record(
        self,
        judgements: Sequence[Judgement],
        *,
        rewards: Sequence[Rewarded],
        completions: Sequence[Completion],
        completion_ids: Sequence[Sequence[int]],
        problem_id: Sequence[str],
        trainer_state: Any,
        **columns: Any,
    ) -> None:
        """Keep the completions of one generation step: the verifier's judgements, and what training sees; the other
        arguments have TRL's names."""
        if self.keep == "none":
            return
        with_text = {"completions": set(problem_id), "sampled": set(problem_id[:1]) if is_first() else set()}
        step = trainer_state.global_step
        rows = [
            {
                "step": step + 1,
                "problem_id": problem,
                "token_count": len(tokens),
                "finish_reason": "stop" if tokens and tokens[-1] in self.eos_token_ids else "length",
                "verdict": judgement.verdict,
                "reward": rewarded.reward,
                "reward_status": rewarded.status,
                "extracted_answer": judgement.extracted_answer,
                "completion_text": completion_text(text) if problem in with_text.get(self.keep, ()) else None,
                "generated_at": max(0, step - self.lag) + 1,
            }
            for problem, judgement, rewarded, tokens, text in zip(
                problem_id, judgements, rewards, completion_ids, completions, strict=True
            )
        ]
        seen: Counter[str] = Counter()
        for row in gathered(rows):
            self.rows.append(row | {"sample": seen[row["problem_id"]]})
            seen[row["problem_id"]] += 1

    def leave_out(self, rows: Collection[int], n: int) -> None:
        """Drop some of the n completions that were judged last: those that were not drawn for this training."""
        if self.keep != "none":
            last = self.rows[-n:]
            self.rows[-n:] = [row for place, row in enumerate(last) if place not in rows]

    def consumed_at(self, steps: Sequence[int]) -> None:
        """Say which gradient step consumes each completion of the last generation, in the order of the judgements."""
        if self.keep != "none":
            for row, step in zip(self.rows[-len(steps) :], steps, strict=True):
                row["step"] = step

    def save(self, path: Path) -> None:
        """Write the rows of this job so far: of the steps since the checkpoint of the K before it."""
        import pandas as pd

        write_training_rollouts(path, pd.DataFrame(self.rows, columns=list(self.columns)))

    def restore(self, path: Path) -> None:
        """Go on from rows that were saved."""
        import pandas as pd

        self.rows = [
            {str(name): None if pd.isna(value) else value for name, value in row.items()}
            for row in pd.read_parquet(path).to_dict("records")
        ]


def write_training_rollouts(path: Path, frame: pd.DataFrame) -> None:
    """Write the record of a training; a column without a value has no type of its own."""
    numbers = dict.fromkeys(("step", "generated_at", "sample", "token_count"), "int64") | {"reward": "float64"}
    with atomic(path) as draft:
        frame.astype({name: numbers.get(name, "string[pyarrow]") for name in map(str, frame)}).to_parquet(
            draft, index=False
        )


def read_ages(path: str | Path) -> Any:
    """`step` and `generated_at` of every completion of a training's record; the step where it has no other column."""
    import pandas as pd
    import pyarrow.parquet

    there = pyarrow.parquet.read_schema(path).names
    rows = pd.read_parquet(path, columns=[name for name in ("step", "generated_at") if name in there])
    return rows if "generated_at" in rows else rows.assign(generated_at=rows["step"])
