"""Passes of rows with alike lengths: the rows of one update are dealt anew, so that less of a pass is padding. Which
rows an update has, and in which order updates follow each other, stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from g2d.regimes.division import Division
from g2d.regimes.offline import EqualRows
from g2d.regimes.processes import n_processes

Batch = dict[str, Any]  # tensors with a first dimension of rows, and values that hold for all of them
PROMPT = ("prompt_ids", "prompt_mask")


def dealt(lengths: Sequence[int], tokens: int, rows: int | None = None) -> list[list[int]]:
    """The rows of each pass, the longest first: as many as have room when all are padded to the longest of them.

    Args:
        lengths: of the rows, in tokens; of rows that belong together, what they have together when padded.
        tokens: of a pass, at most; a longer row has a pass of its own.
        rows: so many in every pass instead.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    passes: list[list[int]] = []
    while order:
        n = rows or max(1, tokens // lengths[order[0]])
        passes.append(order[:n])
        order = order[n:]
    return passes


class PassesByLength(EqualRows):
    """Before one of TRL's trainers: with `division.tokens` a micro-batch, then all rows that a process has of an
    update, passes through the model in parts. Its gradient and its loss are sums over them."""

    def __init__(self, *, division: Division, **arguments: Any) -> None:
        self.division = division
        super().__init__(**arguments)

    def training_step(self, model: Any, inputs: Batch, num_items_in_batch: Any = None) -> torch.Tensor:
        """As the Trainer's."""
        step: Any = super().training_step  # type: ignore[misc]
        if not self.division.tokens:
            return step(model, inputs, num_items_in_batch)
        n = self.rows(inputs)
        of_unit = inputs["attention_mask"].sum(dim=1).view(-1, n)  # a pair has two sequences
        lengths: list[int] = (of_unit.amax(dim=0) * len(of_unit)).tolist()
        # TRL gathers what it logs by rows, so all processes have as many in a pass.
        passes = dealt(lengths, self.division.tokens, self.division.rows if n_processes() > 1 else None)
        metrics = self._metrics["train"]  # type: ignore[attr-defined]
        before = {name: len(values) for name, values in metrics.items()}
        parts = [cut(rows_of(inputs, torch.tensor(own), n), "attention_mask") for own in passes]
        losses = [step(model, part, num_items_in_batch) for part in parts]
        for name, values in metrics.items():  # of which the trainer logs the mean
            own = values[before.get(name, 0) :]
            if len(own) == len(passes):
                mean = sum(len(rows) * value for rows, value in zip(passes, own, strict=True)) / n
                values[before.get(name, 0) :] = [mean]
        return torch.stack(losses).sum()


Order = Callable[[Batch], torch.Tensor]  # the rows of a batch of GRPO, sorted


def by_length(batch: Batch) -> torch.Tensor:
    """Rows by the length of their completions, the longest first."""
    return batch["completion_mask"].sum(dim=1).argsort(descending=True, stable=True)


def by_prompt(batch: Batch) -> torch.Tensor:
    """Rows of a prompt one after another, so that a pass has many of them (`g2d.regimes.shared_prompts`)."""
    rows = [tuple(ids) for ids in torch.cat([batch[name] for name in PROMPT], dim=1).tolist()]
    return torch.tensor(sorted(range(len(rows)), key=lambda row: rows.index(rows[row])))


def regrouped(batches: Sequence[Batch], per_update: int, ordered: Order = by_length) -> list[Batch]:
    """The micro-batches of a generation of GRPO, the completions of every update in another order: `batches` as TRL
    deals them out, all with as many rows."""
    found = []
    for start in range(0, len(batches), per_update):
        own = batches[start : start + per_update]
        # What is not by row is the same in all of them.
        whole = {
            name: torch.cat([batch[name] for batch in own]) if isinstance(value, torch.Tensor) and value.ndim else value
            for name, value in own[0].items()
        }
        order = ordered(whole)
        for rows in order.chunk(len(own)):
            batch = rows_of(whole, rows, len(order))
            prompt = cut({name: batch[name] for name in PROMPT}, "prompt_mask")
            found.append(cut(batch, "completion_mask", but=PROMPT) | prompt)
    return found


def rows_of(batch: Batch, rows: torch.Tensor, n: int) -> Batch:
    """Some rows of a batch of n. A tensor with several times as many has several blocks of them, as the rejected
    completions of pairs stand behind all chosen ones."""

    def chosen(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.ndim:
            return value
        return value.unflatten(0, (-1, n))[:, rows.to(value.device)].flatten(0, 1)

    return {name: chosen(value) for name, value in batch.items()}


def cut(batch: Batch, mask: str, but: Collection[str] = ()) -> Batch:
    """A batch without the columns that are padding in all rows, on the left or on the right, as the tensor `mask` says.
    What is as wide is cut as it is, `but` what these names say."""
    width = batch[mask].shape[1]
    used = batch[mask].any(dim=0).nonzero().flatten().tolist() or [0]
    columns = slice(used[0], used[-1] + 1)

    def narrow(name: str, value: Any) -> Any:
        as_wide = isinstance(value, torch.Tensor) and value.ndim > 1 and value.shape[1] == width
        return value[:, columns] if as_wide and name not in but else value

    return {name: narrow(name, value) for name, value in batch.items()}
