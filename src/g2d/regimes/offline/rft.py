"""Rejection-sampling fine-tuning: SFT on distinct right completions of a harvest (arXiv 2308.01825, section 3.3).

Completions that were cut off would teach text after the box.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from g2d.jobs.snakemake_jobs import Values
from g2d.memory.workload import MicroBatches
from g2d.problems import Problem
from g2d.regimes.common.microbatches import longest
from g2d.regimes.common.offline import read_harvest, train_offline
from g2d.regimes.common.regime import OfflineEntry, Regime, Trained, TrainingJob
from g2d.regimes.offline.pairs import read_own_pairs
from g2d.rollouts.pairs import Pair, labels, require_known_problems
from g2d.rollouts.rollout import IDS
from g2d.settings import key

if TYPE_CHECKING:
    import pandas as pd
    from transformers import Trainer


class Rft(OfflineEntry):
    """Rejection-sampling fine-tuning: SFT on right completions of the harvest."""

    regime: Literal["rft"] = key(..., "Fine-tune on right completions.")
    examples: Literal["correct", "chosen"] = key(
        "correct",
        "Right completions that were not cut off (correct), or the chosen ones of DPO's pairs.",
        neutral="correct",
    )

    @property
    def needs_pairs(self) -> bool:
        return self.examples == "chosen"


IGNORED = -100  # label without loss


class RightCompletion(TypedDict):
    prompt_ids: list[int]
    completion_ids: list[int]


def right_completions(rollouts: pd.DataFrame, problems: Sequence[Problem]) -> list[RightCompletion]:
    """Return distinct right completions that were not cut off; a ValueError if a rollout's problem is missing."""
    require_known_problems(rollouts, problems)
    to_imitate = labels(rollouts).fillna(False).astype(bool)
    right = rollouts[to_imitate & (rollouts["finish_reason"] != "length")].sort_values("sample")
    by_text: dict[str, dict[str, RightCompletion]] = {}  # keys: problem_id, text
    for row in right[["problem_id", "completion_text", *IDS]].itertuples(index=False, name=None):
        name, text, prompt, completion = row
        example = RightCompletion(prompt_ids=prompt.tolist(), completion_ids=completion.tolist())
        by_text.setdefault(name, {}).setdefault(text, example)
    examples: list[RightCompletion] = []
    for problem in problems:
        examples += by_text.get(problem.problem_id, {}).values()
    return examples


def chosen_completions(pairs: Sequence[Pair]) -> list[RightCompletion]:
    return [RightCompletion(prompt_ids=pair["prompt_ids"], completion_ids=pair["chosen_ids"]) for pair in pairs]


def read_rft(job: TrainingJob[Rft, None], inputs: Values) -> list[RightCompletion]:
    if job.settings.needs_pairs:
        return chosen_completions(read_own_pairs(job, inputs))
    return right_completions(*read_harvest(job, inputs))


def labelled(example: RightCompletion) -> dict[str, list[int]]:
    """Return a row of the data set; the prompt has no loss."""
    prompt = example["prompt_ids"]
    completion = example["completion_ids"]
    return {"input_ids": [*prompt, *completion], "labels": [IGNORED] * len(prompt) + [*completion]}


def train_rft(job: TrainingJob[Rft, list[RightCompletion]]) -> Trained:
    examples = job.data
    rows = [labelled(example) for example in examples]

    def trainer(arguments: dict[str, object], microbatches: MicroBatches, **parts: object) -> Trainer:
        from trl import SFTConfig, SFTTrainer

        from g2d.regimes.common.by_length import PassesByLength
        from g2d.regimes.common.checkpoints import Checkpointed
        from g2d.regimes.common.trl_private import require_private_names

        require_private_names(SFTTrainer)

        class ExampleTrainer(Checkpointed, PassesByLength, SFTTrainer):
            """SFT; the loss is a mean over the tokens of a gradient step."""

        return ExampleTrainer(microbatches=microbatches, args=SFTConfig(**arguments, packing=False), **parts)

    prompts = [example["prompt_ids"] for example in examples]
    completions = [example["completion_ids"] for example in examples]
    return train_offline(
        job,
        rows,
        statistics={"n_completions": len(rows)},
        trainer=trainer,
        lengths=longest(prompts, completions),
    )


RFT = Regime(
    name="rft",
    version=1,
    phase="offline",
    settings=Rft,
    read=read_rft,
    train=train_rft,
    label="RFT",
)
