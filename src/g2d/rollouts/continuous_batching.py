"""Continuous batching for a causal language model: the row of a finished completion goes to the next sample.

A prompt is read once for its samples, and keys and values are written in place. All rows end at the same column of the
cache, as in a batch that is padded on the left, so any attention works (grouped, sliding, rotary or learned positions).
Models that cache anything else are left to `generate` (`is_supported`).
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from g2d.rollouts.engine import Decoding
from g2d.rollouts.sampling import choose_tokens

Sample = tuple[int, int]  # index of the prompt, number of the sample

ROOM = 32  # columns that are allocated ahead: moving the cache takes about as long as a step
SHARE = 8  # rows get new samples when one in so many is free: reading prompts takes about as long as a step


def is_supported(model: Any) -> bool:
    """Whether a model caches keys and values of every token alone, and takes the positions of tokens."""
    if model.config.is_encoder_decoder or "position_ids" not in parameters(model):
        return False
    layers = DynamicCache(config=model.config).layers
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)


def parameters(model: Any) -> frozenset[str]:
    """Names of the arguments of a model's forward pass."""
    return frozenset(inspect.signature(model.forward).parameters)


@dataclass
class Columns:
    """Columns of the cache, the same for all rows and layers: those from `start` to `end` are in use."""

    start: int = 0
    end: int = 0
    capacity: int = 0


class RowLayer(DynamicLayer):
    """Keys and values of one layer, (rows, heads, columns, width), with columns to spare for tokens to come."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, columns: Columns, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.columns, self.keys, self.values, self.is_initialized = columns, keys, values, True

    def get_seq_length(self) -> int:
        return self.columns.end - self.columns.start

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        """Write the next column and return all columns in use."""
        start, end = self.columns.start, self.columns.end
        self.keys[:, :, end] = key_states[:, :, 0]
        self.values[:, :, end] = value_states[:, :, 0]
        return self.keys[:, :, start : end + 1], self.values[:, :, start : end + 1]


class RowCache(Cache):
    """The layers of a model."""

    def __init__(self) -> None:
        self.columns = Columns()
        self.parts: list[RowLayer] = []
        super().__init__(layers=self.parts)

    def write(self, rows: torch.Tensor, read: DynamicCache, which: torch.Tensor, total: int) -> None:
        """Write prompts into rows of `total`, ending at the common column; row i gets prompt `which[i]` of `read`."""
        end, capacity = self.columns.end, self.columns.capacity
        for index, (keys, values, _) in enumerate(read):
            fresh = (keys[which], values[which])
            if index == len(self.parts):
                self.parts.append(RowLayer(self.columns, *(blank(states, total, capacity) for states in fresh)))
            used = slice(end - keys.shape[2], end)
            self.parts[index].keys[rows, :, used], self.parts[index].values[rows, :, used] = fresh

    def make_room(self, reach: int) -> None:
        """Move the columns in use so that they end at `reach` or later, with columns to spare behind them."""
        old = self.columns
        width = old.end - old.start
        end = max(width, reach)
        capacity = max(old.capacity, end + max(ROOM, end // 2))

        def moved(states: torch.Tensor) -> torch.Tensor:
            used = states[:, :, old.start : old.end].clone()
            if capacity > old.capacity:
                states = blank(states, len(states), capacity)
            states[:, :, end - width : end] = used
            return states

        for part in self.parts:
            part.keys, part.values = moved(part.keys), moved(part.values)
        old.start, old.end, old.capacity = end - width, end, capacity

    def keep(self, rows: torch.Tensor) -> None:
        """Keep some of the rows, in place: `rows[i]` becomes row i."""
        moving = (rows != torch.arange(len(rows), device=rows.device)).nonzero().flatten()
        for part in self.parts:
            for states in (part.keys, part.values):
                states[moving] = states[rows[moving]]
            part.keys, part.values = part.keys[: len(rows)], part.values[: len(rows)]


def blank(like: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Keys or values of zeros: masked ones are multiplied by 0, and 0 times NaN would be NaN."""
    return like.new_zeros(rows, like.shape[1], columns, like.shape[3])


