"""Common code of offline trainings, with mixins for trainers of TRL 1.16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from g2d.jobs.snakemake_jobs import Values
from g2d.memory.workload import MicroBatches
from g2d.plain import say
from g2d.policies.model_keys import lora_config
from g2d.policies.record import load_tokenizer
from g2d.problems import Problem, read_problems
from g2d.regimes.common.checkpoints import Checkpoints, train
from g2d.regimes.common.microbatches import Lengths, choose_microbatches, recorded, share_prompts_as_chosen
from g2d.regimes.common.regime import OfflineKeys, Trained, TrainingJob
from g2d.regimes.common.trainers import (
    evaluation_mode,
    export_trained,
    precision_of,
    read_log,
    restore_token_count,
    save_trained,
    starting_model,
    trainer_arguments,
    with_own_adapter,
)
from g2d.rollouts.rollout import read_own_rollouts
from g2d.rollouts.weights_check import BOUNDS

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from datasets import Dataset
    from transformers import PreTrainedModel, Trainer
    from transformers.modeling_outputs import CausalLMOutputWithPast
    from trl import DPOTrainer
else:
    DPOTrainer = object  # base class of mixins; TRL takes seconds to import

Batch = dict[str, "torch.Tensor"]
SAME = 1e-3  # relative difference between policy and reference, scored by the same passes


Row = Mapping[str, list[int]]  # tokens of an example


OfflineJob = TrainingJob[OfflineKeys, object]


class TrainerFactory(Protocol):
    """Makes a regime's trainer from arguments of its TRL configuration, and from parts of the trainer."""

    def __call__(self, arguments: dict[str, object], microbatches: MicroBatches, **parts: object) -> Trainer: ...


def train_offline(
    job: OfflineJob,
    rows: Sequence[Row],
    *,
    statistics: Mapping[str, object],
    trainer: TrainerFactory,
    lengths: Lengths,
) -> Trained:
    """Train on rows and leave `Lora.files` in the work folder; without rows, the start is left unchanged.

    Args:
        statistics: statistics of the data, for the record of the policy.

    Raises:
        TrainingStoppedError: a signal stopped it early.
        RuntimeError: the training does not start at its reference.
    """
    if not rows:
        return untrained(job, statistics)
    settings = job.settings
    checkpoints = Checkpoints(job.work, job.key, job.meter)
    workload = settings.workload(lengths[1])
    microbatches = choose_microbatches(job, checkpoints, workload, lengths)
    update = settings.rows_per_step
    if microbatches.tokens:  # the trainer splits its rows of an update
        micro_batch = update
        accumulation = 1
    else:
        micro_batch = microbatches.rows
        accumulation = update // microbatches.rows

    from datasets import Dataset

    arguments = {
        **trainer_arguments(checkpoints.draft, job.seed, job.tracking, settings, **microbatches.arguments),
        "num_train_epochs": settings.epochs,
        "max_steps": settings.max_steps or -1,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "max_length": None,  # truncation would lose the box that earned the reward
    }
    made = trainer(
        arguments,
        microbatches,
        model=starting_model(job.base, job.start, job.lora),
        train_dataset=Dataset.from_list([dict(row) for row in rows]),
        processing_class=load_tokenizer(job.base),
        peft_config=lora_config(job.lora) if job.start is None else None,
    )
    if workload.passes == "by_length":
        require_passes_by_length(made)
    share_prompts_as_chosen(made, checkpoints)
    reached = train(
        made,
        checkpoints,
        job.checkpointing,
        restore=partial(restore_token_count, made),
    )
    export_trained(reached, job.work, job.base)
    log = read_log(reached)
    return Trained(log, {**statistics, "gradient_steps": sum("loss" in row for row in log), **recorded(checkpoints)})


def require_passes_by_length(trainer: Trainer) -> None:
    """Raise a TypeError if a trainer would put all rows of a gradient step into one pass."""
    from g2d.regimes.common.by_length import PassesByLength

    if not issubclass(type(trainer), PassesByLength):
        raise TypeError(
            f"{type(trainer).__name__}: derive it from PassesByLength, or let `workload` of its keys return "
            "passes='equal' and update=None"
        )


