"""How the rows of an update are divided into passes through the model: as configured, or as the card has room for where
a training begins. What follows a checkpoint keeps the choice of the training that wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import gcd
from pathlib import Path
from typing import Any

from g2d.jobs.files import read_json
from g2d.jobs.run_process import release
from g2d.memory.need import Forecast
from g2d.memory.workload import Training
from g2d.plain import say
from g2d.policies.policy import cpu_has_bfloat16
from g2d.policies.settings import CONFIG
from g2d.regimes.run.checkpoints import DIVISION, Checkpoints
from g2d.regimes.run.job import TrainingJob
from g2d.regimes.run.processes import init_process_group, is_sharded, largest, n_processes
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
    shared_prompts: bool = False  # a pass reads each prompt once (`g2d.regimes.run.shared_prompts`)
    autocast: bool = False  # to bfloat16, on a CPU
    whole_logits: bool = False  # of a pass with shared prompts, at once (`g2d.regimes.run.head`)

    @property
    def arguments(self) -> dict[str, bool]:
        """Keywords of `g2d.regimes.run.training.trainer_arguments`."""
        return {"checkpointing": self.checkpointing, "autocast": self.autocast}


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
        found = _on_cpu(job, own, lengths, fresh=before is None)
        if not recorded_of(found):
            return found
    elif before is not None:  # of a version that did not choose
        found = Division(own.units, own.checkpointing)
    else:
        found = _chosen(job, own, lengths[0], *memory)
    checkpoints.division = asdict(found)
    return found


def _on_cpu(job: TrainingJob, training: Training, lengths: Lengths, *, fresh: bool) -> Division:
    """Passes on a CPU; what goes on from a checkpoint without a choice has the passes that were the only ones then."""
    free = training.update if training.passes != "groups" else None
    rows = gcd(training.units, free) if free else training.units
    checkpointing = job.gradient_checkpointing is True or is_sharded()
    pretrained = "source" in job.base.settings and not job.base.is_scratch
    shared = pretrained if job.shared_prompts == "auto" else job.shared_prompts
    autocast = pretrained and cpu_has_bfloat16() if job.precision == "auto" else job.precision == "bfloat16"
    if not fresh or not (shared or autocast):
        return Division(rows, checkpointing)
    shared = shared and not is_sharded()
    if shared and free and training.group > 1:
        rows = _rows_of_groups(rows, free, training.group, lengths)
    at_once = shared and pretrained
    return Division(rows, checkpointing, shared_prompts=shared, autocast=autocast, whole_logits=at_once)


def _rows_of_groups(rows: int, update: int, group: int, lengths: Lengths) -> int:
    """Completions of a pass that reads each prompt once: as many of an update as take no more tokens than `rows` that
    are read one by one, whole groups if possible."""
    prompt, completion = lengths

    def tokens(n: int) -> int:
        return -(-n // group) * prompt + n * completion

    even = (n for n in range(rows, update + 1) if update % n == 0 and (n % group == 0 or group % n == 0))
    return max((n for n in even if tokens(n) <= rows * (prompt + completion)), default=rows)


def recorded_of(division: Division) -> dict[str, Any]:
    """What the record of a policy says of the passes that it was trained in: nothing of plain ones in float32."""
    shared, precision = {"shared_prompts": True}, {"precision": "bfloat16"}
    return (shared if division.shared_prompts else {}) | (precision if division.autocast else {})


def recorded(checkpoints: Checkpoints) -> dict[str, Any]:
    """`recorded_of` the division of a training."""
    return recorded_of(Division(**checkpoints.division)) if checkpoints.division else {}


def share_prompts_as_chosen(trainer: Any, checkpoints: Checkpoints) -> None:
    """Have a trainer's passes read each prompt once, if its division says so and its models can."""
    chosen = checkpoints.division
    if chosen and chosen["shared_prompts"]:
        from g2d.regimes.run.shared_prompts import share_prompts

        at_once = chosen.get("whole_logits", False)  # missing in the checkpoints of earlier versions
        shares = share_prompts(trainer.model, getattr(trainer, "ref_model", None), at_once=at_once)
        checkpoints.division = {**chosen, "shared_prompts": shares}


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
