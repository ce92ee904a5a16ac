"""What trainings on fresh rollouts share beside the rollouts (`g2d.regimes.fresh`): the run from the first update, or
from a checkpoint, to K."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g2d.memory.workload import Training
from g2d.policies.policy import Policy, load_tokenizer
from g2d.regimes.job import Trained, TrainingJob
from g2d.regimes.online import begin, train_to_k
from g2d.regimes.training import restore_token_count, trainer_arguments

if TYPE_CHECKING:
    from g2d.regimes.fresh import FreshRollouts


def on_card(settings: Any, updates: int, **own: Any) -> Training:
    """What a training on fresh rollouts needs of a card, with so many updates between two hand-overs."""
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


def train_on_fresh(
    job: TrainingJob,
    make_trainer: Callable[..., Any],
    restored: Callable[[Any, FreshRollouts], None] = lambda trainer, fresh: None,
) -> Trained:
    """Train M0, or the policy of `start`, for K updates; see `g2d.regimes.online.begin` and `train_to_k`.

    `start` is needed from every checkpoint on: it may be the reference or the generator.

    Args:
        make_trainer: a TRL trainer for a job and its rollouts, from the arguments common to all configurations, of
            which a step is an update, and the keywords common to all trainers.
        restored: called with trainer and rollouts where they go on from a checkpoint.
    """
    from datasets import Dataset

    from g2d.regimes.fresh import FreshRollouts

    settings, meter = job.settings, job.meter
    checkpoints, division = begin(job)
    if job.start is not None:
        job = replace(job, seed=seed_after(job.seed, job.start))
    fresh = FreshRollouts(job)
    try:
        arguments = {
            **trainer_arguments(
                checkpoints.draft, job.seed, job.tracking, settings, checkpointing=division.checkpointing
            ),
            "max_steps": settings.total_steps,
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 1,
        }
        trainer = make_trainer(
            job,
            fresh,
            arguments,
            train_dataset=Dataset.from_list([{"update": step} for step in range(settings.total_steps)]),
            processing_class=load_tokenizer(job.base),
            division=division,
        )
        before = meter.tokens_generated

        def save(folder: Path) -> None:
            shutil.rmtree(folder / "ref", ignore_errors=True)  # beside it, the trainer would not load our own
            fresh.save(folder)
            meter.tokens_generated = before + fresh.tokens_generated

        def restore(folder: Path, *, own: bool = True) -> None:
            fresh.restore(folder, own=own)
            meter.tokens_generated = before + fresh.tokens_generated
            restore_token_count(trainer, folder)
            restored(trainer, fresh)

        if job.resume_from is not None:
            restore(job.resume_from, own=False)
        return train_to_k(job, trainer, checkpoints, save=save, restore=restore)
    finally:
        fresh.close()


def seed_after(seed: int, start: Policy) -> int:
    """The seed of a training that goes on from another one: it draws other rollouts. Entries with the same start share
    it, so they differ in what they are compared for."""
    digest = hashlib.sha256(f"{seed}/{start.policy_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1  # below 2^31, as seeds are
