"""Checkpoints of a training in progress: complete or not there, made by this very job, gone when it is done
(docs/recovery.md). Each has a manifest: the digest of every file, and of everything the training depends on."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from g2d.jobs.attempts import Stopped
from g2d.jobs.cost import Cost, Meter
from g2d.jobs.digests import MARK
from g2d.jobs.files import names_the_disk, parse_record, read_json, sha256, write_json
from g2d.plain import say
from g2d.regimes import processes
from g2d.regimes.adapters import save_trained
from g2d.regimes.stopping import stop_requests
from g2d.regimes.training import require_rewards
from g2d.settings import Section, key


class Checkpointing(Section):
    """How often trainings save checkpoints, to resume after an interruption. Does not change results.

    A job that is terminated also saves one.
    """

    every_minutes: float | None = key(10.0, "Time between checkpoints; null: not by time.", unit="min", gt=0)
    every_steps: int | None = key(None, "Gradient steps between checkpoints; null: not by steps.", unit="steps", ge=1)
    keep: Literal["all", "last"] = key(
        "all",
        "Training states of an online training to keep: those of all K, or only of the last. With last, "
        "adding a K below it later repeats training from the K before.",
    )


MANIFEST = "manifest.json"
DIVISION = "division.json"  # in a checkpoint: the passes of its updates, where a card decided (`g2d.regimes.division`)
KEPT = 2  # should the newest not have reached the disk when a machine went down, the one before it is still there
ENOUGH_TO_TELL = 10  # gradient steps in which a reward has a number for some completion, if it ever has


class TrainingStoppedError(Stopped):
    """The training was asked to stop and has saved what it had."""


class Checkpoints:
    """The checkpoints that one job keeps in a folder from one attempt to the next.

    Args:
        job: everything the result depends on, as JSON; a checkpoint of another job is never used.
        meter: of this attempt; who goes on from a checkpoint carries what had been spent up to it.
    """

    def __init__(self, folder: Path, job: Mapping[str, Any], meter: Meter) -> None:
        self.folder = folder
        self.job = job_digest(job)
        self.meter = meter
        self.draft = folder / "trainer"  # the trainer writes below it
        self.division: Mapping[str, Any] | None = None

    def _newest_first(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"), key=step_of, reverse=True)

    def newest(self) -> Path | None:
        """The newest checkpoint of this job, intact or not."""
        for folder in self._newest_first():
            with suppress(OSError, ValueError):
                if read_json(folder / MANIFEST)["job"] == self.job:
                    return folder
        return None

    def latest(self) -> Path | None:
        """The newest usable checkpoint, its cost taken over; whatever else an earlier attempt left is removed."""
        shutil.rmtree(self.draft, ignore_errors=True)
        for folder in self._newest_first():
            if is_usable(folder, self.job, self.meter):
                return folder
            shutil.rmtree(folder)
        return None

    def add(self, draft: Path, step: int) -> None:
        """Take over a checkpoint that the trainer has written, and drop the oldest."""
        if self.division is not None:
            write_json(draft / DIVISION, self.division)
        seal(draft, step, self.job, self.meter.spent())
        folder = self.folder / f"step-{step}"
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
        for old in self._newest_first()[KEPT:]:
            shutil.rmtree(old)
        say(f"checkpoint at step {step}")


def job_digest(job: Mapping[str, Any]) -> str:
    """Names everything that a result depends on, given as JSON; what is kept between attempts carries it."""
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()


def step_of(checkpoint: Path) -> int:
    """Gradient steps behind a checkpoint in its work folder."""
    return int(checkpoint.name.removeprefix("step-"))


def is_usable(folder: Path, job: str, meter: Meter) -> bool:
    """Whether what an earlier attempt kept is intact and of this job; its cost is then taken over, else it says why."""
    try:
        manifest = require_intact(folder)
        if manifest["job"] == job:
            carry(meter, manifest, str(folder / MANIFEST))
            return True
        say(f"{folder}: made under other settings, not used")
    except ValueError as error:
        say(f"{str(error).split(';')[0]}: not used")
    return False


def carry(meter: Meter, record: Mapping[str, Any], where: str) -> None:
    """Put what a kept record says was `spent` up to it on the bill; those of 0.1.0 say nothing."""
    if "spent" in record:
        meter.carried = parse_record(Cost, record["spent"], where)


def seal(folder: Path, step: int, job: str, spent: Cost | None = None) -> None:
    """Write the manifest of a checkpoint: `step`, `job`, `files` with the digest of each, and what was `spent`; not of
    a result, whose content must not hang on the clock."""
    files = {str(file.relative_to(folder)): sha256(file) for file in sorted(folder.rglob("*")) if file.is_file()}
    files.pop(MANIFEST, None)
    cost = {} if spent is None else {"spent": asdict(spent)}
    write_json(folder / MANIFEST, {"step": step, "job": job, "files": files} | cost)


def require_intact(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose files are as they were written; a ValueError names one that is not."""
    if not (folder / MANIFEST).is_file():
        raise ValueError(f"{folder}: an unfinished checkpoint (no {MANIFEST}); delete the folder to have it made again")
    manifest = read_json(folder / MANIFEST)
    for name, digest in manifest["files"].items():
        if not (folder / name).is_file() or sha256(folder / name) != digest:
            raise ValueError(
                f"{folder / name}: missing, cut short or changed since it was written; delete {folder} to have it "
                "made again"
            )
    return manifest


