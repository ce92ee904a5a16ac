"""TRL's distillation trainer on rollouts that are given to it: the passes of policy and teacher and the divergence, in
tiles of the vocabulary, are TRL's. Imports TRL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from trl import DistillationTrainer

from g2d.regimes.group_trainer import OnGroups, padded
from g2d.regimes.groups import Group
from g2d.regimes.processes import n_processes


class DistillationOnGivenRollouts(OnGroups, DistillationTrainer):
    """Distillation, each rollout a group of its own."""

    def batch_of(self, passing: Sequence[Group], of_others: bool, found: Sequence[Group], asked: int) -> dict[str, Any]:
        """The batch of a pass. What TRL calls a prompt is the first token here, so that rows need padding on one side
        alone; the loss is over what its `tool_mask` has, the completions."""
        ids, attention, completion = padded(passing, int(self.processing_class.pad_token_id))
        return {
            "prompt_ids": ids[:, :1],
            "prompt_mask": attention[:, :1],
            "completion_ids": ids[:, 1:],
            "completion_mask": attention[:, 1:],
            "tool_mask": torch.zeros_like(completion[:, 1:]) if of_others else completion[:, 1:],
            # Of the whole update, so that the mean over tokens does not depend on how it is split.
            "tokens": sum(len(completion) for group in found for completion in group.completions),
        }

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL would draw here."""
        return super(DistillationTrainer, self)._prepare_inputs(generation_batch)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """As TRL, whose entropy would be a mean of the passes' means."""
        policy = self.accelerator.unwrap_model(model)
        tokens = inputs["tokens"] / n_processes()  # over which gradients and logged losses are averaged
        loss, entropy, _ = self._forward_redirection(model, policy, self._compute_loss, policy, inputs, tokens)
        if inputs["tool_mask"].any():
            read = int(inputs["prompt_mask"].sum() + inputs["completion_mask"].sum())
            self._sums.update({"entropy": float(entropy), "tokens": int(inputs["tool_mask"].sum()), "read": read})
        return loss

    def log_update(self, sums: Counter[str]) -> None:
        """Log what was read, and the mean entropy over tokens."""
        self._total_train_tokens += sums["read"]
        metrics = self._metrics["train"]
        metrics["num_tokens"].append(self._total_train_tokens)
        metrics["tokens/scored"].append(sums["read"])  # by the teacher
        metrics["entropy"].append(sums["entropy"] / sums["tokens"])
