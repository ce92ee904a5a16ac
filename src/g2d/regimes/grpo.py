"""GRPO warm-up: K gradient steps of online RL on M0 with a LoRA adapter (paper, section 2.1, stage 1).

One trajectory passes through every K of a chain: the run to K=300 continues the checkpoint at K=150 (adapter,
optimizer, scheduler, random state). That equals a single uninterrupted run bit for bit, because the learning-rate
horizon does not depend on K and because the order of the prompts is fixed for the whole horizon (`asked.order`): the
sampler of the trainer would begin every resumed run with the order of the first epoch. With `schedule: per_k` every K
is a run of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from g2d.jobs.cost import Meter
from g2d.policies.policy import Policy, as_json, context_limit, end_tokens, load_base, load_tokenizer
from g2d.policies.settings import Lora
from g2d.problems import Problem
from g2d.problems.prompts import Prompt, conversation, render
from g2d.regimes.adapters import with_own_adapter
from g2d.regimes.asked import VERIFIABLE, AskedPrompts, order, times_before
from g2d.regimes.checkpoints import MANIFEST, Checkpointing, Checkpoints, require_intact, seal, train
from g2d.regimes.objective import Objective
from g2d.regimes.optimizer import OptimizerKeys
from g2d.regimes.regime import Regime
from g2d.regimes.retirement import PromptChoice, choice_words, load_choice, save_choice
from g2d.regimes.training import forget_samplers, hand_over_adapter, lora_config, read_log, trainer_arguments
from g2d.regimes.training_rollouts import TrainingRollouts
from g2d.regimes.warmup import Warmup
from g2d.rewards.catalogue import TRUTH, reward_params
from g2d.rewards.reward import group_name
from g2d.rewards.training import TrainingReward
from g2d.rollouts.engine import require_room
from g2d.rollouts.settings import EngineSettings
from g2d.settings import Section

ROLLOUTS = "rollouts.parquet"  # in a checkpoint: those of the steps that lie behind it


def train_grpo(
    base: Policy,
    problems: Sequence[Problem],
    *,
    warmup: Warmup,
    lora: Lora,
    prompt: Prompt,
    group_size: int,
    k: int,
    seed: int,
    work: Path,
    reward: Section = TRUTH,
    prompts: AskedPrompts = VERIFIABLE,
    resume_from: Path | None = None,
    engine: EngineSettings | None = None,
    checkpointing: Checkpointing | None = None,
    tracking: Mapping[str, Any] | None = None,
    meter: Meter | None = None,
    version: int = 0,
) -> list[dict[str, Any]]:
    """Train M0 to step K and leave `work/adapter`, `work/checkpoint` and `work/rollouts.parquet`.

    An attempt that was stopped leaves checkpoints in `work`, and the next one goes on from them.

    One step consumes `warmup.completions_per_step(G)` completions, G of every prompt, of all processes together.

    Args:
        base: M0.
        problems: the training set.
        group_size: G, completions per prompt.
        k: the step to reach, counted from M0.
        work: a folder to train in, kept between attempts.
        reward: what a completion is worth.
        prompts: which of the problems are asked, and how many of each kind.
        resume_from: checkpoint of a smaller K of the same trajectory, or None to start from M0.
        engine: what generates; TRL itself, with transformers, if None.
        checkpointing: how often to save on the way.
        tracking: from `tracking_arguments`; nothing is reported if None.
        meter: of the job that this is; the tokens of the steps are added, and checkpoints keep its bill.
        version: of the stage; an attempt of another version is not continued.

    Returns:
        The trainer's log from step 1 to K, the steps before `resume_from` included.

    Raises:
        TrainingStoppedError: a signal stopped it early.
        RuntimeError: the trainer stopped anywhere but at step K.
        ValueError: `resume_from` is damaged, or a prompt and its completion do not fit the model.
    """
    start = require_intact(resume_from) if resume_from else None
    job = {
        "version": version,
        "base": as_json(base),
        "problems": [asdict(problem) for problem in problems],
        "warmup": warmup.trajectory(k, group_size) | {"keep_rollouts": warmup.keep_rollouts},
        "lora": lora.params(),
        "prompt": prompt.params(),
        "group_size": group_size,
        "k": k,
        "seed": seed,
        **warmup.drawn_by(engine, lora, reward),
        "start": start,
        **({} if reward == TRUTH else {"reward": reward_params(reward)}),
        **({} if prompts == VERIFIABLE else {"prompts": prompts.params()}),
    }
    meter = meter or Meter(str(work), "train_grpo")
    checkpoints = Checkpoints(work, job, meter)

    from datasets import Dataset
    from trl import GRPOConfig

    from g2d.regimes.grpo_trainer import ChosenPrompts, Grpo

    steps = warmup.total_steps if warmup.schedule == "chain" else k
    n_prompts = warmup.prompts_asked(steps, group_size)  # one "epoch" is the whole horizon
    numbers = order(prompts, problems, n_prompts, warmup.completions_per_step(group_size) // group_size, seed)
    asked = [problems[i] for i in numbers]
    choice = PromptChoice.of(len(problems), seed, warmup)

    def row(problem: Problem, before: int) -> dict[str, Any]:
        return {
            "prompt": conversation(problem, prompt),
            "answer": problem.answer,
            "problem_id": problem.problem_id,
            "group": group_name(problem.problem_id, before),
        }

    arguments = GRPOConfig(
        **trainer_arguments(checkpoints.draft, seed, tracking, warmup),
        **warmup.objective_arguments,
        max_steps=steps,
        learning_rate=warmup.learning_rate,
        lr_scheduler_type=warmup.lr_schedule,
        num_generations=group_size,
        per_device_train_batch_size=warmup.per_device_batch_size,
        gradient_accumulation_steps=warmup.own_accumulation_steps(group_size),
        steps_per_generation=warmup.updates_per_generation * warmup.own_accumulation_steps(group_size),
        num_iterations=warmup.iterations,
        max_completion_length=warmup.max_completion_length,
        temperature=warmup.temperature,
        top_p=1.0,
        top_k=0,
        beta=warmup.beta,
        loss_type=warmup.loss,
        mask_truncated_completions=warmup.mask_truncated,
        shuffle_dataset=False,
        use_vllm=False,  # TRL's own backend; see `g2d.regimes.grpo_vllm` for ours
        vllm_importance_sampling_correction=warmup.ratio == "sampler",
        vllm_importance_sampling_mode="sequence_mask",
        vllm_importance_sampling_clip_max=3.0,
    )
    tokenizer = load_tokenizer(base)
    require_room(
        tokenizer([render(tokenizer, conversation(problem, prompt)) for problem in problems], add_special_tokens=False)[
            "input_ids"
        ],
        [f"problem {problem.problem_id}" for problem in problems],
        warmup.max_completion_length,
        model=base.base,
        limit=context_limit(base),
    )
    ends = end_tokens(base, tokenizer)
    stale = warmup.updates_between_generations > 1
    rollouts = TrainingRollouts(ends, warmup.keep_rollouts, stale=stale, statuses=reward != TRUTH)
    rewards = TrainingReward(
        reward, problems, seed=seed, group_size=group_size, eos_token_ids=ends, on_judged=rollouts.record
    )
    generation = None
    if engine is not None and engine.name == "vllm":
        from g2d.regimes.grpo_vllm import VllmGeneration

        conversations = [conversation(problem, prompt) for problem in (problems if choice else asked)]
        generation = VllmGeneration(
            base,
            conversations,
            engine=engine,
            warmup=warmup,
            lora=lora,
            seed=seed,
            most_sequences=warmup.completions_per_generation(group_size),
        )
    model = load_base(base)
    forget_samplers(model, ends)
    moving = warmup.reference == "sync"
    trainer = Grpo(
        warmup=warmup,
        rollouts=rollouts,
        n_problems=len(problems),
        prompts=ChosenPrompts(choice, lambda n: row(problems[choice.problem(n)], n // len(problems)))
        if choice
        else None,
        model=with_own_adapter(model, lora, seed) if moving else model,
        reward_funcs=[rewards],
        args=arguments,
        train_dataset=Dataset.from_list([*map(row, asked, times_before(numbers))]),
        processing_class=tokenizer,
        peft_config=None if moving else lora_config(lora),
    )
    if generation is not None:
        generation.attach(trainer)
    before, first = meter.tokens_generated, start["step"] if start else 0

    def count(log: list[dict[str, Any]]) -> None:
        meter.tokens_generated = before + completions_tokens(log, warmup.completions_per_generation(group_size), first)

    def save(folder: Path) -> None:
        rollouts.save(folder / ROLLOUTS)
        save_choice(choice, folder)
        count(trainer.state.log_history)

    def restore(folder: Path) -> None:
        rollouts.restore(folder / ROLLOUTS)
        load_choice(choice, folder)
        count(read_log(folder))

    load_choice(choice, resume_from)
    try:
        reached = train(
            trainer,
            checkpoints,
            checkpointing or Checkpointing(),
            until=k,
            start=resume_from,
            every=warmup.continued_every,
            save=save,
            restore=restore,
        )
    finally:
        if generation is not None:
            generation.close()
    return hand_over(reached, work, base)


def hand_over(reached: Path, work: Path, base: Policy) -> list[dict[str, Any]]:
    """Copy what the stage leaves out of the last checkpoint, which stays until the stage is complete; its log."""
    hand_over_adapter(reached, work / "adapter", base)
    shutil.rmtree(work / "checkpoint", ignore_errors=True)
    shutil.copy2(reached / ROLLOUTS, work / ROLLOUTS)
    shutil.copytree(reached, work / "checkpoint", ignore=shutil.ignore_patterns(ROLLOUTS, MANIFEST))
    manifest = require_intact(reached)
    seal(work / "checkpoint", manifest["step"], manifest["job"])
    return read_log(reached)


def completions_tokens(log_history: Sequence[dict[str, Any]], completions_per_generation: int, after_step: int) -> int:
    """Tokens generated by the steps of a log that lie after `after_step`.

    The trainer logs the mean length of a generation once, with the first step that it serves.
    """
    drawn = [row for row in log_history if "completions/mean_length" in row and row["step"] > after_step]
    discarded = sum(row.get("tokens/discarded", 0) for row in drawn)
    return round(sum(row["completions/mean_length"] for row in drawn) * completions_per_generation + discarded)


def _methods(warmup: Warmup) -> str:
    """How it differs from on-policy GRPO with TRL's usual objective; nothing where it does not."""
    said = []
    if warmup.updates_per_generation > 1:
        said.append(f"the rollouts of {warmup.updates_per_generation} steps were drawn at once")
    if warmup.iterations > 1:
        said.append(f"every rollout served {warmup.iterations} steps")
    if warmup.ratio == "none":
        said.append("no ratio to the policy that sampled was taken")
    if warmup.mask_uniform_groups:
        said.append("groups with equal rewards were left out of every term of the loss")
    if warmup.reference == "sync":
        every = warmup.reference_every
        often = "after every pass over the prompts" if every == "pass" else f"every {every} steps"
        reset = ", where the optimizer's averages began anew" if warmup.reset_optimizer else ""
        said.append(f"the policy became the reference of the KL term {often}{reset}")
    said += [words] if (words := choice_words(warmup)) else []
    own = warmup.params(only={*Objective.model_fields, *OptimizerKeys.model_fields})
    said += [f"{name} was {value}" for name, value in own.items()]
    return f"In GRPO, {'; '.join(said)}." if said else ""


GRPO = Regime(
    name="grpo",
    version=1,
    phase="online",
    settings=Warmup,
    label="GRPO",
    card="{k} steps of GRPO (group size {group_size})",
    unit="steps of GRPO",
    methods=_methods,
)
