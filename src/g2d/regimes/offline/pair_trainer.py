"""TRL's DPO trainer, with an optional NLL term and equal weights for all rows of a gradient step."""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn.functional import logsigmoid
from transformers import PreTrainedModel
from trl import DPOTrainer

from g2d.memory.workload import MicroBatches
from g2d.regimes.common.by_length import Batch, PassesByLength
from g2d.regimes.common.checkpoints import Checkpointed
from g2d.regimes.common.offline import FixedReference, PretokenizedMixin

Loss = Literal["sigmoid", "ipo"]
REFERENCE_KEYS = ("ref_chosen_logps", "ref_rejected_logps")


class PairTrainer(Checkpointed, PassesByLength, PretokenizedMixin, FixedReference, DPOTrainer):
    def __init__(self, *, loss: Loss, nll_weight: float, microbatches: MicroBatches, **arguments: object) -> None:
        self.pair_loss = loss
        self.nll_weight = nll_weight
        super().__init__(microbatches=microbatches, **arguments)
        self.once = bool(self.args.precompute_ref_log_probs)
        self.precompute_ref_logps = True  # TRL's loss then reads the reference from the batch

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
        once = [inputs[name] for name in REFERENCE_KEYS] if self.once else None
        inputs |= zip(REFERENCE_KEYS, self.reference(model, inputs, once), strict=True)
        super()._compute_loss(lambda **_: outputs, inputs, return_outputs=False)  # only for its logging
        per_token = outputs.log_probs[:, -mask.shape[1] :]
        log_ratios = per_token.sum(dim=1) - torch.cat([inputs[name] for name in REFERENCE_KEYS])
        chosen, rejected = log_ratios.chunk(2)
        chosen_length, rejected_length = mask.sum(dim=1).chunk(2)
        losses = pair_losses(self.pair_loss, chosen, rejected, chosen_length, rejected_length, self.beta)
        loss = (weights * losses).sum()
        if self.nll_weight:
            of_chosen = mask.chunk(2)[0]
            nll = -(per_token.chunk(2)[0] * of_chosen).sum() / of_chosen.sum()
            loss = loss + self.nll_weight * weights.sum() * nll
        return loss


def pair_losses(
    loss: Loss,
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    chosen_length: torch.Tensor,
    rejected_length: torch.Tensor,
    beta: float,
) -> torch.Tensor:
    """Return the loss of every pair, (pairs,).

    sigmoid is DPO (Rafailov et al. 2023, equation 7). ipo is TRL's version of Azar et al. 2023 (arXiv 2310.12036), with
    beta for tau and log-ratios per token.

    Args:
        chosen, rejected: log-ratios of policy over reference, summed over tokens, (pairs,).
    """
    if loss == "sigmoid":
        return -logsigmoid(beta * (chosen - rejected))
    chosen_mean = chosen / chosen_length.clamp(min=1)
    rejected_mean = rejected / rejected_length.clamp(min=1)
    return (chosen_mean - rejected_mean - 1 / (2 * beta)) ** 2
