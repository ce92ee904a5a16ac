"""TRL's DPO trainer for any pair loss, with an optional NLL term and equal weights for all pairs of a gradient step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from datasets import Dataset
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from trl import DPOTrainer

from g2d.memory.workload import MicroBatches
from g2d.regimes.common.by_length import Batch, PassesByLength
from g2d.regimes.common.checkpoints import Checkpointed
from g2d.regimes.common.offline import FixedReference, PretokenizedMixin
from g2d.regimes.common.trl_private import require_private_names

require_private_names(DPOTrainer)

REFERENCE_KEYS = ("ref_chosen_logps", "ref_rejected_logps")
IMPLIED_REWARDS = ("rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins")


@dataclass(frozen=True, slots=True)
class Scores:
    """Chosen or rejected completions of the pairs of a pass, each tensor (pairs,)."""

    log_probs: torch.Tensor  # sums over the tokens of a completion
    reference: torch.Tensor | None  # the same under the reference; None if the loss has none
    n_tokens: torch.Tensor  # at least 1

    @property
    def log_ratios(self) -> torch.Tensor:
        """Log-ratios of policy over reference."""
        if self.reference is None:
            raise TypeError("this loss has no reference: set `has_reference` of its keys, or use `log_probs`")
        return self.log_probs - self.reference


class PairTrainer(Checkpointed, PassesByLength, PretokenizedMixin, FixedReference, DPOTrainer):
    """Trains on pairs; `loss` returns the loss of every pair from the scores of chosen and rejected completions."""

    def __init__(
        self,
        *,
        loss: Callable[[Scores, Scores], torch.Tensor],
        has_reference: bool,
        nll_weight: float,
        microbatches: MicroBatches,
        **arguments: object,
    ) -> None:
        self.pair_loss = loss
        self.has_reference = has_reference
        self.nll_weight = nll_weight
        super().__init__(microbatches=microbatches, **arguments)
        self.once = bool(self.args.precompute_ref_log_probs)
        self.precompute_ref_logps = True  # TRL's loss then reads the reference from the batch

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        if not self.has_reference:
            return dataset
        return super()._precompute_ref_logps(dataset, name, batch_size)

    def rows(self, batch: Batch) -> int:
        """Return the number of pairs: chosen completions come before rejected ones."""
        return len(batch["input_ids"]) // 2

    def _get_num_items_in_batch(self, batches: list[Batch], device: torch.device) -> torch.Tensor | int | None:
        """Give every pair of a gradient step the same weight, also in a smaller last micro-batch."""
        sizes = [self.rows(batch) for batch in batches]
        weight = len(batches) / sum(sizes)  # Trainer divides by the number of batches
        for batch, size in zip(batches, sizes, strict=True):
            batch["weights"] = torch.full((size,), weight)
        n_items: torch.Tensor | int | None = super()._get_num_items_in_batch(batches, device)
        return n_items

    def _compute_loss(self, model: PreTrainedModel, inputs: Batch, return_outputs: bool = False) -> torch.Tensor:
        weights = inputs.pop("weights")
        mask = inputs["completion_mask"][:, 1:]
        outputs = self.policy(model, inputs)
        per_token = outputs.log_probs[:, -mask.shape[1] :]
        log_probs = per_token.sum(dim=1)
        references = self.references(model, inputs)
        self.log_as_trl(outputs, inputs, references)
        n_tokens = mask.sum(dim=1).clamp(min=1)
        chosen, rejected = [
            Scores(*side) for side in zip(log_probs.chunk(2), references, n_tokens.chunk(2), strict=True)
        ]
        loss = (weights * self.pair_loss(chosen, rejected)).sum()
        if self.nll_weight:
            of_chosen = mask.chunk(2)[0]
            nll = -(per_token.chunk(2)[0] * of_chosen).sum() / of_chosen.sum()
            loss = loss + self.nll_weight * weights.sum() * nll
        return loss

    def references(self, model: PreTrainedModel, inputs: Batch) -> Sequence[torch.Tensor | None]:
        """Return reference log-probabilities of chosen and of rejected completions."""
        if not self.has_reference:
            return None, None
        once = [inputs[name] for name in REFERENCE_KEYS] if self.once else None
        return self.reference(model, inputs, once)

    def log_as_trl(
        self, outputs: CausalLMOutputWithPast, inputs: Batch, references: Sequence[torch.Tensor | None]
    ) -> None:
        """Log what TRL's loss logs; rewards are log-ratios, so a loss without a reference has none."""
        nothing = torch.zeros(self.rows(inputs), device=outputs.log_probs.device)
        for name, reference in zip(REFERENCE_KEYS, references, strict=True):
            inputs[name] = nothing if reference is None else reference
        super()._compute_loss(lambda **_: outputs, inputs, return_outputs=False)
        if not self.has_reference:
            for name in IMPLIED_REWARDS:
                self._metrics["train"].pop(name)
