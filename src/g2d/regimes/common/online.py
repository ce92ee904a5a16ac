"""Common code of online trainings: how they begin, sample beside their trainer, and end at step K."""

from __future__ import annotations

import copy
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from g2d.jobs.files import copy_folder, disk_errors
from g2d.jobs.snakemake_jobs import Values
from g2d.jobs.temporary import remove_left, temporary_folder
from g2d.memory.workload import MicroBatches, Training
from g2d.policies.model_keys import ADAPTER_WEIGHTS
from g2d.policies.record import PolicyRecord, apply_adapter, context_limit, end_tokens, load_model, load_tokenizer
from g2d.problems import Problem, read_problems
from g2d.problems.prompts import conversation, conversation_ids
from g2d.regimes.common.checkpoints import MANIFEST, Checkpoints, require_intact, seal, train
from g2d.regimes.common.microbatches import choose_microbatches, recorded
from g2d.regimes.common.regime import Trained, TrainingJob
from g2d.regimes.common.trainers import (
    LogRow,
    evaluation_mode,
    export_trained,
    merged,
    precision_of,
    read_log,
    save_trained,
)
from g2d.rollouts.engine import Decoding, Engine, require_room
from g2d.rollouts.free_memory import unless_out_of_memory
from g2d.rollouts.weights_check import Reference, checked, fixed_texts, is_due, require_adapter, trainer_reference

if TYPE_CHECKING:
    from transformers import Trainer

    from g2d.rollouts.transformers_engine import TransformersEngine
    from g2d.rollouts.vllm_engine import VllmEngine

ROLLOUTS = "rollouts.parquet"
CHECKPOINT = "checkpoint"  # of the last step, for a later K
GENERATOR = "generator"  # folder in a checkpoint with the engine's weights, after a synchronisation
SHARED_MEMORY = Path("/dev/shm")
ROOM = 2**31  # bytes; an adapter of rank 16 of a 7B model has 161 MB
ASIDE = "weights.safetensors"  # the trainer loads every adapter that it finds in a checkpoint


class OnlineSettings(Protocol):
    """Keys of an online regime that its training reads here."""

    @property
    def max_completion_length(self) -> int: ...
    def workload(self, group_size: int) -> Training: ...


OnlineJob = TrainingJob[OnlineSettings, list[Problem]]
Prompts = Sequence[Sequence[int]]  # tokens
Samples = tuple[list[list[int]], list[list[float]] | None]  # tokens, and log-probabilities


def read_prompts(job: TrainingJob[object, None], inputs: Values) -> list[Problem]:
    files = [inputs.problems] if isinstance(inputs.problems, str) else inputs.problems
    problems: list[Problem] = []
    for file in files:
        problems += read_problems(file)
    return problems


def begin(job: OnlineJob) -> tuple[Checkpoints, MicroBatches]:
    """Return a training's checkpoints and the passes of its updates; a ValueError if `resume_from` is damaged or a
    prompt does not fit the model."""
    if job.resume_from is not None:
        require_intact(job.resume_from)
    checkpoints = Checkpoints(job.work, job.key, job.meter)
    lengths = (require_prompts_fit(job), job.settings.max_completion_length)
    workload = job.settings.workload(job.group_size)
    return checkpoints, choose_microbatches(job, checkpoints, workload, lengths)


def require_prompts_fit(job: OnlineJob) -> int:
    """Return tokens of the longest prompt; a ValueError names a problem that does not fit."""
    tokenizer = load_tokenizer(job.base)
    ids = [conversation_ids(tokenizer, conversation(problem, job.prompt)) for problem in job.data]
    require_room(
        ids,
        [f"problem {problem.problem_id}" for problem in job.data],
        job.settings.max_completion_length,
        (job.base.base, context_limit(job.base)),
    )
    return max(map(len, ids))


# Engines beside a trainer. A sampler has one, by `engine.name` and by whether it may use the trainer's model.


class TransformersSampling:
    """Sampling with transformers, without log-probabilities: the trainer computes them itself."""

    uses_vllm = False

    def opened(self, sampler: Sampler) -> AbstractContextManager[TransformersEngine]:
        """Return a context with the engine at the weights of the last synchronisation."""
        raise NotImplementedError

    def sample(self, sampler: Sampler, prompts: Prompts, names: Sequence[str]) -> Samples:
        with self.opened(sampler) as engine:
            return engine.sample(prompts, names, sampler.decoding), None

    def serve(self, policy: PolicyRecord) -> None:
        """Do nothing: weights are read when the engine is opened."""

    def receive(self, folder: Path) -> None:
        """Do nothing, as in `serve`."""

    def close(self) -> None:
        """Do nothing: the process ends after the training."""


