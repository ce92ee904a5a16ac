"""DPO's trainer on groups, the rollouts of a prompt in an update: every rollout passes through the model once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

import torch
from torch.nn.functional import logsigmoid
from torch.utils.data import default_collate
from transformers import Trainer
from trl import DPOTrainer
from trl.trainer.utils import pad

from g2d.memory.workload import MicroBatches
from g2d.regimes.common.checkpoints import Checkpointed
from g2d.regimes.common.offline import FixedReference, PretokenizedMixin
from g2d.regimes.common.trl_private import require_private_names
from g2d.rewards.reward import Status
from g2d.rollouts.pairs import all_pairs, is_binary, is_open_ended, labels, lengths, one_pair

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel

require_private_names(DPOTrainer)

Metrics = dict[str, float | None]  # None without such rollouts


@dataclass(frozen=True, slots=True)
class Group:
    problem_id: str
    prompt: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]  # (chosen, rejected)
    advantages: tuple[float, ...]  # reward minus the prompt's mean (equation 1; not scaled)

    @property
    def chosen(self) -> list[int]:
        return sorted({right for right, _ in self.pairs})

    @property
    def chosen_tokens(self) -> int:
        return sum(len(self.completions[i]) for i in self.chosen)

    @property
    def width(self) -> int:
        return len(self.prompt) + max(map(len, self.completions))


def groups(
    rollouts: pd.DataFrame,
    names: Iterable[str],
    *,
    which: Literal["one", "all"],
    seed: int,
    whole: bool = False,
    min_reward_margin: float | None = None,
) -> list[Group]:
    """Form the groups of the pairable prompts among `names`, in their order.

    Args:
        which: "one" is the pair that `build_pairs` samples with this seed.
        whole: also keep rollouts that are in no pair.
        min_reward_margin: as in `labels`.
    """
    formed = []
    labelled = rollouts.assign(label=labels(rollouts, min_reward_margin)).dropna(subset="reward")
    by_problem = {name: rows.sort_values("sample") for name, rows in labelled.groupby("problem_id", sort=False)}
    for name in names:
        rows = by_problem.get(name)
        if rows is None:  # without any reward
            continue
        rewards = dict(zip(rows["sample"], rows["reward"], strict=True))
        right = list(rows["sample"][rows["label"].eq(True).fillna(False)])
        wrong = list(rows["sample"][rows["label"].eq(False).fillna(False)])
        if not right or not wrong:
            continue
        pairs = all_pairs(name, right, wrong, seed) if which == "all" else [one_pair(name, right, wrong, seed)]
        used = sorted(rewards if whole else set(chain.from_iterable(pairs)))
        at = {sample: i for i, sample in enumerate(used)}
        drawn = dict(zip(rows["sample"], rows["completion_ids"], strict=True))
        mean = sum(rewards.values()) / len(rewards)
        formed.append(
            Group(
                problem_id=name,
                prompt=tuple(rows["prompt_ids"].iloc[0].tolist()),
                completions=tuple(tuple(drawn[sample].tolist()) for sample in used),
                pairs=tuple((at[chosen], at[rejected]) for chosen, rejected in pairs),
                advantages=tuple(rewards[sample] - mean for sample in used),
            )
        )
    return formed


# Returns the groups to train on, the number of prompts, and metrics, after so many updates of a trainer.
Updates = Callable[[int, "GroupTrainer"], tuple[Sequence[Group], int, Metrics]]


class Pass(TypedDict):
    """Groups that pass through the model together; the loss is normalised over their update."""

    input_ids: torch.Tensor  # (rollouts, tokens), like the masks
    attention_mask: torch.Tensor
    completion_mask: torch.Tensor
    pairs: torch.Tensor  # chosen and rejected row, (pairs, 2)
    weights: torch.Tensor  # weight of each pair, (pairs,)
    chosen: torch.Tensor  # whether a rollout is chosen in a pair, (rollouts,)
    advantages: torch.Tensor  # (rollouts,)
    share: torch.Tensor  # weight of each prompt
    chosen_tokens: int  # tokens of chosen rollouts in the whole update


class GroupTrainer(Checkpointed, PretokenizedMixin, FixedReference, DPOTrainer):
    """A row of the data set is an update."""

    def __init__(
        self,
        *,
        updates: Updates,
        microbatches: MicroBatches,
        nll_weight: float,
        entropy_coefficient: float,
        grpo_weight: float,
        normalise_by: Literal["pairable", "all"],
        **arguments: object,
    ) -> None:
        self.updates = updates
        self.microbatches = microbatches
        self.nll_weight = nll_weight
        self.entropy_coefficient = entropy_coefficient
        self.grpo_weight = grpo_weight
        self.normalise_by = normalise_by
        self._sums: Counter[str] = Counter()  # over the passes of an update
        super().__init__(data_collator=default_collate, **arguments)

    def training_step(self, model: PreTrainedModel, inputs: object, num_items_in_batch: object = None) -> torch.Tensor:
        """Run one update. Without groups the gradient is zero rather than missing."""
        update, n_prompts_of_update, record = self.updates(self.state.global_step, self)
        for name, value in record.items():
            self._metrics["train"][name].append(value)
        total = torch.zeros((), device=self.accelerator.device)
        for passing in in_passes(update, self.microbatches.rows, self.microbatches.tokens):
            total += Trainer.training_step(self, model, self.batch_of(passing, update, n_prompts_of_update))
        if not update:
            model.train()  # a pass does so too: TRL does not log a model in evaluation mode
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)
        self.log_update()
        return total

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = ["update"]

    def batch_of(self, passing: Sequence[Group], update: Sequence[Group], n_prompts_of_update: int) -> Pass:
        """Collate one pass; losses are normalised over the whole update."""
        n_prompts = len(update) if self.normalise_by == "pairable" else n_prompts_of_update
        batch = collated(passing, n_prompts, int(self.processing_class.pad_token_id))
        batch["chosen_tokens"] = sum(group.chosen_tokens for group in update)
        return batch

    def log_update(self) -> None:
        """Log means over the pairs of an update, and the entropy over its tokens."""
        metrics = self._metrics["train"]
        sums = self._sums
        self._sums = Counter()
        n_pairs = sums.pop("pairs", 0)
        n_tokens = sums.pop("tokens", 0)
        self._total_train_tokens += sums.pop("read", 0)
        for name, value in sums.items():
            count = n_tokens if name == "entropy" else n_pairs
            metrics[name].append(value / count)
        metrics["num_tokens"].append(self._total_train_tokens)

    def _compute_loss(self, model: PreTrainedModel, inputs: Pass, return_outputs: bool = False) -> torch.Tensor:
        batch = {
            "input_ids": inputs["input_ids"],
            "attention_mask": inputs["attention_mask"],
            "completion_mask": inputs["completion_mask"],
        }
        mask = batch["completion_mask"][:, 1:].bool()
        outputs = self.policy(model, batch)
        width = mask.shape[1]
        per_token = outputs.log_probs[:, -width:]
        entropies = outputs.entropy[:, -width:]
        log_probs = per_token.sum(dim=1)
        reference = torch.cat([*self.reference(model, batch)])
        pairs = inputs["pairs"]
        weights = inputs["weights"].to(log_probs.dtype)
        loss = preference_loss(log_probs, reference, pairs, weights, self.beta)
        of_chosen = mask & inputs["chosen"].bool()[:, None]
        n_chosen = inputs["chosen_tokens"]
        if self.nll_weight:
            loss = loss - self.nll_weight * per_token[of_chosen].sum() / n_chosen
        if self.entropy_coefficient:
            loss = loss - self.entropy_coefficient * entropies[of_chosen].sum() / n_chosen
        if self.grpo_weight:
            loss = loss + self.grpo_weight * policy_gradient_loss(log_probs, inputs["advantages"], inputs["share"])
        implied = self.beta * (log_probs - reference).detach()
        chosen = implied[pairs[:, 0]]
        rejected = implied[pairs[:, 1]]
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
        return loss


def in_passes(update: Sequence[Group], rollouts: int, tokens: int = 0) -> Iterator[list[Group]]:
    """Split groups into passes of at most `rollouts` rollouts, or `tokens` padded tokens; a larger group is a pass."""
    longest_first = sorted(update, key=lambda group: -group.width)
    batch: list[Group] = []
    for group in longest_first if tokens else update:
        size = sum(len(member.completions) for member in [*batch, group])
        if not batch:
            is_full = False
        elif tokens:
            is_full = size * batch[0].width > tokens
        else:
            is_full = size > rollouts
        if is_full:
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch


def padded(passing: Sequence[Group], padding: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return token ids, attention mask and completion mask of groups, (rollouts, tokens), padded."""
    ids: list[torch.Tensor] = []
    masks: list[torch.Tensor] = []
    for group in passing:
        for completion in group.completions:
            ids.append(torch.tensor(group.prompt + completion))
            masks.append(torch.tensor([0] * len(group.prompt) + [1] * len(completion)))
    return (
        pad(ids, padding_value=padding, padding_side="right"),
        pad([torch.ones_like(row) for row in ids], padding_value=0, padding_side="right"),
        pad(masks, padding_value=0, padding_side="right"),
    )


