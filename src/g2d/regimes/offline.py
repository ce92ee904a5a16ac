"""What all offline trainings have in common: rows that are given, a start at M0 or at pi_K, an adapter that is left.

A regime beside this is its settings, its rows, its trainer and its words.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from g2d.policies.policy import as_json, load_tokenizer
from g2d.problems import Problem, read_problems
from g2d.regimes.checkpoints import Checkpoints, train
from g2d.regimes.job import TrainingJob
from g2d.regimes.processes import share
from g2d.regimes.training import (
    hand_over_adapter,
    lora_config,
    read_log,
    restore_token_count,
    starting_model,
    trainer_arguments,
)
from g2d.rollouts.rollout import read_rollouts
from g2d.rollouts.tokens import with_token_ids

if TYPE_CHECKING:
    import pandas as pd


class Passes(Protocol):
    """The keys that all offline regimes have: how often they pass over their rows, at which rate, how many at once."""

    epochs: int
    max_steps: int | None
    learning_rate: float
    lr_schedule: Literal["cosine", "linear", "constant"]
    per_device_batch_size: int

    @property
    def gradient_accumulation_steps(self) -> int:
        """Accumulation steps of a gradient step."""


def train_offline(
    regime: str,
    job: TrainingJob,
    rows: Sequence[Mapping[str, Any]],
    *,
    identity: Mapping[str, Any],
    trainer: Callable[..., Any],
) -> list[dict[str, Any]]:
    """Train on rows and leave `work/adapter`.

    Args:
        regime: its name in the catalogue.
        rows: what the trainer reads.
        identity: the regime's part, data and settings as JSON, of what names the job of a checkpoint.
        trainer: makes the TRL trainer, from the arguments common to all configurations and from the keywords common to
            all trainers; where it is called, TRL may be imported.

    Returns:
        The trainer's log, one entry per gradient step.

    Raises:
        TrainingStoppedError: a signal stopped it early.
        RuntimeError: the training does not begin at its reference.
    """
    settings: Passes = job.settings
    everything = {
        "version": job.version,
        "base": as_json(job.base),
        **identity,
        "lora": job.lora.params(),
        "seed": job.seed,
        "start": as_json(job.start) if job.start else None,
    }
    checkpoints = Checkpoints(job.work, everything, job.meter)

    # Of the groups of an update, the trainer itself gives every process its part.
    alone = settings.gradient_accumulation_steps
    accumulation = alone if regime == "group_dpo" else share(alone, f"{regime}.gradient_accumulation_steps")

    from datasets import Dataset

    arguments = {
        **trainer_arguments(checkpoints.draft, job.seed, job.tracking),
        "num_train_epochs": settings.epochs,
        "max_steps": settings.max_steps or -1,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": settings.lr_schedule,
        "per_device_train_batch_size": settings.per_device_batch_size,
        "gradient_accumulation_steps": accumulation,
        "max_length": None,  # a truncated completion would lose the box that earned its reward
    }
    made = trainer(
        arguments,
        model=starting_model(job.base, job.start),
        train_dataset=Dataset.from_list([dict(row) for row in rows]),
        processing_class=load_tokenizer(job.base),
        peft_config=lora_config(job.lora) if job.start is None else None,
    )
    reached = train(
        made,
        checkpoints,
        job.checkpointing,
        # The reference adapter of `start` is made anew from it. Beside it, the trainer would not load our own.
        save=lambda folder: shutil.rmtree(folder / "ref", ignore_errors=True),
        restore=restore_token_count(made),
    )
    hand_over_adapter(reached, job.work / "adapter", job.base)
    return read_log(reached)


def n_steps(log: Sequence[Mapping[str, Any]]) -> int:
    """Gradient steps of a trainer's log."""
    return sum("loss" in row for row in log)


def read_harvest(job: TrainingJob, inputs: Any) -> tuple[pd.DataFrame, list[Problem]]:
    """The rollouts of a harvest with their tokens, and the problems that were asked."""
    return with_token_ids(read_rollouts(inputs.rollouts), job.base), read_problems(inputs.problems)


def passes_words(settings: Passes, rows: str) -> str:
    """How long and how fast a regime trains, for the methods paragraph."""
    length = f"{settings.epochs} epochs" if settings.max_steps is None else f"{settings.max_steps} gradient steps"
    return (
        f"{length}, peak learning rate {settings.learning_rate:g}, {settings.lr_schedule} schedule, "
        f"{settings.per_device_batch_size * settings.gradient_accumulation_steps} {rows} per step"
    )


def origin_words(start: Literal["base", "warmup"]) -> str:
    """What a regime trains, for the methods paragraph."""
    return "a fresh copy of M0" if start == "base" else "the warmed-up policy"
