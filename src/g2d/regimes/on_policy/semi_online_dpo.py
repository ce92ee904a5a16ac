"""Semi-online DPO: DPO on pairs of fresh rollouts, from a generator that is synced every s updates.

s = 1 is online DPO (arXiv 2506.21495, section 3). The reference is M0, or follows the generator (section 4.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from g2d.memory.workload import MicroBatches, Training
from g2d.policies.model_keys import lora_config
from g2d.policies.record import load_tokenizer
from g2d.problems import Problem
from g2d.regimes.common.microbatches import share_prompts_as_chosen
from g2d.regimes.common.online import begin, read_prompts, train_to_k
from g2d.regimes.common.regime import OnlineEntry, Regime, Trained, TrainingJob
from g2d.regimes.common.trainers import (
    OptimizerKeys,
    copy_to_reference,
    load_reference,
    restore_token_count,
    starting_model,
    trainer_arguments,
    with_own_adapter,
)
from g2d.settings import Section, key

if TYPE_CHECKING:
    from g2d.regimes.on_policy.group_trainer import Group, GroupTrainer, Metrics
    from g2d.regimes.on_policy.rollouts import OnPolicyRollouts


class GroupLoss(Section):
    """Loss on groups of rollouts: DPO's, with optional terms (arXiv 2506.21495, sections 3 and 4)."""

    pairs: Literal["one", "all"] = key("one", "One random pair per prompt, or all (GroupDPO).")
    beta: float = key(0.1, "Strength of the reference policy.", paper="0.1 on mathematics", gt=0)
    nll_weight: float = key(
        0.0, "Weight of the chosen rollouts' negative log-likelihood per token.", paper="0, and 1", ge=0
    )
    entropy_coefficient: float = key(
        0.0, "Weight of an entropy bonus: mean token entropy of chosen rollouts.", paper="0, and 1e-4 to 5e-4", ge=0
    )
    grpo_weight: float = key(
        0.0, "alpha: weight of GRPO's loss on the same, on-policy groups (equation 1).", paper="0, 0.001 and 0.01", ge=0
    )
    min_reward_margin: float | None = key(None, "Scalar reward: smallest difference of a pair.", gt=0, neutral=None)
    normalise_by: Literal["pairable", "all"] = key(
        "pairable", "Divide the loss by the prompts with a pair, or by all (the paper's code)."
    )


