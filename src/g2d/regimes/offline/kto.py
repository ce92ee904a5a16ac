"""Kahneman-Tversky optimisation on right and wrong rollouts of a harvest (arXiv 2402.01306).

TRL estimates the reference point z0 by pairing every prompt with the previous row's completion, so every epoch has the
same order. Right completions that were cut off are left out: they demonstrate text after the box.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from pydantic import field_validator

from g2d.problems import Problem
from g2d.regimes.offline.training import read_harvest, train_offline
from g2d.regimes.regime import OfflineEntry, Regime
from g2d.regimes.run.job import Trained, TrainingJob
from g2d.regimes.run.microbatches import MicroBatches, longest
from g2d.rollouts.labels import labels
from g2d.rollouts.pairs import require_known_problems, uniform
from g2d.rollouts.rollout import IDS
from g2d.settings import key

if TYPE_CHECKING:
    import pandas as pd


class Kto(OfflineEntry):
    """Kahneman-Tversky optimisation on right and wrong rollouts of the harvest."""

    regime: Literal["kto"] = key(..., "Learn from right and wrong rollouts, unpaired.")
    rollouts: Literal["all", "pairable"] = key("all", "All rollouts of the harvest, or only of pairable prompts.")
    beta: float = key(0.1, "Strength of the reference policy.", gt=0)
    balance: float = key(
        1.0, "Total weight of right rollouts, relative to wrong ones (arXiv 2402.01306: 1 to 4/3).", ge=1, le=4 / 3
    )
    epochs: int = key(1, "Passes over the rollouts.", ge=1)
    max_steps: int | None = key(None, "Gradient steps, instead of `epochs`.", unit="steps", ge=1)
    learning_rate: float = key(5e-5, "Peak learning rate.", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.")
    per_device_batch_size: int = key(
        4, "Rollouts per forward pass and device; the reference point is estimated over them.", ge=2
    )
    gradient_accumulation_steps: int = key(4, "Forward passes per gradient step.", ge=1)

    @field_validator("per_device_batch_size", mode="before")
    @classmethod
    def _is_part_of_the_result(cls, rows: Any) -> Any:
        if rows == "auto":
            raise ValueError("KTO compares the rows of a pass, so their number is part of the result: write a number")
        return rows

    def sequences(self, samples: int, pairable: float) -> float:
        return samples


class Judged(TypedDict):
    prompt_ids: list[int]
    completion_ids: list[int]
    label: bool


def judged_rollouts(
    rollouts: pd.DataFrame, problems: Sequence[Problem], which: Literal["all", "pairable"], seed: int
) -> list[Judged]:
    """Return training rollouts, ordered by the seed; a ValueError if all are right or all are wrong."""
    require_known_problems(rollouts, problems)
    rollouts = rollouts.assign(label=labels(rollouts)).dropna(subset="label")
    right = rollouts["label"].astype(bool)
    kept = rollouts[~(right & (rollouts["finish_reason"] == "length"))]
    if which == "pairable":
        p_hat = right.groupby(rollouts["problem_id"]).mean()
        kept = kept[kept["problem_id"].map(p_hat.between(0, 1, inclusive="neither"))]
    names = ("problem_id", "sample", *IDS, "label")
    drawn = {
        uniform(seed, name, f"kto/{sample}"): Judged(
            prompt_ids=prompt.tolist(), completion_ids=completion.tolist(), label=bool(label)
        )
        for name, sample, prompt, completion, label in zip(*(kept[name] for name in names), strict=True)
    }
    rows = [drawn[number] for number in sorted(drawn)]
    n_right = sum(row["label"] for row in rows)
    if n_right in (0, len(rows)):
        raise ValueError(
            f"KTO needs right and wrong rollouts, and of {len(rollouts)} it has {n_right} that are right and ended by "
            f"themselves and {len(rows) - n_right} wrong ones (rollouts: {which}): choose other calibration.levels, a "
            "higher harvest.temperature or a larger harvest.max_completion_length"
        )
    return rows


def weights(n_right: int, n_wrong: int, balance: float) -> tuple[float, float]:
    """Weights of right and wrong rollouts, the smaller one 1: n_right w_right = balance n_wrong w_wrong (eq. 8)."""
    ratio = balance * n_wrong / n_right
    return max(1.0, ratio), max(1.0, 1 / ratio)


def with_neighbours(rows: Sequence[Judged], batch: int) -> list[dict[str, Any]]:
    """Add the previous row's completion to every row; the first row of a micro-batch gets the last one's."""
    batches = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    return [
        {**row, "KL_completion_ids": part[i - 1]["completion_ids"]} for part in batches for i, row in enumerate(part)
    ]


def read_kto(job: TrainingJob, inputs: Any) -> list[Judged]:
    return judged_rollouts(*read_harvest(job, inputs), job.settings.rollouts, job.seed)


def train_kto(job: TrainingJob) -> Trained:
    kto: Kto = job.settings
    rows: Sequence[Judged] = job.data
    n_right = sum(row["label"] for row in rows)
    n_wrong = len(rows) - n_right
    right, wrong = weights(n_right, n_wrong, kto.balance)

    def trainer(arguments: dict[str, Any], microbatches: MicroBatches, **parts: Any) -> Any:
        from trl import KTOConfig, KTOTrainer

        from g2d.regimes.offline.training import FixedReference, PretokenizedMixin
        from g2d.regimes.run.by_length import RowWeighting

        class JudgedTrainer(PretokenizedMixin, FixedReference, RowWeighting, KTOTrainer):
            def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False) -> Any:
                weights = inputs.pop("weights")
                inputs |= zip(("ref_logps", "ref_KL_logps"), self.reference(model, inputs), strict=True)
                return super()._compute_loss(model, inputs, return_outputs=False) * weights.sum()

        configured = KTOConfig(
            **arguments,
            beta=kto.beta,
            desirable_weight=right,
            undesirable_weight=wrong,
            train_sampling_strategy="sequential",  # rows are compared with the previous one
            disable_dropout=False,  # as in DPO
        )
        made = JudgedTrainer(args=configured, **parts)
        made.precompute_ref_logps = True  # TRL's loss then reads the reference from the batch
        made.model.config.use_cache = False  # TRL leaves it on when it scores a reference
        return made

    read = with_neighbours(rows, kto.per_device_batch_size)
    lengths = longest(*([row[name] for row in rows] for name in ("prompt_ids", "completion_ids")))
    statistics = {"n_right": n_right, "n_wrong": n_wrong}
    return train_offline(
        "kto", job, read, data={"rows": list(rows)}, statistics=statistics, trainer=trainer, lengths=lengths
    )


KTO = Regime(
    name="kto",
    version=3,
    phase="offline",
    in_one_process=True,
    consumes="rollouts",
    settings=Kto,
    read=read_kto,
    train=train_kto,
    label="KTO",
    card="Kahneman-Tversky optimisation ({regime}) on right and wrong rollouts harvested {harvested}",
    message="Train {wildcards.model} on right and wrong rollouts "
    "at K={wildcards.k} ({wildcards.variant}{wildcards.regime}), G={wildcards.g}, seed {wildcards.seed}",
)
