"""Staged GRPO (arXiv 2605.17570): all rollouts of a stage are harvested before its updates.

A stage is a harvest by the policy that begins it, and a training on it that continues the previous stage's training.
One stage is offline GRPO on rollouts of M0; as many stages as updates is GRPO.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from g2d.memory.workload import Training
from g2d.problems import Problem
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.regime import Entry, Phase, Regime, Series
from g2d.regimes.run.job import Trained, TrainingJob
from g2d.regimes.run.online import read_prompts
from g2d.regimes.run.prompts import prompt_order
from g2d.settings import MistakeInKeyError, key, repeated
from g2d.settings.mistakes import changed

# Keys of `warmup` that the stages fix, with their values.
FIXED: dict[str, Any] = {
    **{"updates_per_generation": 1, "iterations": 1, "lag": 0, "sync_every": 1, "replay": None},
    **{"retire": None, "resample": 0, "schedule": "chain", "auto": None, "horizon": None},
}
OWN = ("epsilon", "epsilon_high", "negative_veto")  # keys of an entry that replace keys of `warmup`


class Stage(Warmup):
    """Settings of the training of a stage."""

    def on_card(self, group_size: int, budget: int) -> Training:
        return replace(super().on_card(group_size, budget), at_once=None, batch=None)

    def drawn_by(self, *_: Any) -> dict[str, Any]:
        return {}

    def prompts_asked(self, steps: int, group_size: int) -> int:
        # Here `steps` are stages.
        return super().prompts_asked(steps * self.updates_per_generation, group_size)

    def harvested(self, stage: int, n_problems: int) -> dict[str, Any]:
        """Return prompts and samples per problem of a stage's harvest; stages and prompts count from 0."""
        size = self.group_sizes[0]
        prompts = self.prompts_asked(1, size)
        return {
            "number": stage,
            "first": stage * prompts,
            "prompts": prompts,
            "samples": size * max(1, prompts // n_problems),
        }


class StagedGrpo(Entry):
    """GRPO in a few stages of harvest and training (arXiv 2605.17570)."""

    phase: ClassVar[Phase] = "stages"
    regime: Literal["staged_grpo"] = key(..., "Train by GRPO in stages of harvest and updates.")
    stages: list[int] = key(
        ...,
        "Numbers of stages, a policy each; divisors of the updates.",
        paper="about four",
        min_length=1,
    )
    updates: int | None = key(None, "Updates of each policy, a K of `warmup.steps`; null: the largest.", ge=1)
    epsilon: float = key(0.5, "Lower clip of the ratio: 1 - epsilon.", paper="wider than GRPO's", gt=0)
    epsilon_high: float = key(1.0, "Upper clip of the ratio: 1 + epsilon_high.", paper="wider than GRPO's", gt=0)
    negative_veto: float | None = key(
        2.0,
        "In completions with a negative advantage, mask the first token whose ratio exceeds this and all after it; "
        "null: none.",
        paper="yes; value not read",
        gt=1,
    )
    warmup: dict[str, Any] = key({}, "Keys of the warmup section to change.")

    @field_validator("stages")
    @classmethod
    def _ascending(cls, stages: list[int]) -> list[int]:
        if repeated(stages) or min(stages) < 1:
            raise ValueError(f"list every number of stages once, at least 1: {stages}")
        return sorted(stages)

    @field_validator("warmup")
    @classmethod
    def _left_to_it(cls, warmup: dict[str, Any]) -> dict[str, Any]:
        for name in (*FIXED, "steps", "group_sizes"):
            if name in warmup:
                raise MistakeInKeyError(name, "follows from the stages and the warm-up: drop it")
        for name in OWN:
            if name in warmup:
                raise MistakeInKeyError(name, f"the entry has {name} itself: move it there")
        return warmup

    @property
    def steps(self) -> list[int]:
        return self.stages

    def warmup_of(self, common: Warmup, stages: int, where: str = "warmup") -> Stage:
        """Return the settings of so many stages: as many updates as GRPO, on its schedule."""
        last = self.updates or max(common.steps)
        changes = {**FIXED, **self.warmup, **self.params(only={*OWN}), "steps": [last]}
        changes |= {"group_sizes": common.group_sizes[:1], "updates_per_generation": max(1, last // max(1, stages))}
        checked: Warmup = changed(where, common, changes)
        settings = Stage.model_validate(checked.model_dump())
        return settings.model_copy(update={"horizon": common.steps_to(last)})

    def series(self, name: str, common: Warmup) -> Iterator[Series]:
        """Yield a series for each number of stages; K counts the stages."""
        for n in self.stages:
            yield f"{name}/{n}", self.warmup_of(common, n), ((common.group_sizes[0], n),), {*self.warmup, *OWN}

    def mistakes(self, common: Warmup, n_problems: int) -> Iterator[str]:
        """Yield numbers of stages that do not divide a model's updates or training set, with key and fix."""
        last = self.updates or max(common.steps)
        if not last:
            yield "stages: warmup.steps has no K above 0, the number of updates: add one"
            return
        if last not in common.steps:
            yield f"updates: {last} is not in warmup.steps, so no GRPO has as many: write one of {sorted(common.steps)}"
            return
        if uneven := [n for n in self.stages if last % n]:
            yield f"stages: the {last} updates of warmup.steps are no multiple of {uneven[0]} stages: write divisors"
            return
        for n in self.stages:
            prompts = self.warmup_of(common, n).harvested(0, n_problems)["prompts"]
            if prompts % n_problems and n_problems % prompts:
                yield (
                    f"stages: with {n}, a stage has {prompts} prompts, neither a multiple nor a divisor of "
                    f"training_set.n={n_problems}: change either, or warmup.prompts_per_step"
                )


def of_stage(problems: Sequence[Problem], stage: Mapping[str, int], seed: int) -> tuple[list[Problem], int]:
    """Return a stage's problems and the seed of its rollouts, the grid's in the first stage."""
    numbers = _numbers(stage, len(problems), seed)
    return [problems[number] for number in sorted({*numbers})], seed + (stage["number"] << 32)


def _numbers(stage: Mapping[str, int], n_problems: int, seed: int) -> list[int]:
    return prompt_order(n_problems, stage["first"] + stage["prompts"], seed)[stage["first"] :]


def train_staged_grpo(job: TrainingJob) -> Trained:
    """Train stage `job.k`."""
    from g2d.regimes.grpo.generation import RecordedRollouts

    settings: Stage = job.settings
    stage = settings.harvested(job.k - 1, len(job.data))
    numbers = _numbers(stage, len(job.data), job.seed)
    recorded = RecordedRollouts(job, [job.data[number].problem_id for number in numbers])
    return train_grpo(replace(job, k=job.k * settings.updates_per_generation), recorded)


STAGED_GRPO = Regime(
    name="staged_grpo",
    version=1,
    phase="stages",
    in_one_process=True,
    consumes="rollouts",
    settings=StagedGrpo,
    section="warmup",
    read=read_prompts,
    train=train_staged_grpo,
    label="GRPO in stages",
    card="{k} stages of harvest and GRPO ({regime}, group size {group_size})",
    message="Train {wildcards.model} to stage {wildcards.k} of GRPO ({wildcards.regime}), seed {wildcards.seed}",
    unit="stages of harvest and GRPO",
)
