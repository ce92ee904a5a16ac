"""How much a job of a plan has to do, and what the estimate knows of those that hold a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from g2d.experiment.plan import Plan
from g2d.experiment.wildcards import Wildcards, model_of, variant_of
from g2d.forecast.guess import guess
from g2d.forecast.hours import GpuJob
from g2d.regimes.warmup import AUTO


def gpu_job(plan: Plan, rule: str, wildcards: Wildcards, shards: Sequence[str]) -> GpuJob | None:
    """What the estimate knows of a job that holds a GPU, or None for any other.

    Args:
        rule: its name.
        wildcards: its own.
        shards: what it merges, if anything.
    """
    if shards or plan.is_embedded(model_of(wildcards)):
        return None
    chained = rule in ("train_grpo", "train_semi_online_dpo")
    return work(plan, rule, wildcards, (plan.continued_from(wildcards) or 0) if chained else 0)


def work(plan: Plan, rule: str, wildcards: Wildcards, before: int) -> GpuJob:
    """How much a job has to do, on whatever device; `before` is the K of the checkpoint that it continues."""
    job = _units(plan, rule, wildcards, before)
    if plan.is_embedded(job.model) or plan.config.models[job.model].source == "recorded" or not job.units:
        return job
    hours = guess(plan.for_model(job.model), job.stage, job.model, wildcards, job.units)
    return replace(job, guess=hours / job.units)


def _units(plan: Plan, rule: str, wildcards: Wildcards, before: int) -> GpuJob:
    model, stage = model_of(wildcards), rule.removesuffix("_shard")
    if stage in ("train_semi_online_dpo", "train_semi_online_dpo_auto"):  # the second makes as many updates at most
        entry = plan.config.regimes[wildcards.regime]
        return GpuJob(stage, model, entry.prompts_asked(int(wildcards.k) - before) * entry.responses)
    if stage in ("train_grpo", "train_grpo_auto"):  # the second takes as many steps at most
        variant = variant_of(wildcards) if stage == "train_grpo" else AUTO
        warmup = plan.for_model(model).warmup_of(variant)
        per_step = warmup.completions_per_step(int(wildcards.g))
        return GpuJob(stage, model, (int(wildcards.k) - before) * per_step, at_most=warmup.iterations > 1)
    if stage == "draw_probe":
        n_prompts = plan.for_model(model).training_set.n
        share = min(plan.config.probe.prompts, n_prompts) / n_prompts
        return GpuJob(stage, model, share, rate_of="harvest_rollouts")
    return GpuJob(stage, model, 1 / int(wildcards.get("shards", 1)))
