"""What trainings on fresh rollouts share beside the rollouts (`g2d.regimes.fresh`): the run from the first update, or
from a checkpoint, to K.

A regime on top of this has its keys, and a trainer that learns from the rollouts of every update.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from g2d.memory.workload import Training
from g2d.policies.policy import Policy, as_json
from g2d.problems import Problem
from g2d.regimes.checkpoints import Checkpoints, require_intact, train
from g2d.regimes.division import Division, divide
from g2d.regimes.job import Trained, TrainingJob
from g2d.regimes.online import ROLLOUTS, hand_over, require_prompts_fit
from g2d.regimes.prompt_choice import PromptChoice, order
from g2d.regimes.training import restore_token_count, trainer_arguments
from g2d.rewards.catalogue import TRUTH, reward_params
from g2d.rollouts.engine import Decoding
from g2d.verifier.pool import default_workers

if TYPE_CHECKING:
    from datasets import Dataset

    from g2d.regimes.auto_stop import Outcome
    from g2d.regimes.fresh import FreshRollouts


class MakeTrainer(Protocol):
    """Makes the trainer of a regime."""

    def __call__(
        self, job: TrainingJob, fresh: FreshRollouts, seed: int, arguments: dict[str, Any], division: Division
    ) -> Any:
        """A TRL trainer.

        Args:
            fresh: the rollouts of every update.
            seed: of what it draws itself.
            arguments: common to all; a step is an update.
            division: of an update into passes, which the trainer makes.
        """


def on_card(settings: Any, updates: int, **own: Any) -> Training:
    """What a training on fresh rollouts needs of a card.

    Args:
        settings: an online entry with a token budget and batch sizes.
        updates: between two hand-overs of the policy to its generator.
        own: further attributes.
    """
    per_update = settings.prompts_per_update * settings.responses
    at_once = per_update * updates
    return Training(
        budget=settings.max_completion_length,
        rows=settings.number("per_device_batch_size"),
        at_once=at_once,
        batch=min(settings.batch_size, at_once),
        own_copy=True,
        completions=max(settings.steps) * per_update,
        update=per_update if settings.per_device_batch_size == "auto" else None,
        passes="groups",
        **own,
    )


def numbered(updates: int) -> Dataset:
    """A data set with a row for every update, in the place of one that is read."""
    from datasets import Dataset

    return Dataset.from_list([{"update": i} for i in range(updates)])


def train_on_fresh(
    job: TrainingJob,
    make_trainer: MakeTrainer,
    *,
    sync_every: int | Literal["pass", "never"] = 1,
    margin: float | None = None,
    restored: Callable[[Any, FreshRollouts], None] = lambda trainer, fresh: None,
) -> Trained:
    """Train M0, or the policy of `start`, for K updates; leave `Lora.files`, `rollouts.parquet` and, for another K,
    `checkpoint` in the work folder.

    `start` is needed from every checkpoint on: it may be the reference or the generator. Its training goes on with an
    optimizer, a schedule and random numbers of its own. What is raised is as for `train_grpo`.

    Args:
        sync_every: updates between two hand-overs of the policy to its generator.
        margin: how far a scalar reward's best and worst are apart at least for a prompt to have a signal.
        restored: called with trainer and rollouts where they go on from a checkpoint.
    """
    settings = job.settings
    problems: Sequence[Problem] = job.data
    continued = require_intact(job.resume_from) if job.resume_from else None
    seed = job.seed if job.start is None else seed_after(job.seed, job.start)
    from g2d.regimes.fresh import FreshRollouts, sync_period

    meter = job.meter
    identity = {
        "version": job.version,
        "base": as_json(job.base),
        "problems": [asdict(problem) for problem in problems],
        **_own(job),
        "prompt": job.prompt.params(),
        "k": job.k,
        "seed": job.seed,
        "engine": job.engine.identity if job.engine else None,
        "start": continued,
        **({} if job.reward == TRUTH else {"reward": reward_params(job.reward)}),
    }
    checkpoints = Checkpoints(job.work, identity, meter)
    lengths = require_prompts_fit(job), settings.max_completion_length
    division = divide(job, checkpoints, settings.on_card(), lengths)
    horizon, per_update = settings.total_steps, settings.prompts_per_update
    fresh = FreshRollouts(
        job.base,
        problems,
        order(settings, problems, horizon * per_update, per_update, seed),
        per_update=per_update,
        decoding=Decoding(
            samples_per_prompt=settings.responses,
            temperature=settings.temperature,
            top_p=1.0,
            max_completion_length=settings.max_completion_length,
            batch_size=settings.batch_size,
            seed=seed,
        ),
        prompt=job.prompt,
        sync_every=sync_period(sync_every, len(problems) // per_update),
        until=job.k,
        keep=settings.keep_rollouts,
        workers=default_workers(),
        reward=job.reward,
        start=job.start,
        rounding=job.lora.rounding,
        choice=PromptChoice.of(len(problems), seed, settings),
        margin=margin,
    )
    if job.engine is not None and job.engine.name == "vllm":
        fresh.use_vllm(job.engine, job.lora)
    try:
        arguments = {
            **trainer_arguments(checkpoints.draft, seed, job.tracking, settings, checkpointing=division.checkpointing),
            "max_steps": horizon,
            "learning_rate": settings.learning_rate,
            "lr_scheduler_type": settings.lr_schedule,
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 1,
        }
        trainer = make_trainer(job, fresh, seed, arguments, division)
        before = meter.tokens_generated

        def save(folder: Path) -> None:
            shutil.rmtree(folder / "ref", ignore_errors=True)  # beside it, the trainer would not load our own
            fresh.save(folder)
            fresh.save_rollouts(folder / ROLLOUTS)
            meter.tokens_generated = before + fresh.tokens_generated

        def restore(folder: Path, rollouts: Path | None) -> None:
            fresh.restore(folder, rollouts)
            meter.tokens_generated = before + fresh.tokens_generated
            restore_token_count(trainer)(folder)
            restored(trainer, fresh)

        if job.resume_from is not None:
            restore(job.resume_from, None)
        reached = train(
            trainer,
            checkpoints,
            job.checkpointing,
            until=job.k,
            start=job.resume_from,
            save=save,
            restore=lambda folder: restore(folder, folder / ROLLOUTS),
        )
    finally:
        fresh.close()
    return Trained(hand_over(reached, job.work, job.base))


def until_decline(job: TrainingJob, train_to: Callable[[TrainingJob], Trained]) -> Outcome:
    """Train until the policy's harvest declines (`auto`), at most to the largest K.

    Args:
        train_to: trains to a K.
    """
    from g2d.regimes.auto_stop import Trajectory, train_until_decline

    settings = job.settings
    drawn = settings.prompts_per_update * settings.responses
    return train_until_decline(job, Trajectory(train_to, settings.steps[-1], drawn, _own(job)))


def _own(job: TrainingJob) -> dict[str, Any]:
    """What a training depends on beside M0, problems, prompt, seed and engine, as JSON."""
    return {
        job.settings.regime: job.settings.trajectory() | {"keep_rollouts": job.settings.keep_rollouts},
        "lora": job.lora.params(),
        **({} if job.start is None else {"started_from": as_json(job.start)}),
        **({} if job.teacher is None else {"teacher": as_json(job.teacher)}),
    }


def seed_after(seed: int, start: Policy) -> int:
    """The seed of a training that goes on from another one: what it draws is not what that one has drawn.

    Entries with the same start share it, so they differ in what they are compared for.
    """
    digest = hashlib.sha256(f"{seed}/{start.policy_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1  # below 2^31, as seeds are
