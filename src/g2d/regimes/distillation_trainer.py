"""TRL's distillation trainer on rollouts that are given to it.

TRL 1.16 samples with an engine of its own, one completion a prompt, and a run that is stopped draws others when it goes
on. Here an update asks for its rollouts when it needs them; the teacher's and the policy's passes and the divergence,
in tiles of the vocabulary, are TRL's. Imports TRL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from trl import DistillationTrainer

from g2d.regimes.division import Division
from g2d.regimes.group_trainer import own_passes, padded
from g2d.regimes.groups import Group, in_passes
from g2d.regimes.processes import gathered, n_processes


class DistillationOnGivenRollouts(DistillationTrainer):
    """Distillation; the data set is a row per update, of which nothing is read.

    Args:
        updates: the rollouts of the update after so many, each a group of its own, and what to log.
        division: rollouts, or tokens, that pass through the models together.
    """

    def __init__(
        self,
        *args: Any,
        updates: Callable[[int], tuple[Sequence[Group], dict[str, Any]]],
        division: Division,
        **kwargs: Any,
    ) -> None:
        self.updates, self.division = updates, division
        self._sums: Counter[str] = Counter()
        super().__init__(*args, **kwargs)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """One update, in as many passes as its rollouts need, of which several processes make every n-th each."""
        found, record = self.updates(self.state.global_step)
        for name, value in record.items():
            self._metrics["train"][name].append(value)
        # Of the whole update, so that the mean over tokens does not depend on how it is split.
        tokens = sum(len(completion) for group in found for completion in group.completions)
        total = torch.zeros((), device=self.accelerator.device)
        passes = list(in_passes(found, self.division.rows, self.division.tokens))
        for passing, of_others in own_passes(passes, self.accelerator.process_index):
            batch = self._collated(passing, of_others) | {"tokens": tokens}
            total += super(DistillationTrainer, self).training_step(model, batch)
        self._log_sums()
        return total

    def _collated(self, passing: Sequence[Group], of_others: bool) -> dict[str, Any]:
        """What TRL calls a prompt is the first token here, so that rows need padding on one side alone; the loss is
        over what its `tool_mask` has, the completions."""
        ids, attention, completion = padded(passing, int(self.processing_class.pad_token_id))
        return {
            "prompt_ids": ids[:, :1],
            "prompt_mask": attention[:, :1],
            "completion_ids": ids[:, 1:],
            "completion_mask": attention[:, 1:],
            "tool_mask": torch.zeros_like(completion[:, 1:]) if of_others else completion[:, 1:],
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

    def _log_sums(self) -> None:
        sums: Counter[str] = Counter()
        for part in gathered([dict(self._sums)]):
            sums.update(part)
        self._sums.clear()
        self._total_train_tokens += sums["read"]
        metrics = self._metrics["train"]
        metrics["num_tokens"].append(self._total_train_tokens)
        metrics["tokens/scored"].append(sums["read"])  # by the teacher
        metrics["entropy"].append(sums["entropy"] / sums["tokens"])
