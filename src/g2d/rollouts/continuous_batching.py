"""Continuous batching: the row of a finished completion is reused for the next sample.

A prompt is read once for all its samples, and so is a prefix that all prompts share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from g2d.rollouts.engine import Decoding
from g2d.rollouts.rows import SLIDING, Rows, attends_by_row, kinds_of_layers
from g2d.rollouts.sampling import has_large_vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Sample = tuple[int, int]  # (index of the prompt, number of the sample)

SHARE = 8  # refill when 1/SHARE of the rows are free: reading prompts takes about as long as a step
PREFIX = 32  # shortest common prefix, in tokens, that is read once


class ContinuousBatch:
    """Generates samples in the rows of a batch.

    Args:
        stream: uniform numbers for the tokens of a sample, shape (max_completion_length,).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        decoding: Decoding,
        stream: Callable[[Sample], np.ndarray],
        end_ids: Iterable[int],
    ) -> None:
        self.model = model
        self.prompts = prompts
        self.decoding = decoding
        self.stream = stream
        self.end_ids = frozenset(end_ids)

    @torch.no_grad()
    def complete(self, samples: Sequence[Sample]) -> dict[Sample, list[int]]:
        """Generate the tokens of every sample, including the token that ends it."""
        queue = deque(samples)
        n = min(self.decoding.batch_size, len(queue))
        self.prefix = shared_prefix(self.model, self.prompts)
        columns = max(map(len, self.prompts)) - len(self.prefix) + self.decoding.max_completion_length
        self.rows = Rows(self.model, self.decoding, self.end_ids, n, columns, self.prefix)
        self.samples: list[Sample | None] = [None] * len(self.rows)
        completed = self._pass_on(queue)
        while any(sample is not None for sample in self.samples):
            self._draw(until_free=max(1, len(self.rows) // SHARE))
            completed |= self._pass_on(queue)
        return completed

    def _draw(self, until_free: int) -> None:
        """Draw tokens until so many rows are free; a row is free when its completion has ended."""
        longest = int((self.rows.lengths * ~self.rows.free).max())
        while int(self.rows.free.sum()) < until_free:
            self.rows.step(longest)
            longest += 1

    def _pass_on(self, queue: deque[Sample]) -> dict[Sample, list[int]]:
        rows = self.rows
        free = rows.free.nonzero().flatten()
        drawn = zip(free.tolist(), rows.tokens[free].tolist(), rows.counts[free].tolist(), strict=True)
        completed: dict[Sample, list[int]] = {}
        for row, tokens, count in drawn:
            sample = self.samples[row]
            if sample is not None:
                completed[sample] = tokens[:count]
                self.samples[row] = None
        joining = [queue.popleft() for _ in range(min(len(free), len(queue)))]
        if joining:
            self._join(joining, free[: len(joining)])
        if len(joining) < len(free):
            self._close(free[len(joining) :])
        return completed

    def _join(self, joining: list[Sample], rows: torch.Tensor) -> None:
        order: dict[int, int] = {}  # prompts that join, numbered
        which: list[int] = []
        streams: list[np.ndarray] = []
        for row, sample in zip(rows.tolist(), joining, strict=True):
            self.samples[row] = sample
            prompt, _ = sample
            which.append(order.setdefault(prompt, len(order)))
            streams.append(self.stream(sample))
        uniforms = torch.from_numpy(np.stack(streams)).to(rows.device)
        suffixes = [self.prompts[prompt][len(self.prefix) :] for prompt in order]
        self.rows.join(suffixes, rows, torch.tensor(which, device=rows.device), uniforms)

    def _close(self, rows: torch.Tensor) -> None:
        stays = torch.ones_like(self.rows.free)
        stays[rows] = False
        n = int(stays.sum())
        kept = torch.arange(n, device=rows.device)
        kept[~stays[:n]] = n + stays[n:].nonzero().flatten()
        self.rows.keep(kept)
        self.samples = [self.samples[row] for row in kept.tolist()]


def shared_prefix(model: PreTrainedModel, prompts: Sequence[Sequence[int]]) -> list[int]:
    """Return the common prefix of all prompts, without any prompt's last token, if it is worth reading separately.

    Empty for small vocabularies: their samples keep the bits of earlier releases. Empty with sliding windows: the mask
    would count a prompt's padding after the prefix.
    """
    large = has_large_vocabulary(model.config.get_text_config(decoder=True).vocab_size)
    if not large or not attends_by_row(model) or SLIDING in kinds_of_layers(model.config):
        return []
    in_order = sorted(list(prompt) for prompt in prompts)
    first = in_order[0]
    last = in_order[-1]  # all others are between these two
    most = min(len(prompt) for prompt in prompts) - 1
    length = 0
    while length < most and first[length] == last[length]:
        length += 1
    return first[:length] if length >= PREFIX else []
