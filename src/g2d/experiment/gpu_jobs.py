"""What the estimate knows of every job of a plan that holds a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from g2d.experiment.estimate import GpuJob
from g2d.experiment.plan import Plan
from g2d.experiment.wildcards import Wildcards, model_of, variant_of
from g2d.regimes.warmup import AUTO


def gpu_job(plan: Plan, rule: str, wildcards: Wildcards, shards: Sequence[str]) -> GpuJob | None:
    """What the estimate knows of a job that holds a GPU, or None for any other.

    Args:
        rule: its name.
        wildcards: its own.
        shards: what it merges, if anything.
    """
    model = model_of(wildcards)
    if shards or plan.is_scratch(model):
        return None
    stage = rule.removesuffix("_shard")
    if stage == "train_semi_online_dpo":
        entry, before = plan.config.regimes[wildcards.regime], plan.continued_from(wildcards) or 0
        return GpuJob(stage, model, entry.prompts_asked(int(wildcards.k) - before) * entry.responses)
    if stage in ("train_grpo", "train_grpo_auto"):  # the second takes as many steps at most
        before = (plan.continued_from(wildcards) or 0) if stage == "train_grpo" else 0
        variant = variant_of(wildcards) if stage == "train_grpo" else AUTO
        warmup = plan.for_model(model).warmup_of(variant)
        per_step = warmup.completions_per_step(int(wildcards.g))
        return GpuJob(stage, model, (int(wildcards.k) - before) * per_step, at_most=warmup.iterations > 1)
    if stage == "draw_probe":
        n_prompts = plan.for_model(model).training_set.n
        share = min(plan.config.probe.prompts, n_prompts) / n_prompts
        return GpuJob(stage, model, share, rate_of="harvest_rollouts")
    return GpuJob(stage, model, 1 / int(wildcards.get("shards", 1)))
