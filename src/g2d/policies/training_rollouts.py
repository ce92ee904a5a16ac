"""The rollouts of training as records: what GRPO was rewarded for, step by step, one Parquet row per completion.

Harvest and evaluation see a policy when it is finished; these rows see it on the way: when groups stop being mixed,
when completions begin to be cut off, which problems are never solved. They are collected where every completion passes
anyway, in the reward, so both engines leave the same file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from g2d.verifier import Judgement
from g2d.verifier.reward import Completion, MathVerifyReward, completion_text

Keep = Literal["none", "verdicts", "completions"]
COLUMNS = (
    "step",  # gradient step that consumed the completion, from 1
    "problem_id",
    "sample",  # 0 .. G-1 within the prompt's group
    "token_count",
    "finish_reason",
    "verdict",
    "reward",
    "extracted_answer",
    "completion_text",  # null unless asked for
)


class RecordedReward(MathVerifyReward):
    """The reward, keeping a row of everything it judges. The data set needs a column `problem_id`.

    Args:
        eos_token_ids: tokens that end a completion.
        keep: nothing, the rows, or the rows with their text.
    """

    def __init__(self, eos_token_ids: Sequence[int], keep: Keep) -> None:
        super().__init__(eos_token_ids=eos_token_ids)
        self.keep = keep
        self.rows: list[dict[str, Any]] = []
        self._judgements: list[Judgement] = []

    def judge(
        self,
        completions: Sequence[Completion],
        answer: Sequence[str],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[Judgement]:
        """The judgements behind the rewards, remembered until they are recorded."""
        self._judgements = super().judge(completions, answer, completion_ids)
        return self._judgements

    def __call__(
        self,
        completions: Sequence[Completion],
        answer: Sequence[str],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[float]:
        """Rewards in the order of the completions."""
        rewards = super().__call__(completions, answer, completion_ids, **columns)
        if self.keep != "none" and completion_ids is not None:
            seen: Counter[str] = Counter()
            for i, problem_id in enumerate(columns["problem_id"]):
                tokens, judgement = completion_ids[i], self._judgements[i]
                self.rows.append(
                    {
                        "step": columns["trainer_state"].global_step + 1,
                        "problem_id": problem_id,
                        "sample": seen[problem_id],
                        "token_count": len(tokens),
                        "finish_reason": "stop" if tokens and tokens[-1] in self.eos_token_ids else "length",
                        "verdict": judgement.verdict,
                        "reward": judgement.reward,
                        "extracted_answer": judgement.extracted_answer,
                        "completion_text": completion_text(completions[i]) if self.keep == "completions" else None,
                    }
                )
                seen[problem_id] += 1
        return rewards


def write_training_rollouts(path: str | Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows of one job: of the steps since the checkpoint it continued."""
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    texts = ["problem_id", "finish_reason", "verdict", "extracted_answer", "completion_text"]
    numbers = {"step": "int64", "sample": "int64", "token_count": "int64", "reward": "float64"}
    # Types are named because a column without a value has none of its own.
    frame.astype(dict.fromkeys(texts, "string[pyarrow]") | numbers).to_parquet(path, index=False)
