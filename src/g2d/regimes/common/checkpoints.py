"""Checkpoints of a training in progress: complete, and only used by the same job (docs/recovery.md)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from g2d.jobs.attempts import Stopped
from g2d.jobs.cost import Cost, Meter
from g2d.jobs.digests import MARK, remembered_digest
from g2d.jobs.files import disk_errors, parse_record, read_json, sha256, write_json
from g2d.jobs.snakemake_jobs import Values
from g2d.memory.workload import MicroBatches
from g2d.plain import say
from g2d.policies.record import load_into, require_whole_adapter
from g2d.regimes.common.stopping import stop_requests
from g2d.regimes.common.trainers import require_rewards, sort_target_modules
from g2d.settings import Section, key

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import (
        PreTrainedModel,
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )
else:
    Trainer = object  # base class of a mixin; transformers takes seconds to import


class Checkpointing(Section):
    """Checkpoints from which interrupted trainings resume; results stay the same.

    A job that is terminated also saves one.
    """

    every_minutes: float | None = key(10.0, "Time between checkpoints; null: only if stopped.", unit="min", gt=0)
    keep: Literal["all", "last"] = key(
        "all", "Keep an online training's checkpoints of all K, or the last (docs/recovery.md)."
    )


MANIFEST = "manifest.json"
PEFT_REFERENCE = "ref"  # PEFT's copy of TRL's reference, next to which the trainer would not load our adapter
MICROBATCHES = "division.json"
KEPT = 2  # a machine may fail before the newest is on disk
KEPT_STEP = ", which is kept: run the same command again to go on from there"
ENOUGH_TO_TELL = 10  # steps after which a reward must have scored some completion


class TrainingStoppedError(Stopped):
    """A signal stopped the training after it saved a checkpoint."""

    saved = True


class Manifest(TypedDict):
    step: int
    job: str  # `job_digest`
    files: dict[str, str]  # digests by path
    spent: NotRequired[dict[str, object]]  # `Cost` so far; results lack it, because they must not depend on time


# Inputs that are no data: earlier costs, and M0's folder, of which the record `base` has the digests.
NO_DATA = {"costs", "model"}


def job_key(params: Values, wildcards: Mapping[str, str], inputs: Values) -> dict[str, object]:
    """Return what a training's result depends on. Checkpoints are only used by a job with the same key."""
    data = {name: files for name, files in inputs.items() if name not in NO_DATA}
    return {
        "version": params.version,
        "settings": params.settings,
        "seed": int(wildcards["seed"]),
        "group_size": int(wildcards["g"]),
        "k": int(wildcards["k"]),
        "inputs": {name: _digests(files) for name, files in data.items()},
    }


def _digests(files: str | Sequence[str]) -> list[str]:
    """Return the digests of an input's files. A checkpoint's manifest has those of its files."""
    digests: list[str] = []
    for file in [files] if isinstance(files, str) else files:
        path = Path(file, MANIFEST) if Path(file).is_dir() else Path(file)
        digests.append(remembered_digest(path))
    return digests


# A checkpoint is a folder `step-N` in the work folder of a training. The trainer writes a draft; `seal` adds a manifest
# with the digests of all files and the key of the job, and a rename makes it a checkpoint, so that a kill at any moment
# leaves whole checkpoints only. Two are kept, because the newest may be on a disk that lost its last writes. A resumed
# training takes the newest one that is whole and has the job's key.


