"""GRPO warm-up: K gradient steps of online RL on M0 (paper, section 2.1, stage 1).

A chain passes through every K, bit for bit like an uninterrupted run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from g2d.memory.workload import MicroBatches
from g2d.plain import say
from g2d.policies.model_keys import lora_config
from g2d.policies.record import end_tokens, ends_in_words, load_tokenizer
from g2d.problems import Problem
from g2d.problems.prompts import conversation, opens_thinking, render
from g2d.regimes.common.checkpoints import read_manifest
from g2d.regimes.common.microbatches import share_prompts_as_chosen
from g2d.regimes.common.online import ROLLOUTS, Sampler, begin, completions_tokens, read_prompts, train_to_k
from g2d.regimes.common.prompt_choice import PromptChoice, problem_at, prompt_indices, times_before
from g2d.regimes.common.regime import Regime, Trained, TrainingJob
from g2d.regimes.common.trainers import LogRow, read_log, starting_model, trainer_arguments, with_own_adapter
from g2d.regimes.common.training_rollouts import TrainingRollouts
from g2d.regimes.grpo.keys import Warmup
from g2d.rewards.registry import TRUTH
from g2d.rewards.reward import group_name
from g2d.rewards.training_reward import TrainingReward
from g2d.rollouts.engine import Decoding

if TYPE_CHECKING:
    from trl import GRPOConfig

    from g2d.regimes.common.by_length import Order
    from g2d.regimes.grpo.trainer import Row


WarmupJob = TrainingJob[Warmup, list[Problem]]


def train_grpo(job: WarmupJob) -> Trained:
    """Train to step K on the policy's rollouts."""
    warmup = job.settings
    problems = job.data
    checkpoints, microbatches = begin(job)

    from datasets import Dataset

    from g2d.regimes.grpo.trainer import Grpo

    group_size = job.group_size
    n_prompts = warmup.prompts_asked(warmup.schedule_length(job.k), group_size)  # one "epoch" is the whole horizon
    numbers = prompt_indices(job.prompt_mix, problems, n_prompts, warmup.prompts_each_step(group_size), job.seed)
    prompts = [problems[i] for i in numbers]
    rows = [_row(job, problem, before) for problem, before in zip(prompts, times_before(numbers), strict=True)]
    choice = PromptChoice.of(len(problems), job.seed, warmup)

    def chosen_row(number: int) -> Row:
        problem = problems[problem_at(number, len(problems), job.seed)]
        return _row(job, problem, number // len(problems))

    arguments = _arguments(job, checkpoints.draft, microbatches)
    tokenizer = load_tokenizer(job.base)
    tokenizer.pad_token = tokenizer.eos_token  # TRL takes a completion that ends with the padding token for finished
    ends = end_tokens(job.base, tokenizer)
    say(ends_in_words(tokenizer, ends))
    rollouts = TrainingRollouts(
        ends,
        period=warmup.continued_every,
        statuses=job.reward != TRUTH,
    )
    rewards = TrainingReward(
        job.reward,
        problems,
        seed=job.seed,
        group_size=group_size,
        verifier=job.verifier,
        eos_token_ids=ends,
        in_thinking=opens_thinking(tokenizer, render(tokenizer, conversation(problems[0], job.prompt))),
        on_judged=rollouts.record,
    )
    at_once = warmup.completions_per_generation(group_size)
    sampler = Sampler(
        job,
        problems if choice else prompts,
        Decoding(1, warmup.temperature, 1.0, warmup.max_completion_length, at_once, job.seed),
        every=warmup.sync_every,
        at_once=at_once,
        live=True,
    )
    model = starting_model(job.base, None, job.lora)
    adapter = lora_config(job.lora)
    if warmup.reference == "sync" and adapter is not None:
        model = with_own_adapter(model, job.lora, job.seed)
        adapter = None
    trainer = Grpo(
        warmup=warmup,
        sampler=sampler,
        rollouts=rollouts,
        n_problems=len(problems),
        order=_row_order(warmup, microbatches),
        choice=choice,
        row=chosen_row,
        model=model,
        reward_funcs=[rewards],
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=adapter,
    )
    share_prompts_as_chosen(trainer, checkpoints)
    before = job.meter.tokens_generated
    paid = 0  # steps of the K before
    if job.resume_from is not None:
        paid = read_manifest(job.resume_from)["step"]
        trainer.go_on(job.resume_from)

    def count(log: list[LogRow]) -> None:
        job.meter.tokens_generated = before + completions_tokens(log, at_once, paid)

    def save(folder: Path) -> None:
        rollouts.save(folder / ROLLOUTS)
        trainer.keep(folder)
        count(trainer.state.log_history)

    def restore(folder: Path) -> None:
        rollouts.restore(folder / ROLLOUTS)
        trainer.go_on(folder)
        count(read_log(folder))

    try:
        return train_to_k(job, trainer, checkpoints, every=warmup.continued_every, save=save, restore=restore)
    finally:
        sampler.close()


def _row(job: WarmupJob, problem: Problem, before: int) -> Row:
    return {
        "prompt": conversation(problem, job.prompt),
        "problem_id": problem.problem_id,
        "group": group_name(problem.problem_id, before),
    }


def _row_order(warmup: Warmup, microbatches: MicroBatches) -> Order | None:
    from g2d.regimes.common.by_length import by_length, by_prompt

    if microbatches.tokens:
        return by_length
    if microbatches.shared_prompts and not warmup.depends_on_passes:
        return by_prompt
    return None


def _arguments(job: WarmupJob, draft: Path, microbatches: MicroBatches) -> GRPOConfig:
    from trl import GRPOConfig

    warmup = job.settings
    group_size = job.group_size
    passes = warmup.completions_per_step(group_size) // microbatches.rows
    return GRPOConfig(
        **trainer_arguments(draft, job.seed, job.tracking, warmup, **microbatches.arguments),
        **warmup.objective_arguments,
        **warmup.mismatch_arguments,
        max_steps=warmup.schedule_length(job.k),
        num_generations=group_size,
        per_device_train_batch_size=microbatches.rows,
        gradient_accumulation_steps=passes,
        steps_per_generation=warmup.updates_per_generation * passes,
        num_iterations=warmup.iterations,
        max_completion_length=warmup.max_completion_length,
        temperature=warmup.temperature,
        beta=warmup.beta,
        loss_type=warmup.loss,
        mask_truncated_completions=warmup.mask_truncated,
        shuffle_dataset=False,
        use_vllm=False,  # disables TRL's backend
        vllm_importance_sampling_correction=warmup.ratio == "sampler",
    )


GRPO = Regime(
    name="grpo",
    version=1,
    phase="online",
    settings=Warmup,
    section="warmup",
    read=read_prompts,
    train=train_grpo,
    label="GRPO",
)