def collated(passing: Sequence[Group], n_prompts: int, padding: int) -> Pass:
    """Collate groups; the loss is divided by `n_prompts`."""
    pairs: list[tuple[int, int]] = []
    weights: list[float] = []
    chosen: list[bool] = []
    advantages: list[float] = []
    for group in passing:
        first = len(chosen)
        pairs += [(first + right, first + wrong) for right, wrong in group.pairs]
        weights += [1 / (len(group.pairs) * n_prompts)] * len(group.pairs)  # mean over pairs, then prompts (equation 4)
        chosen += [i in group.chosen for i in range(len(group.completions))]
        advantages += group.advantages
    input_ids, attention_mask, completion_mask = padded(passing, padding)
    return Pass(
        input_ids=input_ids,
        attention_mask=attention_mask,
        completion_mask=completion_mask,
        pairs=torch.tensor(pairs),
        weights=torch.tensor(weights, dtype=torch.float64),
        chosen=torch.tensor(chosen),
        advantages=torch.tensor(advantages, dtype=torch.float64),
        share=torch.tensor(1 / n_prompts, dtype=torch.float64),
        chosen_tokens=sum(group.chosen_tokens for group in passing),
    )


def preference_loss(
    log_probs: torch.Tensor, reference: torch.Tensor, pairs: torch.Tensor, weights: torch.Tensor, beta: float
) -> torch.Tensor:
    """DPO's loss over weighted pairs (arXiv 2506.21495, equations 3 and 4).

    `log_probs` and `reference` are sums over tokens, (rollouts,); `pairs` index chosen and rejected, (pairs, 2).
    """
    implied = beta * (log_probs - reference)
    return -(weights * logsigmoid(implied[pairs[:, 0]] - implied[pairs[:, 1]])).sum()


