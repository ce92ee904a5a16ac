"""DPO's trainer on groups: every rollout passes through the model once, and the pairs are formed in the loss.

An update asks for its groups (`Updates`) when it needs them, which may be rollouts of the policy in training; what the
model, the reference, the adapter and the optimizer do stays TRL's. Imports TRL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.functional import logsigmoid
from transformers import Trainer
from trl import DPOTrainer
from trl.trainer.utils import pad

from g2d.regimes.division import Division
from g2d.regimes.groups import Group, GroupLoss, in_passes, pair_weights
from g2d.regimes.offline import FixedReference, TakesTokens
from g2d.regimes.processes import gathered, n_processes

MODEL_KEYS = ("input_ids", "attention_mask", "completion_mask")


# Given the updates behind it, of one: the groups to train on, the prompts behind them (pairable or not), what to log.
Updates = Callable[[int], tuple[Sequence[Group], int, dict[str, Any]]]


class OnGroups:
    """Before one of TRL's trainers: every update is given its groups, and makes as many passes as they need.

    The data set is a row per update, of which nothing is read; `per_device_train_batch_size` and
    `gradient_accumulation_steps` are 1. Several processes share the passes, and every one of them knows all groups.
    """

    def __init__(self, *args: Any, updates: Updates, division: Division, **kwargs: Any) -> None:
        self.updates, self.division = updates, division
        self._sums: Counter[str] = Counter()  # over the passes of an update
        super().__init__(*args, **kwargs)

    def training_step(self: Any, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """One update. Without a group its gradient is zero, not missing."""
        found, asked, record = self.updates(self.state.global_step)
        for name, value in record.items():
            self._metrics["train"][name].append(value)
        total = torch.zeros((), device=self.accelerator.device)
        passes = list(in_passes(found, self.division.rows, self.division.tokens))
        for passing, of_others in own_passes(passes, self.accelerator.process_index):
            total += Trainer.training_step(self, model, self.batch_of(passing, of_others, found, asked))
        if not found:
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        sums: Counter[str] = Counter()
        for part in gathered([dict(self._sums)]):
            sums.update(part)
        self._sums.clear()
        self.log_update(sums)
        return total


class GroupTrainer(OnGroups, TakesTokens, FixedReference, DPOTrainer):
    """DPO, GroupDPO and what `GroupLoss` adds, on groups of rollouts."""

    def __init__(self, *args: Any, loss: GroupLoss, **kwargs: Any) -> None:
        self.group_loss = loss
        super().__init__(*args, data_collator=_update_number, **kwargs)

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = ["update"]

    def batch_of(self, passing: Sequence[Group], of_others: bool, found: Sequence[Group], asked: int) -> dict[str, Any]:
        """The batch of a pass; its means are over what the whole update has, so they do not depend on its passes."""
        n_prompts = len(found) if self.group_loss.normalise == "pairable" else asked
        batch: dict[str, Any] = collated(passing, n_prompts, int(self.processing_class.pad_token_id))
        if of_others:
            batch |= {name: torch.zeros_like(batch[name]) for name in ("weights", "chosen", "share")}
        chosen = sum(len(group.completions[i]) for group in found for i in group.chosen)
        return batch | {"chosen_tokens": chosen, "counts": not of_others}

    def log_update(self, sums: Counter[str]) -> None:
        """Log means over pairs, and over tokens."""
        metrics = self._metrics["train"]
        n_pairs, n_tokens, read = (sums.pop(name, 0) for name in ("pairs", "tokens", "read"))
        for name, value in sums.items():
            metrics[name].append(value / (n_tokens if name == "entropy" else n_pairs))
        self._total_train_tokens += read
        metrics["num_tokens"].append(self._total_train_tokens)

    def _compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], return_outputs: bool = False) -> Any:
        settings = self.group_loss
        batch = {name: inputs[name] for name in MODEL_KEYS}
        mask = batch["completion_mask"][:, 1:].bool()
        outputs = self.policy(model, batch)
        width = mask.shape[1]
        per_token, entropies = outputs.log_probs[:, -width:], outputs.entropy[:, -width:]
        log_probs = per_token.sum(dim=1)
        reference = torch.cat([*self.reference(model, batch)])
        pairs, weights = inputs["pairs"], inputs["weights"].to(log_probs.dtype)
        loss = preference_loss(log_probs, reference, pairs, weights, settings.beta)
        of_chosen = mask & inputs["chosen"].bool()[:, None]
        n_chosen = inputs["chosen_tokens"]
        if settings.nll_weight:
            loss = loss - settings.nll_weight * per_token[of_chosen].sum() / n_chosen
        if settings.entropy_coefficient:
            loss = loss - settings.entropy_coefficient * entropies[of_chosen].sum() / n_chosen
        if settings.grpo_weight:
            loss = loss + settings.grpo_weight * policy_gradient_loss(log_probs, inputs["advantages"], inputs["share"])
        if inputs["counts"]:
            implied = settings.beta * (log_probs - reference).detach()
            chosen, rejected = implied[pairs[:, 0]], implied[pairs[:, 1]]
            self._sums.update(
                {
                    "pairs": len(pairs),
                    "rewards/chosen": float(chosen.sum()),
                    "rewards/rejected": float(rejected.sum()),
                    "rewards/accuracies": float((chosen > rejected).sum()),
                    "rewards/margins": float((chosen - rejected).sum()),
                    "logps/chosen": float(log_probs[pairs[:, 0]].detach().sum()),
                    "logps/rejected": float(log_probs[pairs[:, 1]].detach().sum()),
                    "entropy": float(entropies[mask].detach().sum()),
                    "tokens": int(mask.sum()),
                    "read": int(batch["attention_mask"].sum()),
                }
            )
        return loss * n_processes()  # over which gradients and logged losses are averaged


def _update_number(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {"update": torch.tensor([row["update"] for row in rows])}


def own_passes(passes: Sequence[Sequence[Group]], process: int) -> Iterator[tuple[Sequence[Group], bool]]:
    """The passes that a process makes, and of each whether another one has its gradient: a backward pass is something
    that all processes do together."""
    n = n_processes()
    for start in range(0, len(passes), n):
        turn = passes[start : start + n]
        yield (turn[process], False) if process < len(turn) else (turn[0], True)


def padded(passing: Sequence[Group], padding: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The rollouts of groups as rows, (rollouts, tokens): tokens, shorter rows filled up at their end, 1 where there is
    one, and 1 where it is one of a completion."""
    rows = [(group.prompt, completion) for group in passing for completion in group.completions]
    ids = [torch.tensor(prompt + completion) for prompt, completion in rows]
    masks = [torch.tensor([0] * len(prompt) + [1] * len(completion)) for prompt, completion in rows]
    return (
        pad(ids, padding_value=padding, padding_side="right"),
        pad([torch.ones_like(row) for row in ids], padding_value=0, padding_side="right"),
        pad(masks, padding_value=0, padding_side="right"),
    )


