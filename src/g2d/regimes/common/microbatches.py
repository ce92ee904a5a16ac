"""Division of an update's rows into passes: as configured, or as fits into the GPU's memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING

from g2d.jobs.files import read_json
from g2d.memory.estimate import Forecast
from g2d.memory.workload import MicroBatches, ScoringLoad, Training
from g2d.plain import say
from g2d.policies.model_keys import CONFIG
from g2d.regimes.common.checkpoints import MICROBATCHES, Checkpoints
from g2d.regimes.common.regime import TrainingJob
from g2d.rewards.model import RewardModel
from g2d.rewards.registry import parts
from g2d.rollouts.free_memory import GIB, gpu_memory

if TYPE_CHECKING:
    from transformers import Trainer

Lengths = tuple[int, int]  # tokens of the longest prompt, and of the longest completion


def longest(prompts: Iterable[Sequence[int]], completions: Iterable[Sequence[int]]) -> Lengths:
    return max(map(len, prompts), default=1), max(map(len, completions), default=1)


def choose_microbatches(
    job: TrainingJob[object, object], checkpoints: Checkpoints, training: Training, lengths: Lengths
) -> MicroBatches:
    """Choose micro-batches within `job.passes`; checkpoints record them unless they are plain."""
    workload = training.with_checkpointing(job.gradient_checkpointing)
    memory = card_memory()
    before = checkpoints.newest() or job.resume_from
    has_record = before is not None and (before / MICROBATCHES).is_file()
    if before is not None and has_record:
        chosen = MicroBatches(**read_json(before / MICROBATCHES))
    elif memory is None:
        chosen = _on_cpu(job, workload, lengths, resumes=before is not None)
    elif before is not None:  # of a CPU, with plain passes
        chosen = MicroBatches(workload.units, workload.checkpointing)
    else:
        chosen = _on_gpu(job, workload, lengths[0], *memory)
    within = job.passes.within(chosen, training)
    is_plain = memory is None and not has_record and not chosen.recorded and within == chosen
    if not is_plain:
        checkpoints.microbatches = within
    return within


def _on_cpu(job: TrainingJob[object, object], training: Training, lengths: Lengths, *, resumes: bool) -> MicroBatches:
    """Choose on a CPU; a checkpoint without a record had plain passes in float32."""
    update = training.update if training.passes != "groups" else None
    rows = gcd(training.units, update) if update else training.units
    checkpointing = job.gradient_checkpointing is True
    pretrained = "source" in job.base.settings and not job.base.is_embedded
    shared = pretrained if job.shared_prompts == "auto" else job.shared_prompts
    autocast = job.precision == "bfloat16"
    if resumes or not (shared or autocast):
        return MicroBatches(rows, checkpointing)
    if shared and update and training.group > 1:
        rows = rows_of_groups(rows, update, training.group, lengths)
    at_once = shared and pretrained
    return MicroBatches(rows, checkpointing, shared_prompts=shared, autocast=autocast, whole_logits=at_once)


def rows_of_groups(rows: int, update: int, group: int, lengths: Lengths) -> int:
    """Return completions per pass, in whole groups if possible, with at most the tokens of `rows` unshared ones."""
    prompt, completion = lengths

    def tokens(n: int) -> int:
        return -(-n // group) * prompt + n * completion

    best = rows
    for n in range(rows, update + 1):
        has_whole_groups = n % group == 0 or group % n == 0
        if update % n == 0 and has_whole_groups and tokens(n) <= rows * (prompt + completion):
            best = n
    return best


def recorded(checkpoints: Checkpoints) -> dict[str, object]:
    return checkpoints.microbatches.recorded if checkpoints.microbatches else {}


def share_prompts_as_chosen(trainer: Trainer, checkpoints: Checkpoints) -> None:
    chosen = checkpoints.microbatches
    if chosen and chosen.shared_prompts:
        from g2d.regimes.common.shared_prompts import share_prompts

        shares = share_prompts(trainer.model, getattr(trainer, "ref_model", None), at_once=chosen.whole_logits)
        checkpoints.microbatches = replace(chosen, shared_prompts=shares)


def _on_gpu(
    job: TrainingJob[object, object], training: Training, prompt_tokens: int, free: int, total: int
) -> MicroBatches:
    models = [reward for reward in parts(job.reward) if isinstance(reward, RewardModel)]
    training = replace(training, scorers=tuple(ScoringLoad(model.label, model) for model in models))
    if training.update is None and not training.choose_checkpointing:
        return MicroBatches(training.units, training.checkpointing)
    file = Path(job.base.base, CONFIG)
    forecast = Forecast.of(file, job.lora, job.engine, total, prompt_tokens).divided(training, free)
    longest_row = prompt_tokens + training.budget
    activations = "run again backwards" if forecast.checkpointing else "kept"
    say(
        f"per_device_batch_size {forecast.units}{' (auto)' if training.update else ''}, activations {activations}: "
        f"{free / GIB:.1f} GiB are free, rows have at most {longest_row} tokens"
    )
    tokens = forecast.rows * longest_row if training.update else 0
    return MicroBatches(forecast.units, forecast.checkpointing, tokens)


def card_memory() -> tuple[int, int] | None:
    """Return the GPU's free and total bytes."""
    import torch

    if not torch.cuda.is_available():
        return None
    torch.cuda.empty_cache()
    return gpu_memory()