class ContinuousBatch:
    """The rows of a batch, each at a token of a sample, or free.

    Args:
        prompts: tokens of every prompt.
        stream: uniform numbers for the tokens of a sample, shape (max_completion_length,).
        end_ids: tokens that end a completion.
    """

    def __init__(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        decoding: Decoding,
        stream: Callable[[Sample], np.ndarray],
        end_ids: Iterable[int],
    ) -> None:
        self.model, self.prompts, self.decoding, self.stream = model, prompts, decoding, stream
        self.device = model.device
        self.end_ids = torch.tensor(sorted(end_ids), dtype=torch.long, device=self.device)
        self.last_logits_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters(model) else {}

    @torch.inference_mode()
    def complete(self, samples: Sequence[Sample]) -> dict[Sample, list[int]]:
        """The tokens of every sample, with the one that ended it."""
        queue = deque(samples)
        self._open(min(self.decoding.batch_size, len(queue)))
        completed = self._pass_on(queue)
        while self.samples:
            enough = max(1, len(self.samples) // SHARE)
            busy = (~self.free).nonzero().flatten()
            while len(self.samples) - len(busy) < enough and self.cache.columns.end < self.cache.columns.capacity:
                self._draw(busy, self._read(self.latest.unsqueeze(-1), self.lengths, self.cache)[busy])
                self.cache.columns.end += 1
                busy = (~self.free).nonzero().flatten()
            completed |= self._pass_on(queue)
        return completed

    def _open(self, rows: int) -> None:
        """A batch of free rows."""

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=self.device)

        self.samples: list[Sample | None] = [None] * rows
        self.free = torch.ones(rows, dtype=torch.bool, device=self.device)
        self.tokens = zeros(rows, self.decoding.max_completion_length)
        self.uniforms = zeros(rows, self.decoding.max_completion_length, dtype=torch.float64)
        self.counts = zeros(rows)  # tokens drawn
        self.lengths = zeros(rows)  # tokens of the prompt and those drawn
        self.latest = zeros(rows)  # the token drawn last, which the model has not read
        self.cache = RowCache()

    def _pass_on(self, queue: deque[Sample]) -> dict[Sample, list[int]]:
        """Take completed samples from the free rows, give the rows to the next samples, and close the rest."""
        free = self.free.nonzero().flatten()
        drawn = zip(free.tolist(), self.tokens[free].tolist(), self.counts[free].tolist(), strict=True)
        completed = {
            sample: tokens[:count] for row, tokens, count in drawn if (sample := self.samples[row]) is not None
        }
        joining = [queue.popleft() for _ in range(min(len(free), len(queue)))]
        if len(joining) < len(free):
            self._close(free[len(joining) :])
        longest = max((len(self.prompts[prompt]) for prompt, _ in joining), default=0)
        if longest > self.cache.columns.end or self.cache.columns.end == self.cache.columns.capacity:
            self.cache.make_room(longest)
        if joining:
            self._join(joining)
        if self.samples:
            self.cache.columns.start = self.cache.columns.end - int(self.lengths.max()) + 1
        return completed

    def _close(self, rows: torch.Tensor) -> None:
        """Remove these rows; the last of the others take their places."""
        stays = torch.ones_like(self.free)
        stays[rows] = False
        n = int(stays.sum())
        kept = torch.arange(n, device=self.device)
        kept[~stays[:n]] = n + stays[n:].nonzero().flatten()
        self.cache.keep(kept)
        self.samples = [self.samples[row] for row in kept.tolist()]
        for name in ("free", "tokens", "uniforms", "counts", "lengths", "latest"):
            setattr(self, name, getattr(self, name)[kept])

    def _join(self, joining: list[Sample]) -> None:
        """Put samples into the free rows: read each of their prompts once and draw the first tokens."""
        order = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompt for prompt, _ in joining))}
        prompts = [self.prompts[prompt] for prompt in order]
        longest = max(map(len, prompts))
        padded = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=self.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        read = DynamicCache()
        logits = self._read(padded, lengths, read)

        rows = self.free.nonzero().flatten()
        which = torch.tensor([order[prompt] for prompt, _ in joining], device=self.device)
        self.cache.write(rows, read, which, len(self.samples))
        for row, sample in zip(rows.tolist(), joining, strict=True):
            self.samples[row] = sample
        self.counts[rows] = 0
        self.lengths[rows] = lengths[which]
        self.uniforms[rows] = torch.from_numpy(np.stack([self.stream(sample) for sample in joining])).to(self.device)
        self._draw(rows, logits[which])

    def _draw(self, rows: torch.Tensor, logits: torch.Tensor) -> None:
        """Draw the next token of these rows."""
        counts = self.counts[rows]
        drawn = choose_tokens(logits, self.uniforms[rows, counts], self.decoding.temperature, self.decoding.top_p)
        self.tokens[rows, counts] = drawn
        self.latest[rows] = drawn
        self.counts[rows] += 1
        self.lengths[rows] += 1
        self.free[rows] = torch.isin(drawn, self.end_ids) | (counts + 1 == self.decoding.max_completion_length)

    def _read(self, tokens: torch.Tensor, lengths: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Logits after the last of these tokens, (rows, vocabulary); `lengths` are the rows' tokens up to it."""
        new = tokens.shape[1]
        columns = torch.arange(cache.get_seq_length() + new, device=self.device)
        padding = (len(columns) - lengths).unsqueeze(-1)
        logits = self.model(
            input_ids=tokens,
            attention_mask=(columns >= padding).long(),
            position_ids=(columns[-new:] - padding).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            **self.last_logits_only,
        ).logits
        return logits[:, -1].float()
