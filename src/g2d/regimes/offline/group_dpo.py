"""GroupDPO on a harvest: DPO's loss over all pairs of a right and a wrong rollout (arXiv 2506.21495, equation 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import model_validator

from g2d.memory.workload import Training
from g2d.problems import Problem
from g2d.regimes.offline.groups import ROLLOUTS_AT_ONCE, Group, GroupLoss, RolloutsAtOnce, groups
from g2d.regimes.offline.training import read_harvest, train_offline
from g2d.regimes.regime import OfflineEntry, Regime
from g2d.regimes.run.job import Trained, TrainingJob
from g2d.regimes.run.microbatches import MicroBatches, longest
from g2d.regimes.run.prompts import prompt_order
from g2d.regimes.run.training import OptimizerKeys
from g2d.rollouts.pairs import require_known_problems
from g2d.settings import key

if TYPE_CHECKING:
    import pandas as pd


class GroupDpo(OptimizerKeys, GroupLoss, OfflineEntry):
    """DPO on all pairs of a prompt's rollouts, each prompt with the same weight."""

    gradient_accumulation_steps: ClassVar[int] = 1  # the trainer splits an update into passes
    regime: Literal["group_dpo"] = key(..., "Train on every pair of a right and a wrong rollout.")
    pairs: Literal["one", "all"] = key("all", "One random pair per prompt, or all pairs of right and wrong rollouts.")
    epochs: int = key(3, "Passes over the pairable prompts.", ge=1)
    max_steps: int | None = key(None, "Gradient steps, instead of `epochs`.", unit="steps", ge=1)
    prompts_per_update: int = key(16, "Pairable prompts per gradient step.", unit="prompts", ge=1)
    learning_rate: float = key(5e-5, "Peak learning rate.", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.")
    per_device_batch_size: RolloutsAtOnce = key("auto", ROLLOUTS_AT_ONCE, auto=8)

    @model_validator(mode="after")
    def _offline(self) -> GroupDpo:
        if self.grpo_weight:
            raise ValueError(
                "grpo_weight: GRPO's loss needs rollouts of the current policy, not of a harvest: set it to 0, or use "
                "semi_online_dpo with sync_every: 1"
            )
        return self

    def gradient_steps(self, n_groups: int) -> int:
        return self.max_steps or math.ceil(self.epochs * n_groups / self.prompts_per_update)

    def sequences(self, samples: int, pairable: float) -> float:
        return pairable * samples

    def on_card(self, group_size: int, budget: int) -> Training:
        update = self.prompts_per_update * group_size if self.per_device_batch_size == "auto" else None
        return replace(super().on_card(group_size, budget), update=update, passes="groups")


def harvested_groups(rollouts: pd.DataFrame, problems: Sequence[Problem], settings: GroupDpo, seed: int) -> list[Group]:
    """Return the groups of a harvest's pairable prompts; a ValueError if there are none."""
    require_known_problems(rollouts, problems)
    names = {*rollouts["problem_id"]}
    harvested = [problem.problem_id for problem in problems if problem.problem_id in names]
    pairable = groups(rollouts, harvested, which=settings.pairs, seed=seed, margin=settings.margin)
    if not pairable:
        raise ValueError(
            f"no prompt of the {len(harvested)} harvested has both a right and a wrong rollout: nothing to learn from; "
            "choose other calibration.levels, a higher harvest.temperature or a larger harvest.max_completion_length"
        )
    return pairable


def read_group_dpo(job: TrainingJob, inputs: Any) -> list[Group]:
    return harvested_groups(*read_harvest(job, inputs), job.settings, job.seed)


def train_group_dpo(job: TrainingJob) -> Trained:
    group_dpo: GroupDpo = job.settings
    all_groups: Sequence[Group] = job.data
    steps, per_update = group_dpo.gradient_steps(len(all_groups)), group_dpo.prompts_per_update
    n_rows = steps * per_update if group_dpo.max_steps else group_dpo.epochs * len(all_groups)
    order = prompt_order(len(all_groups), n_rows, job.seed)

    def updates(step: int) -> tuple[list[Group], int, dict[str, Any]]:
        selected = [all_groups[i] for i in order[step * per_update : (step + 1) * per_update]]
        return selected, len(selected), {"pairs": sum(len(group.pairs) for group in selected)}

    def trainer(arguments: dict[str, Any], microbatches: MicroBatches, **parts: Any) -> Any:
        from trl import DPOConfig

        from g2d.regimes.offline.group_trainer import GroupTrainer

        fixed = {"num_train_epochs": 1, "max_steps": steps}
        configured = DPOConfig(**arguments | fixed, beta=group_dpo.beta, disable_dropout=False)
        return GroupTrainer(args=configured, updates=updates, loss=group_dpo, microbatches=microbatches, **parts)

    rows = [{"update": step} for step in range(steps)]
    completions = [group.completions for group in all_groups]
    lengths = longest((group.prompt for group in all_groups), chain.from_iterable(completions))
    return train_offline(
        "group_dpo",
        job,
        rows,
        data={"groups": [{name: getattr(group, name) for name in Group.__slots__} for group in all_groups]},
        statistics={"n_pairs": sum(len(group.pairs) for group in all_groups)},
        trainer=trainer,
        lengths=lengths,
        responses=max(map(len, completions)),
    )


GROUP_DPO = Regime(
    name="group_dpo",
    version=3,
    phase="offline",
    consumes="rollouts",
    settings=GroupDpo,
    read=read_group_dpo,
    train=train_group_dpo,
    label="GroupDPO",
    card="GroupDPO ({regime}) on all pairs of rollouts harvested {harvested}",
    message="Train {wildcards.model} on all pairs "
    "at K={wildcards.k} ({wildcards.variant}{wildcards.regime}), G={wildcards.g}, seed {wildcards.seed}",
)