class LiveEngine(TransformersSampling):
    """transformers on the trainer's model, so that no sample is stale."""

    needs_files = False
    is_compared = True

    def __init__(self) -> None:
        self._engine: TransformersEngine | None = None

    @contextmanager
    def opened(self, sampler: Sampler) -> Iterator[TransformersEngine]:
        """Yield an engine on the trainer's model, with the adapter merged into float32 weights on a CPU.

        bfloat16 would round most of a small adapter away.
        """
        import torch

        trainer = sampler.trainer
        model = trainer.model
        merges = model.device.type == "cpu" and model.dtype == torch.float32
        if self._engine is None:
            from g2d.rollouts.transformers_engine import TransformersEngine

            # Calls through PEFT's wrapper take time, but on a GPU it carries accelerate's autocast.
            called = model.get_base_model() if merges and hasattr(model, "get_base_model") else model
            tokenizer = trainer.processing_class
            self._engine = TransformersEngine(called, tokenizer, end_tokens(sampler.job.base, tokenizer))
        with evaluation_mode(model), merged(model) if merges else nullcontext():
            yield self._engine


class CopyEngine(TransformersSampling):
    """transformers on a copy of M0 with the weights of the last synchronisation."""

    needs_files = True
    is_compared = False

    def __init__(self) -> None:
        self._m0: TransformersEngine | None = None
        self._largest_batch = sys.maxsize  # of the last copy: completions that fit into the GPU's memory

    @contextmanager
    def opened(self, sampler: Sampler) -> Iterator[TransformersEngine]:
        make = partial(self.copy_of_policy, sampler.job, sampler.adapter)
        engine = unless_out_of_memory(make) or unless_out_of_memory(make)  # the first frees unused memory
        if engine is None:  # smaller passes would not help
            fix = "" if sampler.job.lora.trains_all else "set engine.name: vllm or "
            raise RuntimeError(f"out of memory for a copy of M0 beside the trainer: {fix}use a card with more memory")
        yield engine
        self._largest_batch = engine.largest_batch

    def copy_of_policy(self, job: OnlineJob, weights: Path | None) -> TransformersEngine:
        from g2d.rollouts.transformers_engine import TransformersEngine

        if self._m0 is None:
            self._m0 = TransformersEngine.of(job.base)
        if weights is None:
            return self._m0
        if job.lora.trains_all:
            model = load_model(replace(job.base, weights=str(weights), weights_sha256=None))
        else:
            model = apply_adapter(copy.deepcopy(self._m0.model), weights)
            require_adapter(model, replace(job.base, adapter=str(weights)))
        engine = TransformersEngine(model.eval(), self._m0.tokenizer, self._m0.end_ids)
        engine.largest_batch = self._largest_batch
        return engine


class VllmBesideTrainer:
    """vLLM on the trainer's GPU. It receives the adapter and also returns log-probabilities."""

    uses_vllm = True
    needs_files = True
    is_compared = True

    def __init__(self, job: OnlineJob, problems: Sequence[Problem], at_once: int) -> None:
        import torch

        from g2d.rollouts.vllm_engine import VllmEngine

        self.vllm = VllmEngine(
            job.base,
            job.engine.model_copy(update={"tensor_parallel_size": 1}),  # a training has one GPU
            adapter_rank=job.lora.r,
            memory_utilization=job.engine.training_gpu_memory_utilization,
            most_sequences=at_once,
        )
        requests = [self.vllm.request(problem.problem_id, conversation(problem, job.prompt)) for problem in problems]
        try:
            self.vllm.start_for(requests, job.settings.max_completion_length)
        except torch.OutOfMemoryError as error:  # smaller passes would not help
            raise RuntimeError(
                "out of memory at vLLM's start: lower engine.training_gpu_memory_utilization or use a card with more "
                "memory"
            ) from error

    @contextmanager
    def opened(self, _: Sampler) -> Iterator[VllmEngine]:
        yield self.vllm

    def sample(self, sampler: Sampler, prompts: Prompts, names: Sequence[str]) -> Samples:
        return self.vllm.sample(prompts, names, sampler.decoding)

    def serve(self, policy: PolicyRecord) -> None:
        """Load the weights of a policy, and compare the engine with their files."""
        self.vllm.serve(policy)

    def receive(self, folder: Path) -> None:
        self.vllm.use_adapter(folder)

    def close(self) -> None:
        self.vllm.close()


