"""What all offline trainings have in common: rows that are given, a start at M0 or at pi_K, an adapter that is left.

A regime beside this is its settings, its rows, its trainer and its words.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, Required, TypedDict

from g2d.jobs.cost import Meter
from g2d.policies.policy import Policy, as_json, load_tokenizer
from g2d.policies.settings import Lora
from g2d.regimes.checkpoints import Checkpointing, Checkpoints, train
from g2d.regimes.processes import share
from g2d.regimes.training import (
    hand_over_adapter,
    lora_config,
    read_log,
    restore_token_count,
    starting_model,
    trainer_arguments,
)


class OfflineJob(TypedDict, total=False):
    """What every offline training takes beside its data and its own settings."""

    lora: Required[Lora]
    seed: Required[int]
    work: Required[Path]  # a folder to train in, kept between attempts
    start: Policy | None  # pi_K to start from; None for a fresh adapter on M0
    checkpointing: Checkpointing | None  # how often to save on the way
    tracking: Mapping[str, Any] | None  # from `tracking_arguments`; nothing is reported if None
    meter: Meter | None  # of the job that this is; checkpoints keep its bill
    version: int  # of the stage; an attempt of another version is not continued


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
    base: Policy,
    rows: Sequence[Mapping[str, Any]],
    settings: Passes,
    job: OfflineJob,
    *,
    identity: Mapping[str, Any],
    trainer: Callable[..., Any],
) -> list[dict[str, Any]]:
    """Train on rows and leave `work/adapter`.

    An attempt that was stopped leaves checkpoints in `work`, and the next one goes on from them.

    Args:
        regime: its name in the catalogue.
        base: M0.
        rows: what the trainer reads.
        settings: of the regime.
        job: the rest.
        identity: the regime's part, data and settings as JSON, of what names the job of a checkpoint.
        trainer: makes the TRL trainer, from the arguments common to all configurations and from the keywords common to
            all trainers; where it is called, TRL may be imported.

    Returns:
        The trainer's log, one entry per gradient step.

    Raises:
        TrainingStoppedError: a signal stopped it early.
        RuntimeError: the training does not begin at its reference.
    """
    lora, seed, work, start = job["lora"], job["seed"], job["work"], job.get("start")
    everything = {
        "version": job.get("version", 0),
        "base": as_json(base),
        **identity,
        "lora": lora.params(),
        "seed": seed,
        "start": as_json(start) if start else None,
    }
    checkpoints = Checkpoints(work, everything, job.get("meter") or Meter(str(work), f"train_{regime}"))

    # Of the groups of an update, the trainer itself gives every process its part.
    alone = settings.gradient_accumulation_steps
    accumulation = alone if regime == "group_dpo" else share(alone, f"{regime}.gradient_accumulation_steps")

    from datasets import Dataset

    arguments = {
        **trainer_arguments(checkpoints.draft, seed, job.get("tracking")),
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
        model=starting_model(base, start),
        train_dataset=Dataset.from_list([dict(row) for row in rows]),
        processing_class=load_tokenizer(base),
        peft_config=lora_config(lora) if start is None else None,
    )
    reached = train(
        made,
        checkpoints,
        job.get("checkpointing") or Checkpointing(),
        # The reference adapter of `start` is made anew from it. Beside it, the trainer would not load our own.
        save=lambda folder: shutil.rmtree(folder / "ref", ignore_errors=True),
        restore=restore_token_count(made),
    )
    hand_over_adapter(reached, work / "adapter", base)
    return read_log(reached)


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