def collated(passing: Sequence[Group], n_prompts: int, padding: int) -> dict[str, torch.Tensor]:
    """A batch of groups, of an update whose loss is divided by `n_prompts`.

    Returns:
        input_ids, attention_mask, completion_mask (rollouts, tokens); pairs (pairs, 2), rows of chosen and rejected;
        weights (pairs,); chosen, advantages (rollouts,); and share, the weight of a rollout's prompt.
    """
    pairs: list[tuple[int, int]] = []
    weights: list[float] = []
    chosen: list[bool] = []
    advantages: list[float] = []
    for group in passing:
        first = len(chosen)
        pairs += [(first + right, first + wrong) for right, wrong in group.pairs]
        weights += pair_weights(group, n_prompts)
        chosen += [i in group.chosen for i in range(len(group.completions))]
        advantages += group.advantages
    return {
        **dict(zip(MODEL_KEYS, padded(passing, padding), strict=True)),
        "pairs": torch.tensor(pairs),
        "weights": torch.tensor(weights, dtype=torch.float64),
        "chosen": torch.tensor(chosen),
        "advantages": torch.tensor(advantages, dtype=torch.float64),
        "share": torch.tensor(1 / n_prompts, dtype=torch.float64),
    }


def preference_loss(
    log_probs: torch.Tensor, reference: torch.Tensor, pairs: torch.Tensor, weights: torch.Tensor, beta: float
) -> torch.Tensor:
    """DPO's loss over weighted pairs (arXiv 2506.21495, equations 3 and 4).

    Args:
        log_probs: of the rollouts, summed over tokens, (rollouts,); `reference` the same under the reference policy.
        pairs: indices of chosen and rejected, (pairs, 2), whose `weights` are (pairs,).
    """
    implied = beta * (log_probs - reference)
    return -(weights * logsigmoid(implied[pairs[:, 0]] - implied[pairs[:, 1]])).sum()


def policy_gradient_loss(log_probs: torch.Tensor, advantages: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """GRPO's loss where the rollouts are the policy's own: the ratio is 1 and nothing is clipped (equation 1). Summed
    over tokens and rollouts, (rollouts,), as there; `share` is the weight of a prompt."""
    ratio = torch.exp(log_probs - log_probs.detach())
    return -share.to(log_probs.dtype) * (ratio * advantages.to(log_probs.dtype)).sum()