class SemiOnlineDpo(OptimizerKeys, GroupLoss, OnlineEntry):
    """DPO on fresh rollouts (temperature 1), synced with the policy every `sync_every` updates (arXiv 2506.21495)."""

    regime: Literal["semi_online_dpo"] = key(..., "Train on pairs of fresh rollouts.")
    sync_every: int | Literal["pass", "never"] = key(
        1,
        "s: updates between synchronisations of the generator; pass: over the training set.",
        unit="updates",
        paper="1, 5, 10, 100 and never",
    )
    reference: Literal["base", "start", "sync"] = key(
        "base",
        "M0, the initial policy, or the policy at the last synchronisation.",
        paper="base and sync",
    )
    max_completion_length: int = key(2048, "Token budget of a rollout.", unit="tokens", paper="2048", ge=1)
    batch_size: int = key(64, "Completions per batch with transformers.", ge=1, of_machine=True)
    per_device_batch_size: Annotated[int, Field(ge=2)] | Literal["auto"] = key(
        "auto", "Rollouts per forward pass, in whole groups; auto: as many as fit on the GPU, else 8.", auto=8
    )
    learning_rate: float = key(1e-5, "Peak learning rate.", paper="1e-6, without LoRA", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.", paper="not stated")

    @model_validator(mode="after")
    def _possible(self) -> SemiOnlineDpo:
        if isinstance(self.sync_every, int) and self.sync_every < 1:
            raise ValueError(
                f"sync_every: {self.sync_every} is not a number of updates: write 1 or more, pass or never"
            )
        if self.reference == "sync" and self.sync_every == "never":
            raise ValueError("reference: sync has no effect with sync_every: never: change one")
        if self.reference == "start" and self.start == "base":
            raise ValueError("reference: start is M0 if start is base: write reference: base, or name a start")
        if self.grpo_weight and self.sync_every != 1:
            raise ValueError(
                f"grpo_weight: GRPO's loss needs rollouts of the current policy, but sync_every is {self.sync_every}: "
                "set it to 1, or the weight to 0"
            )
        return self

    def mistakes(self, model: str, n_problems: int, dropout: float) -> Iterator[str]:
        yield from super().mistakes(model, n_problems, dropout)
        if self.sync_every == "pass" and n_problems % self.prompts_per_update:
            yield (
                f"sync_every: pass: training_set.n={n_problems} of {model} is no multiple of prompts_per_update="
                f"{self.prompts_per_update}, so no update ends a pass: change one of them, or write a number"
            )
        if self.reference == "sync" and dropout > 0:
            yield (
                f"reference: sync: with lora.dropout={dropout:g} of {model} the reference, a copy of the policy "
                "without dropout, would differ from it: set lora.dropout to 0 or reference to base"
            )

    def workload(self, group_size: int) -> Training:
        per_update = self.completions_per_step(group_size)
        # At most: a pass over the training set may be shorter.
        at_once = per_update * (self.sync_every if isinstance(self.sync_every, int) else self.total_steps)
        only_pairs = self.pairs == "one" and not self.grpo_weight
        return Training(
            budget=self.max_completion_length,
            rows=self.number("per_device_batch_size"),
            group_rows=2 if only_pairs else self.responses,
            at_once=at_once,
            batch=min(self.batch_size, at_once),
            own_copy=True,
            completions=max(self.steps) * per_update,
            update=per_update if self.per_device_batch_size == "auto" else None,
            passes="groups",
            reference=True,
            adapters=1 if self.reference == "base" else 2,
        )


SemiOnlineJob = TrainingJob[SemiOnlineDpo, list[Problem]]


def train_semi_online_dpo(job: SemiOnlineJob) -> Trained:
    """Train M0, or the policy of `start`, for K updates."""
    from g2d.regimes.on_policy.rollouts import OnPolicyRollouts, seed_after

    checkpoints, microbatches = begin(job)
    if job.start is not None:
        job = replace(job, seed=seed_after(job.seed, job.start))
    on_policy = OnPolicyRollouts(job)
    try:
        arguments = {
            **trainer_arguments(checkpoints.draft, job.seed, job.tracking, job.settings, **microbatches.arguments),
            "max_steps": job.settings.total_steps,
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 1,
        }
        trainer = _trainer(job, on_policy, arguments, microbatches)
        on_policy.sampler.trainer = trainer
        share_prompts_as_chosen(trainer, checkpoints)
        state = State(job, on_policy, trainer)
        return train_to_k(job, trainer, checkpoints, save=state.save, restore=state.restore)
    finally:
        on_policy.close()


class State:
    """State of a training in a checkpoint, besides TRL's: rollouts, the reference, and the tokens to count.

    Tokens of updates before `resume_from` were counted by the job of the K before.
    """

    def __init__(self, job: SemiOnlineJob, on_policy: OnPolicyRollouts, trainer: GroupTrainer) -> None:
        self.job = job
        self.on_policy = on_policy
        self.trainer = trainer
        self.tokens_before = job.meter.tokens_generated
        if job.resume_from is not None:
            self.restore(job.resume_from, same_job=False)

    def save(self, checkpoint: Path) -> None:
        self.on_policy.save(checkpoint)
        self._count_tokens()

    def restore(self, checkpoint: Path, *, same_job: bool = True) -> None:
        self.on_policy.restore(checkpoint, same_job=same_job)
        self._count_tokens()
        restore_token_count(self.trainer, checkpoint)
        adapter = self.on_policy.sampler.adapter
        if self.job.settings.reference == "sync" and adapter is not None:
            load_reference(self.trainer.model, adapter, self.trainer.ref_model)

    def _count_tokens(self) -> None:
        self.job.meter.tokens_generated = self.tokens_before + self.on_policy.tokens_generated


class FreshGroups:
    """Samples the groups of an update. Before it, the generator and the reference follow the policy, if it is due."""

    def __init__(self, job: SemiOnlineJob, on_policy: OnPolicyRollouts) -> None:
        self.settings = job.settings
        self.seed = job.seed
        self.on_policy = on_policy

    def __call__(self, step: int, trainer: GroupTrainer) -> tuple[list[Group], int, Metrics]:
        from g2d.regimes.on_policy.group_trainer import groups, summary

        self._synchronise(step, trainer)
        rollouts = self.on_policy.rollouts_for(step)
        names = rollouts["problem_id"].unique()
        pairable = groups(
            rollouts,
            names,
            which=self.settings.pairs,
            seed=self.seed,
            whole=self.settings.grpo_weight > 0,
            min_reward_margin=self.settings.min_reward_margin,
        )
        return pairable, len(names), summary(rollouts, pairable) | self.on_policy.metrics(step)

    def _synchronise(self, step: int, trainer: GroupTrainer) -> None:
        if step == 0:  # policy, generator and reference are equal
            return
        is_synced = self.on_policy.sampler.sync(step)
        if is_synced and self.settings.reference == "sync":
            copy_to_reference(trainer.accelerator.unwrap_model(trainer.model), trainer.ref_model)


def _trainer(
    job: SemiOnlineJob, on_policy: OnPolicyRollouts, arguments: dict[str, object], microbatches: MicroBatches
) -> GroupTrainer:
    from datasets import Dataset
    from trl import DPOConfig

    from g2d.regimes.on_policy.group_trainer import GroupTrainer

    settings = job.settings
    from_m0 = job.start is not None and settings.reference == "base"  # the reference is not the start of the training
    model = starting_model(job.base, job.start, job.lora)
    reference = None
    adapter = None
    if from_m0 and job.lora.trains_all:
        reference = starting_model(job.base, None, job.lora)
    if job.start is None:
        adapter = lora_config(job.lora)
    if settings.reference == "sync" and adapter is not None:
        model = with_own_adapter(model, job.lora, job.seed)
        adapter = None
    trainer = GroupTrainer(
        model=model,
        ref_model=reference,
        args=DPOConfig(**arguments, beta=settings.beta, max_length=None, disable_dropout=False),
        train_dataset=Dataset.from_list([{"update": step} for step in range(settings.total_steps)]),
        processing_class=load_tokenizer(job.base),
        updates=FreshGroups(job, on_policy),
        nll_weight=settings.nll_weight,
        entropy_coefficient=settings.entropy_coefficient,
        grpo_weight=settings.grpo_weight,
        normalise_by=settings.normalise_by,
        microbatches=microbatches,
        peft_config=adapter,
    )
    if from_m0:
        if not job.lora.trains_all:
            trainer.model.delete_adapter("ref")  # without this copy of `start`, TRL switches the adapter off to get M0
        trainer.begins_at_reference = False
    return trainer


SEMI_ONLINE_DPO = Regime(
    name="semi_online_dpo",
    version=1,
    phase="online",
    settings=SemiOnlineDpo,
    read=read_prompts,
    train=train_semi_online_dpo,
    label="semi-online DPO",
)