def empty(checkpoint: Path) -> None:
    """Remove what a finished checkpoint holds but the list of it, by which `require_intact` says what is missing."""
    for part in checkpoint.iterdir():
        if part.is_dir():
            shutil.rmtree(part)
        elif part.name not in (MANIFEST, MARK):
            part.unlink()


def is_whole(checkpoint: Path) -> bool:
    """Whether all files that a finished checkpoint had are there."""
    return all((checkpoint / name).is_file() for name in read_json(checkpoint / MANIFEST)["files"])


def train(
    trainer: Any,
    checkpoints: Checkpoints,
    settings: Checkpointing,
    *,
    until: int | None = None,
    start: Path | None = None,
    every: int = 1,
    save: Callable[[Path], None] = lambda checkpoint: None,
    restore: Callable[[Path], None] = lambda checkpoint: None,
) -> Path:
    """Run a Hugging Face trainer to its last step, from this job's newest checkpoint if there is one; the checkpoint at
    the last step.

    Args:
        until: the step to stop at where that is not the trainer's own end.
        start: a finished checkpoint of another job to start from.
        every: only steps that are multiples of this can be continued bit for bit.
        save: what else belongs into a checkpoint; called with its folder before it is closed.
        restore: reads that again.

    Raises:
        NotTheFirstError: the training is done, and this process is not the one that goes on from here.
        TrainingStoppedError: a signal stopped the training early.
        RuntimeError: it ended at any other step than the last, or weights that should be divided are not.
        ValueError: `start` is damaged, or what is to be continued would run code or is of another `training.strategy`.
    """
    if start is not None:
        if until is not None and (step := require_intact(start)["step"]) >= until:
            raise RuntimeError(f"{start} is at step {step}: nothing is left to train up to step {until}")
        processes.require_same_strategy(start)
    if processes.is_sharded():
        processes.keep_precision(trainer)
    resumed: Path | None = processes.from_first(checkpoints.latest)
    if resumed is not None:
        processes.require_same_strategy(resumed)
        say(f"goes on from step {step_of(resumed)}, where an earlier attempt ended")
        restore(resumed)
        if step_of(resumed) == until:
            return _of_the_first(resumed)
    write = trainer._save_checkpoint

    def save_checkpoint(model: Any, trial: Any) -> None:
        step = trainer.state.global_step
        draft = checkpoints.draft / f"checkpoint-{step}"
        try:
            with names_the_disk(checkpoints.folder):
                write(model, trial)  # every process its random state
                if processes.is_sharded():
                    save_trained(trainer.model, draft)  # of which the trainer writes the parts
                processes.charge_others()  # waits for all
                if processes.is_first():
                    save(draft)
                    checkpoints.add(draft, step)
            processes.wait()
        except Exception:
            shutil.rmtree(draft, ignore_errors=True)  # half a checkpoint is no use on a full disk
            raise

    trainer._save_checkpoint = save_checkpoint
    # Templates to be filled in, TRL's and PEFT's, which take longer than the rest of a small model's checkpoint.
    trainer.create_model_card = trainer.model.create_or_update_model_card = lambda *_, **__: None
    with stop_requests() as requests:
        trainer.add_callback(_schedule(settings, until, every, requests, checkpoints.meter))
        if source := resumed or start:
            processes.refuse_code_in(source)
        trainer.train(resume_from_checkpoint=str(source) if source else None)
    reached, expected = trainer.state.global_step, until or trainer.state.max_steps
    if requests and reached < expected:
        raise TrainingStoppedError(
            f"stopped by {requests[0]} at step {reached} of {expected}, which is kept: run the same command again to "
            "go on from there"
        )
    if reached != expected:
        raise RuntimeError(f"the training ended at step {reached} instead of {expected}")
    return _of_the_first(checkpoints.folder / f"step-{reached}")


def _of_the_first(checkpoint: Path) -> Path:
    if not processes.is_first():
        raise processes.NotTheFirstError
    return checkpoint


def _schedule(settings: Checkpointing, until: int | None, every: int, requests: list[str], meter: Meter) -> Any:
    """A callback that says when to save, by time, by steps, when asked to stop, and at the end of the run; it tells
    the meter how far the training is."""
    from transformers import TrainerCallback

    class Schedule(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            self.step, self.time = state.global_step, time.monotonic()  # of the last checkpoint
            meter.reached(state.global_step, until or state.max_steps)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            step, now = state.global_step, time.monotonic()
            meter.reached(step, until or state.max_steps)
            last = step >= (until or state.max_steps)
            due = settings.every_steps is not None and step - self.step >= settings.every_steps
            due |= settings.every_minutes is not None and now - self.time >= 60 * settings.every_minutes
            # A clock, and a signal, may reach one process a step before another: what was not put to the vote waits.
            due, asked = processes.largest(due, signal.Signals[requests[0]] if requests else 0)
            if asked and not requests:
                requests.append(signal.Signals(asked).name)
            if last or (step % every == 0 and (due or asked)):
                control.should_save = True
                control.should_training_stop = last or bool(asked)
                self.step, self.time = step, now
            return control

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if len(state.log_history) == ENOUGH_TO_TELL:  # not at the end of a day
                require_rewards(state.log_history)

    return Schedule()
