"""Record of training rollouts and their rewards, one row per completion."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from g2d.jobs.files import atomic
from g2d.rewards.reward import Judgement
from g2d.rewards.training_reward import Completion, completion_text
from g2d.verifier import Verification

if TYPE_CHECKING:
    import pandas as pd
    from transformers import TrainerState

COLUMNS = (
    "step",  # first gradient step that used it
    "problem_id",
    "sample",  # number among the completions of its problem: of a generation in GRPO, else of a group
    "token_count",
    "finish_reason",
    "verdict",
    "reward",  # the verdict is always the verifier's
    "extracted_answer",
    "completion_text",  # of the first group of a generation or update, else null
)


NUMBERS = {"step": "int64", "generated_at": "int64", "sample": "int64", "token_count": "int64", "reward": "float64"}


class Record:
    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = [*columns]
        self.frames: list[pd.DataFrame] = []

    def texts(self, prompts: Sequence[str], texts: Sequence[str]) -> list[str | None]:
        """Return the texts of the first prompt, and None for the others, which would fill the disk."""
        return [text if prompt == prompts[0] else None for prompt, text in zip(prompts, texts, strict=True)]

    def add(self, drawn: pd.DataFrame) -> None:
        self.frames.append(drawn[self.columns])

    def save(self, path: Path) -> None:
        import pandas as pd

        frame = pd.concat(self.frames) if self.frames else pd.DataFrame(columns=self.columns)
        types = {name: NUMBERS.get(name, "string[pyarrow]") for name in self.columns}
        with atomic(path) as draft:
            frame.astype(types).to_parquet(draft, index=False)

    def restore(self, path: Path) -> None:
        import pandas as pd

        self.frames = [pd.read_parquet(path)]


class TrainingRollouts(Record):
    """Records every completion that the reward judges.

    Args:
        period: steps that train on rollouts of the same weights. Above 1, rows have `generated_at`: the first step
            after the one that produced these weights.
        statuses: add `reward_status`; rewards may then be NaN.
    """

    def __init__(self, eos_token_ids: Collection[int], *, period: int = 1, statuses: bool = False) -> None:
        self.eos_token_ids = frozenset(eos_token_ids)
        self.period = period
        columns = [*COLUMNS]
        if period > 1:
            columns.append("generated_at")
        if statuses:
            columns.append("reward_status")
        super().__init__(columns)

    def record(
        self,
        verifications: Sequence[Verification],
        *,
        rewards: Sequence[Judgement],
        completions: Sequence[Completion],
        completion_ids: Sequence[Sequence[int]],
        problem_id: Sequence[str],
        trainer_state: TrainerState,
        **columns: object,
    ) -> None:
        import pandas as pd

        step = trainer_state.global_step
        texts = self.texts(problem_id, [completion_text(text) for text in completions])
        rows: list[dict[str, object]] = []
        judged = zip(problem_id, verifications, rewards, completion_ids, texts, strict=True)
        for problem, verification, judgement, tokens, text in judged:
            has_ended = bool(tokens) and tokens[-1] in self.eos_token_ids
            rows.append(
                {
                    "step": step + 1,
                    "problem_id": problem,
                    "token_count": len(tokens),
                    "finish_reason": "stop" if has_ended else "length",
                    "verdict": verification.verdict,
                    "reward": judgement.reward,
                    "reward_status": judgement.status,
                    "extracted_answer": verification.extracted_answer,
                    "completion_text": text,
                    "generated_at": step - step % self.period + 1,
                }
            )
        frame = pd.DataFrame(rows)
        self.add(frame.assign(sample=frame.groupby("problem_id").cumcount()))

    def consumed_at(self, steps: Sequence[int]) -> None:
        self.frames[-1] = self.frames[-1].assign(step=steps)


def read_ages(path: str | Path) -> pd.DataFrame:
    """Return `step` and `generated_at` of each completion; without stale rollouts they are equal."""
    import pandas as pd
    import pyarrow.parquet

    columns = pyarrow.parquet.read_schema(path).names
    rows = pd.read_parquet(path, columns=[name for name in ("step", "generated_at") if name in columns])
    return rows if "generated_at" in rows else rows.assign(generated_at=rows["step"])
