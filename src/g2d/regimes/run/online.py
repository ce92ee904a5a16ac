"""Common code of online trainings."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from g2d.jobs.files import copy_folder, disk_errors
from g2d.jobs.snakemake_jobs import Values
from g2d.memory.workload import Training
from g2d.policies.record import context_limit, load_tokenizer
from g2d.problems import Problem, read_problems
from g2d.problems.prompts import conversation, conversation_ids
from g2d.regimes.run.checkpoints import MANIFEST, Checkpoints, require_intact, seal, train
from g2d.regimes.run.microbatches import MicroBatches, choose_microbatches, recorded
from g2d.regimes.run.prompt_choice import VERIFIABLE
from g2d.regimes.run.regime import Trained, TrainingJob
from g2d.regimes.run.trainers import LogRow, export_trained, read_log
from g2d.rewards.registry import TRUTH, reward_params
from g2d.rollouts.engine import require_room
from g2d.verifier.verifier_keys import verifier_params

if TYPE_CHECKING:
    from transformers import Trainer

ROLLOUTS = "rollouts.parquet"


class OnlineSettings(Protocol):
    """Keys of an online regime that its training reads here."""

    @property
    def max_completion_length(self) -> int: ...
    def on_card(self, group_size: int, budget: int) -> Training: ...
    def identity(self, job: TrainingJob[object, object]) -> dict[str, object]: ...


OnlineJob = TrainingJob[OnlineSettings, list[Problem]]


def read_prompts(job: TrainingJob[object, None], inputs: Values) -> list[Problem]:
    files = [inputs.problems] if isinstance(inputs.problems, str) else inputs.problems
    problems: list[Problem] = []
    for file in files:
        problems += read_problems(file)
    return problems


def identity(job: OnlineJob) -> dict[str, object]:
    return {
        **job.identity,
        "problems": [asdict(problem) for problem in job.data],
        "prompt": job.prompt.params(),
        "engine": job.engine.name,
        **verifier_params(job.verifier),
        **job.settings.identity(job),
    }


def begin(job: OnlineJob) -> tuple[Checkpoints, MicroBatches]:
    """Return a training's checkpoints and the passes of its updates; a ValueError if `resume_from` is damaged or a
    prompt does not fit the model."""
    everything = identity(job)
    everything["k"] = job.k
    everything["start"] = require_intact(job.resume_from) if job.resume_from else None
    if job.reward != TRUTH:
        everything["reward"] = reward_params(job.reward)
    if job.prompt_mix != VERIFIABLE:
        everything["prompts"] = job.prompt_mix.params()
    checkpoints = Checkpoints(job.work, everything, job.meter)
    budget = job.settings.max_completion_length
    workload = job.settings.on_card(job.group_size, budget)
    return checkpoints, choose_microbatches(job, checkpoints, workload, (require_prompts_fit(job), budget))


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
    left = job.work / "checkpoint"
    shutil.rmtree(left, ignore_errors=True)
    with disk_errors(job.work / ROLLOUTS):
        shutil.copy2(reached / ROLLOUTS, job.work / ROLLOUTS)
    copy_folder(reached, left, ROLLOUTS, MANIFEST)
    manifest = require_intact(reached)
    seal(left, manifest["step"], manifest["job"])
    return Trained(read_log(reached), recorded(checkpoints))


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


def completions_tokens(log_history: Sequence[LogRow], completions_per_generation: int, after_step: int) -> int:
    """Count tokens generated after a step. A generation is logged once, with the first step that uses it."""
    served = [row for row in log_history if "completions/mean_length" in row and row["step"] > after_step]
    tokens: float = sum(row["completions/mean_length"] * completions_per_generation for row in served)
    return round(tokens)
