"""How the rows of an update are divided into passes through the model: as configured, or as the card has room for where
a training begins. What follows a checkpoint keeps the choice of the training that wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import gcd
from pathlib import Path

from g2d.jobs.files import read_json
from g2d.jobs.run_process import release
from g2d.memory.need import Forecast
from g2d.memory.workload import Training
from g2d.plain import say
from g2d.policies.settings import CONFIG
from g2d.regimes.checkpoints import DIVISION, Checkpoints
from g2d.regimes.job import TrainingJob
from g2d.regimes.processes import init_process_group, is_sharded, largest, n_processes
from g2d.rewards.catalogue import parts
from g2d.rewards.model import RewardModel
from g2d.rollouts.free_memory import GIB
from g2d.rollouts.settings import EngineSettings

Lengths = tuple[int, int]  # tokens of the longest prompt, and of the longest completion


@dataclass(frozen=True)
class Division:
    """The passes of a training."""

    rows: int  # of a pass: per_device_batch_size
    checkpointing: bool
    tokens: int = 0  # of a pass, padding included, where rows of alike lengths share one; 0: they do not


def longest(prompts: Iterable[Sequence[int]], completions: Iterable[Sequence[int]]) -> Lengths:
    """Of tokens."""
    return max(map(len, prompts), default=1), max(map(len, completions), default=1)


def divide(job: TrainingJob, checkpoints: Checkpoints, training: Training, lengths: Lengths) -> Division:
    """The passes of a training, which its checkpoints will name; `training` is of one process with the whole model."""
    own = training.shared(n_processes(), "fsdp" if is_sharded() else "ddp", job.gradient_checkpointing)
    memory, before = card_memory(), checkpoints.newest() or job.resume_from
    if before is not None and (before / DIVISION).is_file():
        found = Division(**read_json(before / DIVISION))
    elif memory is None:
        rows = gcd(own.units, own.update) if own.update and own.passes != "groups" else own.units
        return Division(rows, job.gradient_checkpointing is True or is_sharded())
    elif before is not None:  # of a version that did not choose
        found = Division(own.units, own.checkpointing)
    else:
        found = _chosen(job, own, lengths[0], *memory)
    checkpoints.division = asdict(found)
    return found


def _chosen(job: TrainingJob, training: Training, prompt_tokens: int, free: int, total: int) -> Division:
    """What the card has room for."""
    has_reward_model = any(isinstance(reward, RewardModel) for reward in parts(job.reward))  # which no forecast counts
    if has_reward_model:
        training = replace(training, update=None, choose_checkpointing=False)
    if training.update is None and not training.choose_checkpointing:
        return Division(training.units, training.checkpointing)
    file, engine = Path(job.base.base, CONFIG), job.engine or EngineSettings()
    found = Forecast.of(file, job.lora, engine, total, prompt_tokens).divided(training, free)
    say(
        f"per_device_batch_size {found.units}{' (auto)' if training.update else ''}, activations "
        f"{'run again backwards' if found.checkpointing else 'kept'}: {free / GIB:.1f} GiB are free, rows have at most "
        f"{prompt_tokens + training.budget} tokens"
    )
    tokens = found.rows * (prompt_tokens + training.budget) if training.update else 0
    return Division(found.units, found.checkpointing, tokens)


def card_memory() -> tuple[int, int] | None:
    """Free and all bytes of the card, of several processes where the least is free; None without a card."""
    import torch

    if not torch.cuda.is_available():
        return None
    release()  # the memory of an engine that waits for the next job
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    if n_processes() > 1:
        init_process_group()
        free = -largest(-free)[0]
    return free, total
