"""Regroup the rows of an update into passes of similar length, to reduce padding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import torch
from transformers import Trainer

from g2d.memory.workload import MicroBatches

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Batch = dict[str, torch.Tensor]  # tensors have a row per completion or pair, or belong to all rows
PROMPT = ("prompt_ids", "prompt_mask")


def dealt(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Split rows into passes, longest first, of at most `tokens` when padded."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    passes: list[list[int]] = []
    while order:
        n = max(1, tokens // lengths[order[0]])
        passes.append(order[:n])
        order = order[n:]
    return passes


class PassesByLength(Trainer):
    """Mixin for TRL trainers that splits a batch into several passes if `microbatches.tokens` is set."""

    def __init__(self, *, microbatches: MicroBatches, **arguments: object) -> None:
        self.microbatches = microbatches
        super().__init__(**arguments)

    def rows(self, batch: Batch) -> int:
        return len(batch["input_ids"])

    def training_step(
        self, model: PreTrainedModel, inputs: Batch, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        step: Callable[..., torch.Tensor] = super().training_step
        if not self.microbatches.tokens:
            return step(model, inputs, num_items_in_batch)
        n = self.rows(inputs)
        of_unit = inputs["attention_mask"].sum(dim=1).view(-1, n)  # a pair has two sequences
        lengths: list[int] = (of_unit.amax(dim=0) * len(of_unit)).tolist()
        passes = dealt(lengths, self.microbatches.tokens)
        metrics = self._metrics["train"]
        before = {name: len(values) for name, values in metrics.items()}
        losses: list[torch.Tensor] = []
        for rows in passes:
            part = cut(rows_of(inputs, torch.tensor(rows), n), "attention_mask")
            losses.append(step(model, part, num_items_in_batch))
        for name, values in metrics.items():
            first = before.get(name, 0)
            logged = values[first:]
            if len(logged) == len(passes):
                total = sum(len(rows) * value for rows, value in zip(passes, logged, strict=True))
                values[first:] = [total / n]
        return torch.stack(losses).sum()


Order = Callable[[Batch], torch.Tensor]


def by_length(batch: Batch) -> torch.Tensor:
    return batch["completion_mask"].sum(dim=1).argsort(descending=True, stable=True)


def by_prompt(batch: Batch) -> torch.Tensor:
    prompts = torch.cat([batch[name] for name in PROMPT], dim=1)
    rows = [tuple(ids) for ids in prompts.tolist()]
    return torch.tensor(sorted(range(len(rows)), key=lambda row: rows.index(rows[row])))


def regrouped(batches: Sequence[Batch], per_update: int, ordered: Order = by_length) -> list[Batch]:
    """Reorder the completions of every update, and divide them into micro-batches again."""
    regrouped_batches: list[Batch] = []
    for start in range(0, len(batches), per_update):
        of_update = batches[start : start + per_update]
        whole = joined(of_update)
        order = ordered(whole)
        for rows in order.chunk(len(of_update)):
            batch = rows_of(whole, rows, len(order))
            prompt = cut({name: batch[name] for name in PROMPT}, "prompt_mask")
            regrouped_batches.append(cut(batch, "completion_mask", but=PROMPT) | prompt)
    return regrouped_batches


def joined(batches: Sequence[Batch]) -> Batch:
    """Join the rows of batches; values without rows are equal in all of them."""
    whole: Batch = {}
    for name, value in batches[0].items():
        whole[name] = value
        if value.ndim:
            whole[name] = torch.cat([batch[name] for batch in batches])
    return whole


def rows_of(batch: Batch, rows: torch.Tensor, n: int) -> Batch:
    """Select rows of a batch of n; a tensor may have several blocks of n rows, such as chosen and rejected."""
    selected: Batch = {}
    for name, value in batch.items():
        selected[name] = value
        if value.ndim:
            blocks = value.unflatten(0, (-1, n))
            selected[name] = blocks[:, rows.to(value.device)].flatten(0, 1)
    return selected


def cut(batch: Batch, mask: str, but: Collection[str] = ()) -> Batch:
    """Remove columns that are padding in all rows, from all tensors of the mask's width except `but`."""
    width = batch[mask].shape[1]
    used = batch[mask].any(dim=0).nonzero().flatten().tolist() or [0]
    columns = slice(used[0], used[-1] + 1)
    narrow: Batch = {}
    for name, value in batch.items():
        narrow[name] = value
        if value.ndim > 1 and value.shape[1] == width and name not in but:
            narrow[name] = value[:, columns]
    return narrow