class Checkpoints:
    """Checkpoints of the job with a key. Checkpoints of other jobs are not used."""

    def __init__(self, folder: Path, key: Mapping[str, object], meter: Meter) -> None:
        self.folder = folder
        self.job = job_digest(key)
        self.meter = meter
        self.draft = folder / "trainer"
        self.microbatches: MicroBatches | None = None  # new checkpoints record them

    def _newest_first(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"), key=step_of, reverse=True)

    def newest(self) -> Path | None:
        for folder in self._newest_first():
            with suppress(OSError, ValueError):
                if read_manifest(folder)["job"] == self.job:
                    return folder
        return None

    def latest(self) -> Path | None:
        """Return the newest usable checkpoint, add its cost to the meter, and delete newer ones."""
        shutil.rmtree(self.draft, ignore_errors=True)
        for folder in self._newest_first():
            if is_usable(folder, self.job, self.meter):
                return folder
            shutil.rmtree(folder)
        return None

    def add(self, draft: Path, step: int) -> None:
        if self.microbatches is not None:
            write_json(draft / MICROBATCHES, asdict(self.microbatches))
        seal(draft, step, self.job, self.meter.spent())
        self.meter.saved = True
        folder = self.folder / f"step-{step}"
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
        for old in self._newest_first()[KEPT:]:
            shutil.rmtree(old)
        say(f"checkpoint at step {step}")


def job_digest(key: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def is_usable(folder: Path, job: str, meter: Meter) -> bool:
    """Return whether a checkpoint is intact and of this job; if so, add its cost to the meter."""
    try:
        manifest = require_intact(folder)
        if manifest["job"] == job:
            carry(meter, manifest["spent"], str(folder / MANIFEST))
            return True
        say(f"{folder}: made under other settings, not used")
    except ValueError as error:
        say(f"{str(error).split(';')[0]}: not used")
    return False


def carry(meter: Meter, spent: object, where: str) -> None:
    """Add a recorded cost to the meter, unless it includes this process, which the meter still measures."""
    if not meter.saved:
        meter.carried = parse_record(Cost, spent, where)


def seal(folder: Path, step: int, job: str, spent: Cost | None = None) -> None:
    """Write the manifest of a checkpoint; results do not record what was spent."""
    files = {str(file.relative_to(folder)): sha256(file) for file in sorted(folder.rglob("*")) if file.is_file()}
    files.pop(MANIFEST, None)
    manifest = Manifest(step=step, job=job, files=files)
    if spent is not None:
        manifest["spent"] = asdict(spent)
    write_json(folder / MANIFEST, manifest)


def require_intact(folder: Path) -> Manifest:
    """Read the manifest; a ValueError names a file that is missing or changed."""
    if not (folder / MANIFEST).is_file():
        raise ValueError(f"{folder}: an unfinished checkpoint (no {MANIFEST}); delete the folder to have it made again")
    manifest = read_manifest(folder)
    for name, digest in manifest["files"].items():
        if not (folder / name).is_file() or sha256(folder / name) != digest:
            raise ValueError(
                f"{folder / name}: missing, cut short or changed since it was written; delete {folder} to have it "
                "made again"
            )
    return manifest


def read_manifest(checkpoint: Path) -> Manifest:
    manifest: Manifest = read_json(checkpoint / MANIFEST)  # type: ignore[assignment] # files are not checked
    return manifest


def empty(checkpoint: Path) -> None:
    for part in checkpoint.iterdir():
        if part.is_dir():
            shutil.rmtree(part)
        elif part.name not in (MANIFEST, MARK):
            part.unlink()


def is_whole(checkpoint: Path) -> bool:
    return all((checkpoint / name).is_file() for name in read_manifest(checkpoint)["files"])


class Checkpointed(Trainer):
    """Mixin for transformers' trainers: a checkpoint is complete when it gets its place in the work folder."""

    checkpoints: Checkpoints  # set by `train`
    save_more: Callable[[Path], None]  # argument `save` of `train`

    def _save_checkpoint(self, model: Module, trial: object) -> None:
        step: int = self.state.global_step
        draft = self.checkpoints.draft / f"checkpoint-{step}"
        try:
            with disk_errors(self.checkpoints.folder):
                super()._save_checkpoint(model, trial)
                shutil.rmtree(draft / PEFT_REFERENCE, ignore_errors=True)
                self.save_more(draft)
                self.checkpoints.add(draft, step)
        except Exception:
            shutil.rmtree(draft, ignore_errors=True)  # an incomplete checkpoint would only fill the disk
            raise

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: PreTrainedModel | None = None) -> None:
        """Load an adapter as transformers does, and all weights by `load_into`: transformers would skip the tensors of
        a file that have other names in memory."""
        model = model or self.model
        if not hasattr(model, "peft_config"):
            load_into(model, resume_from_checkpoint)
            return
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        require_whole_adapter(model, resume_from_checkpoint, "default")

    def create_model_card(self, *_: object, **__: object) -> None:
        """Write no card: TRL's takes longer than the rest of a small checkpoint."""


def nothing(_: Path) -> None:
    """Do nothing with a checkpoint."""


def train(
    trainer: Trainer,
    checkpoints: Checkpoints,
    settings: Checkpointing,
    *,
    until: int | None = None,
    start: Path | None = None,
    every: int = 1,
    save: Callable[[Path], None] = nothing,
    restore: Callable[[Path], None] = nothing,
) -> Path:
    """Run a `Checkpointed` trainer, resuming if possible, and return its final checkpoint.

    Args:
        until: step to stop at; None: the trainer's last one.
        start: finished checkpoint of another job.
        every: only multiples of this can be resumed bit for bit.
        save: writes additional files to a checkpoint before it is sealed.
        restore: reads those files.

    Raises:
        TrainingStoppedError: a signal stopped the training early.
        RuntimeError: the training ended at another step.
        TypeError: the trainer is not `Checkpointed`.
        ValueError: a checkpoint is damaged.
    """
    if not issubclass(type(trainer), Checkpointed):  # `isinstance` would hide transformers' attributes from mypy
        raise TypeError(f"{type(trainer).__name__}: its first base class must be Checkpointed, or nothing is resumed")
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # a checkpoint of another origin must not run code
    if start is not None and until is not None:
        begins_at = require_intact(start)["step"]
        if begins_at >= until:
            raise RuntimeError(f"{start} is at step {begins_at}: nothing is left to train up to step {until}")
    resumed = checkpoints.latest()
    if resumed is not None:
        say(f"goes on from step {step_of(resumed)}, where an earlier attempt ended")
        restore(resumed)
        if step_of(resumed) == until:
            return resumed
    trainer.checkpoints = checkpoints
    trainer.save_more = save
    trainer.model.create_or_update_model_card = nothing  # PEFT's card takes as long as TRL's
    sort_target_modules(trainer.model)
    with stop_requests() as requests:
        trainer.add_callback(_schedule(settings, until, every, requests, checkpoints.meter))
        source = resumed or start
        trainer.train(resume_from_checkpoint=str(source) if source else None)
    reached = trainer.state.global_step
    expected = until or trainer.state.max_steps
    if requests and reached < expected:
        raise TrainingStoppedError(f"stopped by {requests[0]} at step {reached} of {expected}{KEPT_STEP}")
    if reached != expected:
        raise RuntimeError(f"the training ended at step {reached} instead of {expected}")
    return checkpoints.folder / f"step-{reached}"


def _schedule(
    settings: Checkpointing, until: int | None, every: int, requests: list[str], meter: Meter
) -> TrainerCallback:
    from transformers import TrainerCallback

    class Schedule(TrainerCallback):
        def on_train_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
        ) -> None:
            self.time = time.monotonic()  # of the last checkpoint
            meter.reached(state.global_step, until or state.max_steps)

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
        ) -> TrainerControl:
            step = state.global_step
            now = time.monotonic()
            meter.reached(step, until or state.max_steps)
            last = step >= (until or state.max_steps)
            due = settings.every_minutes is not None and now - self.time >= 60 * settings.every_minutes
            if last or (step % every == 0 and (due or requests)):
                control.should_save = True
                control.should_training_stop = last or bool(requests)
                self.time = now
            return control

        def on_log(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
        ) -> None:
            if len(state.log_history) == ENOUGH_TO_TELL:  # fail early, not after a day of training
                require_rewards(state.log_history)

    return Schedule()
