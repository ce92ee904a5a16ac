"""GRPO warm-up: K gradient steps of online RL on M0 (paper, section 2.1, stage 1).

A chain passes through every K, bit for bit like an uninterrupted run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from transformers import PreTrainedTokenizerBase
    from trl import GRPOConfig

    from g2d.regimes.common.by_length import Order
    from g2d.regimes.grpo.trainer import Grpo, Row


WarmupJob = TrainingJob[Warmup, list[Problem]]


def train_grpo(job: WarmupJob) -> Trained:
    """Train to step K on the policy's rollouts."""
    warmup = job.settings
    checkpoints, microbatches = begin(job)
    tokenizer = load_tokenizer(job.base)
    tokenizer.pad_token = tokenizer.eos_token  # TRL takes a completion that ends with the padding token for finished
    ends = end_tokens(job.base, tokenizer)
    say(ends_in_words(tokenizer, ends))
    rollouts = TrainingRollouts(ends, period=warmup.continued_every, statuses=job.reward != TRUTH)
    prompts = Prompts(job)
    sampler = _sampler(job, prompts)  # before the trainer: vLLM sets seeds when it starts
    try:
        trainer = _trainer(
            job,
            prompts=prompts,
            sampler=sampler,
            rollouts=rollouts,
            reward_funcs=[_reward(job, tokenizer, rollouts)],
            args=_arguments(job, checkpoints.draft, microbatches),
            order=_row_order(warmup, microbatches),
            processing_class=tokenizer,
        )
        share_prompts_as_chosen(trainer, checkpoints)
        state = State(job, trainer, rollouts)
        return train_to_k(
            job, trainer, checkpoints, every=warmup.continued_every, save=state.save, restore=state.restore
        )
    finally:
        sampler.close()


class Prompts:
    """Prompts of a warm-up, in the order of the data set or as `choice` selects them (`retire`)."""

    def __init__(self, job: WarmupJob) -> None:
        warmup = job.settings
        group_size = job.group_size
        n_prompts = warmup.prompts_asked(warmup.schedule_length(job.k), group_size)  # one "epoch" is the whole horizon
        per_step = warmup.prompts_each_step(group_size)
        self.job = job
        self.order = prompt_indices(job.prompt_mix, job.data, n_prompts, per_step, job.seed)
        self.choice = PromptChoice.of(len(job.data), job.seed, warmup)

    @property
    def problems(self) -> list[Problem]:
        """Problems that the training may ask."""
        if self.choice is not None:
            return self.job.data
        return [self.job.data[number] for number in self.order]

    @property
    def rows(self) -> list[Row]:
        """Rows of the data set."""
        visits = zip(self.order, times_before(self.order), strict=True)
        return [self._row(number, before) for number, before in visits]

    def chosen_row(self, place: int) -> Row:
        """Return the row at a place of `choice`."""
        n_problems = len(self.job.data)
        return self._row(problem_at(place, n_problems, self.job.seed), place // n_problems)

    def _row(self, number: int, before: int) -> Row:
        problem = self.job.data[number]
        return {
            "prompt": conversation(problem, self.job.prompt),
            "problem_id": problem.problem_id,
            "group": group_name(problem.problem_id, before),
        }


def _reward(job: WarmupJob, tokenizer: PreTrainedTokenizerBase, rollouts: TrainingRollouts) -> TrainingReward:
    prompt = render(tokenizer, conversation(job.data[0], job.prompt))
    return TrainingReward(
        job.reward,
        job.data,
        seed=job.seed,
        group_size=job.group_size,
        verifier=job.verifier,
        eos_token_ids=rollouts.eos_token_ids,
        in_thinking=opens_thinking(tokenizer, prompt),
        on_judged=rollouts.record,
    )


def _sampler(job: WarmupJob, prompts: Prompts) -> Sampler:
    warmup = job.settings
    at_once = warmup.completions_per_generation(job.group_size)
    decoding = Decoding(1, warmup.temperature, 1.0, warmup.max_completion_length, at_once, job.seed)
    return Sampler(job, prompts.problems, decoding, every=warmup.sync_every, at_once=at_once, live=True)


def _trainer(job: WarmupJob, *, prompts: Prompts, **parts: Any) -> Grpo:
    from datasets import Dataset

    from g2d.regimes.grpo.trainer import Grpo

    model = starting_model(job.base, None, job.lora)
    adapter = lora_config(job.lora)
    if job.settings.reference == "sync" and adapter is not None:
        model = with_own_adapter(model, job.lora, job.seed)
        adapter = None
    return Grpo(
        warmup=job.settings,
        n_problems=len(job.data),
        choice=prompts.choice,
        row=prompts.chosen_row,
        model=model,
        train_dataset=Dataset.from_list(prompts.rows),
        peft_config=adapter,
        **parts,
    )


class State:
    """State of a warm-up in a checkpoint, besides TRL's: rollouts, the choice of prompts, and the tokens to count.

    Tokens of steps before `resume_from` were counted by the job of the K before.
    """

    def __init__(self, job: WarmupJob, trainer: Grpo, rollouts: TrainingRollouts) -> None:
        self.job = job
        self.trainer = trainer
        self.rollouts = rollouts
        self.tokens_before = job.meter.tokens_generated
        self.first_step = 0  # steps of the K before
        if job.resume_from is not None:
            self.first_step = read_manifest(job.resume_from)["step"]
            trainer.load_state(job.resume_from)

    def save(self, checkpoint: Path) -> None:
        self.rollouts.save(checkpoint / ROLLOUTS)
        self.trainer.save_state(checkpoint)
        self._count_tokens(self.trainer.state.log_history)

    def restore(self, checkpoint: Path) -> None:
        self.rollouts.restore(checkpoint / ROLLOUTS)
        self.trainer.load_state(checkpoint)
        self._count_tokens(read_log(checkpoint))

    def _count_tokens(self, log: list[LogRow]) -> None:
        per_generation = self.job.settings.completions_per_generation(self.job.group_size)
        tokens = completions_tokens(log, per_generation, self.first_step)
        self.job.meter.tokens_generated = self.tokens_before + tokens


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