class Sampler:
    """Samples with the weights that the policy had at its last synchronisation.

    GRPO samples prompts that its trainer has tokenized (`sample`), on-policy entries sample problems (`engine`). Create
    the sampler before the trainer: vLLM sets seeds when it starts.

    Args:
        problems: all that may be asked; the longest determines vLLM's context.
        decoding: how to sample.
        every: steps between synchronisations; None for never.
        at_once: most completions that are requested together.
        live: with transformers, sample from the trainer's model instead of a copy.
    """

    trainer: Trainer  # set it before the first sample

    def __init__(
        self,
        job: OnlineJob,
        problems: Sequence[Problem],
        decoding: Decoding,
        *,
        every: int | None,
        at_once: int,
        live: bool = False,
    ) -> None:
        self.job = job
        self.decoding = decoding
        self.every = every
        self.synced_at: list[int] = []  # steps before which it synchronised
        self._engine: LiveEngine | CopyEngine | VllmBesideTrainer
        if job.engine.name == "vllm":
            self._engine = VllmBesideTrainer(job, problems, at_once)
        else:
            self._engine = LiveEngine() if live else CopyEngine()
        self._temporary = temporary_folder("generator", in_memory() if self.uses_vllm else None)
        self._start: Path | None = None
        if job.start is not None and job.start.trained:
            self._start = Path(job.start.trained)
            self._engine.serve(job.start)

    @property
    def uses_vllm(self) -> bool:
        return self._engine.uses_vllm

    @property
    def folder(self) -> Path:
        """Folder of the weights of the last synchronisation."""
        return Path(self._temporary.name) / GENERATOR

    @property
    def last_sync(self) -> int:
        """Steps before the last synchronisation; 0 without one."""
        return self.synced_at[-1] if self.synced_at else 0

    @property
    def adapter(self) -> Path | None:
        """Folder of the engine's weights; None if they are M0's."""
        return self.folder if self.last_sync else self._start

    def sync(self, step: int) -> bool:
        """Synchronise before the step after `step`, if it is due; return whether it was."""
        if self._engine.needs_files:
            due = self.every is not None and step % self.every == 0 and step not in self.synced_at
            if not due:
                return False
            shutil.rmtree(self.folder, ignore_errors=True)
            save_trained(self.trainer.accelerator.unwrap_model(self.trainer.model), self.folder)
        self._receive(step)
        self._compare(step)
        return True

    def _receive(self, step: int) -> None:
        self.synced_at.append(step)
        self._engine.receive(self.folder)

    def _compare(self, step: int) -> None:
        """Require the trainer's log-probabilities at some synchronisations; a copy is compared with its file."""
        if not (self._engine.is_compared and is_due(len(self.synced_at))):
            return
        reference = reference_of(self.trainer)
        with self.engine() as engine, checked(self.job.engine.check):
            engine.compare(f"the policy after {step} steps", reference)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Yield the engine; leave the trainer's model as it was."""
        with self._engine.opened(self) as engine:
            yield engine

    def sample(self, prompts: Prompts, names: Sequence[str]) -> Samples:
        """Return the tokens of a completion per prompt and, with vLLM, their log-probabilities when sampled.

        Random numbers depend on the names.
        """
        return self._engine.sample(self, prompts, names)

    def save(self, checkpoint: Path) -> None:
        if self.last_sync:
            copy_folder(self.folder, checkpoint / GENERATOR)
            _rename(checkpoint / GENERATOR, ADAPTER_WEIGHTS, ASIDE)

    def restore(self, checkpoint: Path, step: int) -> None:
        """Take the weights of a checkpoint that last synchronised after `step` steps."""
        if not (checkpoint / GENERATOR).is_dir():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        copy_folder(checkpoint / GENERATOR, self.folder)
        _rename(self.folder, ASIDE, ADAPTER_WEIGHTS)
        self._receive(step)
        # The trainer may have later weights, so the engine is compared with files.
        self._engine.serve(replace(self.job.base, adapter=str(self.folder)))

    def close(self) -> None:
        self._engine.close()
        self._temporary.cleanup()


def in_memory() -> Path | None:
    """Return a folder in memory for the adapters of each step; None if it has no room (64 MB in many containers).

    Adapters of killed processes are removed first.
    """
    remove_left(SHARED_MEMORY)
    if os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free >= ROOM:
        return SHARED_MEMORY
    return None


def _rename(folder: Path, name: str, other: str) -> None:
    if (folder / name).is_file():
        (folder / name).rename(folder / other)


def reference_of(trainer: Trainer) -> Reference:
    """Score fixed texts with the trained model, to check an engine that received its weights."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    with evaluation_mode(model):
        return trainer_reference(model, fixed_texts(trainer.processing_class), precision_of(trainer))


def train_to_k(
    job: OnlineJob,
    trainer: Trainer,
    checkpoints: Checkpoints,
    *,
    save: Callable[[Path], None],
    restore: Callable[[Path], None],
    every: int = 1,
) -> Trained:
    """Train to step K; leave `Lora.files`, `rollouts.parquet` and, for a later K, `checkpoint` in the work folder.

    `save`, `restore` and `every` are as in `checkpoints.train`.
    """
    reached = train(
        trainer,
        checkpoints,
        job.checkpointing,
        until=job.k,
        start=job.resume_from,
        every=every,
        save=save,
        restore=restore,
    )
    export_trained(reached, job.work, job.base)
    left = job.work / CHECKPOINT
    shutil.rmtree(left, ignore_errors=True)
    with disk_errors(job.work / ROLLOUTS):
        shutil.copy2(reached / ROLLOUTS, job.work / ROLLOUTS)
    copy_folder(reached, left, ROLLOUTS, MANIFEST)
    manifest = require_intact(reached)
    seal(left, manifest["step"], manifest["job"])
    return Trained(read_log(reached), recorded(checkpoints))


def completions_tokens(log_history: Sequence[LogRow], completions_per_generation: int, after_step: int) -> int:
    """Count tokens generated after a step. A generation is logged once, with the first step that uses it."""
    served = [row for row in log_history if "completions/mean_length" in row and row["step"] > after_step]
    tokens: float = sum(row["completions/mean_length"] * completions_per_generation for row in served)
    return round(tokens)