def policy_gradient_loss(log_probs: torch.Tensor, advantages: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """GRPO's loss on the current policy's rollouts, with ratio 1 and nothing clipped (equation 1).

    `log_probs` are sums over tokens, (rollouts,); `share` is the weight of a prompt.
    """
    ratio = torch.exp(log_probs - log_probs.detach())
    return -share.to(log_probs.dtype) * (ratio * advantages.to(log_probs.dtype)).sum()


def summary(rollouts: pd.DataFrame, pairable: Sequence[Group]) -> Metrics:
    """Return the metrics of an update's rollouts, and of the groups with a pair."""
    n_prompts = rollouts["problem_id"].nunique()
    metrics: Metrics = {
        "prompts": n_prompts,
        "reward": float(rollouts["reward"].mean()),
        "completions/mean_length": float(rollouts["token_count"].mean()),
        "completions/clipped_ratio": float((rollouts["finish_reason"] == "length").mean()),
    }
    if not is_binary(rollouts):
        for side, mean in zip(("best", "worst"), lengths(rollouts), strict=True):
            if mean is not None:  # no prompt has two different rewards
                metrics[f"completions/mean_length_{side}"] = mean
    if "reward_status" in rollouts:
        for status in get_args(Status):
            metrics[f"rewards/{status}"] = float((rollouts["reward_status"] == status).mean())
    if is_open_ended(rollouts).any():
        metrics |= _by_kind(rollouts)
    metrics["pairs"] = sum(len(group.pairs) for group in pairable)
    metrics["pairable"] = len(pairable) / n_prompts
    return metrics


def _by_kind(rollouts: pd.DataFrame) -> Metrics:
    kinds = is_open_ended(rollouts).map({True: "open_ended", False: "verifiable"})
    metrics: Metrics = {}
    for kind, rows in rollouts.groupby(kinds):
        judged = float(rows["reward"].notna().mean())
        metrics |= {
            f"reward/{kind}": float(rows["reward"].mean()),
            f"completions/mean_length/{kind}": float(rows["token_count"].mean()),
            f"rewards/judged/{kind}": judged,
            f"rewards/without/{kind}": 1 - judged,
        }
    return metrics
