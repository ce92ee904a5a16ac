"""TRL's distillation trainer on given rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from trl import DistillationTrainer

from g2d.regimes.offline.group_trainer import OnGroups, padded
from g2d.regimes.offline.groups import Group
from g2d.regimes.run.processes import n_processes


class DistillationOnGivenRollouts(OnGroups, DistillationTrainer):
    def batch_of(
        self, passing: Sequence[Group], of_others: bool, update: Sequence[Group], n_asked: int
    ) -> dict[str, Any]:
        """Collate one pass. TRL's "prompt" is only the first token, so that rows need padding on one side only.

        The loss covers the tokens in `tool_mask`: the completions.
        """
        ids, attention, completion = padded(passing, int(self.processing_class.pad_token_id))
        return {
            "prompt_ids": ids[:, :1],
            "prompt_mask": attention[:, :1],
            "completion_ids": ids[:, 1:],
            "completion_mask": attention[:, 1:],
            "tool_mask": torch.zeros_like(completion[:, 1:]) if of_others else completion[:, 1:],
            # Tokens of the whole update, so that the mean does not depend on the passes.
            "tokens": sum(len(completion) for group in update for completion in group.completions),
        }

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        return super(DistillationTrainer, self)._prepare_inputs(generation_batch)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Compute TRL's loss, and sum the entropy over the update; TRL would average the means of the passes."""
        policy = self.accelerator.unwrap_model(model)
        tokens = inputs["tokens"] / n_processes()  # gradients and logged losses are averaged over processes
        loss, entropy, _ = self._forward_redirection(model, policy, self._compute_loss, policy, inputs, tokens)
        if inputs["tool_mask"].any():
            read = int(inputs["prompt_mask"].sum() + inputs["completion_mask"].sum())
            self._sums.update({"entropy": float(entropy), "tokens": int(inputs["tool_mask"].sum()), "read": read})
        return loss

    def log_update(self, sums: Counter[str]) -> None:
        self._total_train_tokens += sums["read"]
        metrics = self._metrics["train"]
        metrics["num_tokens"].append(self._total_train_tokens)
        metrics["tokens/scored"].append(sums["read"])  # the teacher's tokens
        metrics["entropy"].append(sums["entropy"] / sums["tokens"])
