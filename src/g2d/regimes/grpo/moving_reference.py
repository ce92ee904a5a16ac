"""A reference of the KL term that follows the policy (arXiv 2505.22257, algorithm 1: pi_ref := pi)."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.trl_without_vllm import GRPOTrainer
from g2d.regimes.run.weights import copy_to_reference, reference_weights

REFERENCE = "reference.safetensors"  # not PEFT's folder `ref`, next to which the trainer would not load our adapter


class MovingReference(GRPOTrainer):
    """Keeps the reference in checkpoints, and replaces it at the steps of `warmup.reference_every`."""

    warmup: Warmup

    def move_reference(self, n_problems: int) -> None:
        """Replace the reference from now on; a pass is over `n_problems`."""
        self.add_callback(ReferenceSync(self, n_problems))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.warmup.reference == "sync":
            folder = Path(output_dir or self.args.output_dir)
            reference = reference_weights(self.model, self.ref_model)
            save_file({name: weights.detach().cpu() for name, weights in reference.items()}, folder / REFERENCE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: PreTrainedModel | None = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.warmup.reference == "sync":
            saved = load_file(Path(resume_from_checkpoint) / REFERENCE)
            for name, reference in reference_weights(self.model, self.ref_model).items():
                reference.data.copy_(saved[name])


class ReferenceSync(TrainerCallback):
    """Copies the policy to the reference after a step, before it is saved."""

    def __init__(self, trainer: MovingReference, n_problems: int) -> None:
        self.trainer = trainer
        self.n_problems = n_problems

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        trainer = self.trainer
        if trainer.warmup.swaps_reference(state.global_step, trainer.num_generations, self.n_problems):
            copy_to_reference(trainer.model, trainer.ref_model)
            if trainer.warmup.reset_optimizer:
                trainer.optimizer.state.clear()