def untrained(job: OfflineJob, statistics: Mapping[str, object]) -> Trained:
    """Leave the start of a training as its policy: a harvest without data allows no gradient step."""
    say("the harvest has no data for this training: no gradient step, the policy is its start")
    model = starting_model(job.base, job.start, job.lora)
    if job.start is None and not job.lora.trains_all:
        model = with_own_adapter(model, job.lora, job.seed)
    folder = job.work / "start"
    save_trained(model, folder)
    export_trained(folder, job.work, job.base)
    return Trained([], {**statistics, "gradient_steps": 0})


def read_harvest(job: TrainingJob[object, None], inputs: Values) -> tuple[pd.DataFrame, list[Problem]]:
    return read_own_rollouts(inputs.rollouts, job.base), read_problems(inputs.problems)


class PretokenizedMixin(DPOTrainer):
    """Mixin for TRL trainers that keeps the sampled tokens: rendering again could change them."""

    def _prepare_dataset(self, dataset: Dataset, *_args: object, **_keywords: object) -> Dataset:
        return dataset


class FixedReference(DPOTrainer):
    """Mixin for TRL's DPO trainer: checks that training starts at the reference."""

    begins_at_reference = True
    _compared = False

    def compute_ref_log_probs(self, model: PreTrainedModel, inputs: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Score the reference as in TRL, but without dropout."""
        with evaluation_mode(self.model):
            log_probs: tuple[torch.Tensor, torch.Tensor] = super().compute_ref_log_probs(model, inputs)
        return log_probs

    def policy(self, model: PreTrainedModel, inputs: Batch) -> CausalLMOutputWithPast:
        return model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            use_cache=False,
            labels=inputs["input_ids"].masked_fill(inputs["completion_mask"] == 0, -100),
            fused_lm_head=True,
        )

    def reference(
        self, model: PreTrainedModel, inputs: Batch, once: Sequence[torch.Tensor] | None = None
    ) -> Sequence[torch.Tensor]:
        """Return reference log-probabilities of a micro-batch, computed or precomputed (`once`).

        Before the first update they are compared with the policy's.
        """
        is_first = self.begins_at_reference and not self._compared and self.state.global_step == 0
        if once is not None and not is_first:
            return once
        # None: the model with its adapter switched off or exchanged.
        ref_model = self.ref_model  # type: ignore[has-type]
        log_probs = self.compute_ref_log_probs(ref_model or model, inputs)
        if is_first:
            self.ref_model = model  # makes TRL score the policy with its adapter
            try:
                policy = self.compute_ref_log_probs(model, inputs)
            finally:
                self.ref_model = ref_model
            require_at_reference(policy, log_probs)
            if once is not None:
                require_current(once, log_probs, inputs["completion_mask"][:, 1:].sum(), precision_of(self))
            self._compared = True
        return log_probs if once is None else once


def require_at_reference(policy: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> None:
    """Raise a RuntimeError if log-probabilities of the same passes, each (rows,), differ."""
    for row, of_reference in zip(policy, reference, strict=True):
        apart = float((row - of_reference).abs().sum())
        whole = float(of_reference.abs().sum())
        if not apart <= SAME * whole:
            raise RuntimeError(
                f"before the first step the log-probabilities of {len(row)} completions under policy and reference are "
                f"{apart:.4g} nats apart, of {whole:.4g}: the reference is not the policy that training starts from"
            )


def require_current(
    once: Sequence[torch.Tensor], reference: Sequence[torch.Tensor], n_tokens: torch.Tensor, precision: str
) -> None:
    """Raise a RuntimeError if precomputed log-probabilities differ from the reference's by more than rounding."""
    apart = sum(float((row - now).abs().sum()) for row, now in zip(once, reference, strict=True)) / int(n_tokens)
    if not apart <= BOUNDS[precision]:
        raise RuntimeError(
            f"precomputed log-probabilities of the reference are {apart:.4g} nats per token from those that it has "
            f"before the first step; rounding in {precision} explains {BOUNDS[precision]:g}: delete the training's "
            "work folder and run it again"
        )
