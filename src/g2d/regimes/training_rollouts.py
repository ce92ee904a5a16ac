"""The rollouts of training as records: what it was rewarded for, step by step, one Parquet row per completion."""

from __future__ import annotations

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


class Record:
    """The rows of the steps since the checkpoint of the K before, a frame of each draw.

    Args:
        keep: nothing, the rows, the rows with the text of one prompt of a draw, or with all texts.
    """

    def __init__(self, keep: Keep, columns: Sequence[str]) -> None:
        self.keep, self.columns = keep, [*columns]
        self.frames: list[pd.DataFrame] = []

    def texts(self, prompts: Sequence[str], texts: Sequence[str], *, sampled: bool = True) -> list[Any]:
        """The texts of a draw that are kept, given the names of their prompts, of which the first is the `sampled` one;
        None for the others."""
        of = {"completions": {*prompts}, "sampled": {*prompts[:1]} if sampled else set()}.get(self.keep, set())
        return [text if prompt in of else None for prompt, text in zip(prompts, texts, strict=True)]

    def add(self, drawn: pd.DataFrame) -> None:
        """Keep the columns of a draw."""
        if self.keep != "none":
            self.frames.append(drawn[self.columns])

    def save(self, path: Path) -> None:
        """Write the rows; a column without a value has no type of its own."""
        import pandas as pd

        frame = pd.concat(self.frames) if self.frames else pd.DataFrame(columns=self.columns)
        numbers = dict.fromkeys(("step", "generated_at", "sample", "token_count"), "int64") | {"reward": "float64"}
        types = {name: numbers.get(name, "string[pyarrow]") for name in self.columns}
        with atomic(path) as draft:
            frame.astype(types).to_parquet(draft, index=False)

    def restore(self, path: Path) -> None:
        """Go on from rows that were saved."""
        import pandas as pd

        self.frames = [pd.read_parquet(path)]


class TrainingRollouts(Record):
    """Collects a row of every completion that the reward judges: `TrainingReward(..., on_judged=rollouts.record)`.

    Args:
        eos_token_ids: tokens that end a completion.
        stale: whether rollouts may be of an older policy than the one they train; the rows then have one more column,
            `generated_at`, the first step after the one that left the policy it was drawn from.
        lag: steps that this policy is behind at every generation.
        statuses: whether a reward may have no number; the rows then have a column `reward_status`, and NaN for it.
    """

    def __init__(
        self, eos_token_ids: Collection[int], keep: Keep, *, stale: bool = False, lag: int = 0, statuses: bool = False
    ) -> None:
        self.eos_token_ids, self.lag = frozenset(eos_token_ids), lag
        more = {"generated_at": stale, "reward_status": statuses}
        super().__init__(keep, [*COLUMNS, *(name for name, there in more.items() if there)])

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
        import pandas as pd

        step = trainer_state.global_step
        texts = self.texts(problem_id, [completion_text(text) for text in completions], sampled=is_first())
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
                "completion_text": text,
                "generated_at": max(0, step - self.lag) + 1,
            }
            for problem, judgement, rewarded, tokens, text in zip(
                problem_id, judgements, rewards, completion_ids, texts, strict=True
            )
        ]
        frame = pd.DataFrame(gathered(rows))
        self.add(frame.assign(sample=frame.groupby("problem_id").cumcount()))

    def leave_out(self, rows: Collection[int]) -> None:
        """Drop some of the completions that were judged last: those that were not drawn for this training."""
        if self.keep != "none":
            self.frames[-1] = self.frames[-1].drop(index=[*rows])

    def consumed_at(self, steps: Sequence[int]) -> None:
        """Say which gradient step consumes each completion of the last generation, in the order of the judgements."""
        if self.keep != "none":
            self.frames[-1] = self.frames[-1].assign(step=steps)


def read_ages(path: str | Path) -> Any:
    """`step` and `generated_at` of every completion of a training's record; the step where it has no other column."""
    import pandas as pd
    import pyarrow.parquet

    there = pyarrow.parquet.read_schema(path).names
    rows = pd.read_parquet(path, columns=[name for name in ("step", "generated_at") if name in there])
    return rows if "generated_at" in rows else rows.assign(generated_at=rows["step"])
