"""Continuous batching: the row of a finished completion is reused for the next sample.

A prompt is read once for all its samples, and so is a prefix that all prompts share. Every row is written from column
0, and a mask hides unused columns; the shared prefix is stored once, without columns.

transformers repeats shared keys and values for every query head: a copy of the cache per layer and step. `attend`
copies nothing: it multiplies heads that share keys together, and all rows with their common prefix.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, get_layer_types_and_kwargs

from g2d.rollouts.engine import Decoding
from g2d.rollouts.sampling import choose_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

Sample = tuple[int, int]  # (index of the prompt, number of the sample)

SHARE = 8  # refill when 1/SHARE of the rows are free: reading prompts takes about as long as a step
PREFIX = 32  # shortest common prefix, in tokens, that is read once
FULL = "full_attention"
SLIDING = "sliding_attention"
BY_ROW = "g2d_rows"  # name of `attend` among transformers' attention functions


# A batch works in rounds. Free rows take the next samples of the queue: their prompts are read together, once per
# prompt, and written into the rows' part of the cache. Then all rows decode token by token until an eighth of them has
# ended. Finished completions are kept, and the round repeats; once the queue is empty, rows are removed instead. Which
# samples share a round changes the speed only: a sample's random numbers are its own.


class ContinuousBatch:
    """Generates samples in the rows of a batch.

    Args:
        stream: uniform numbers for the tokens of a sample, shape (max_completion_length,).
        completed: finished samples are added to it; it keeps them if an error ends `complete`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        decoding: Decoding,
        stream: Callable[[Sample], np.ndarray],
        end_ids: Iterable[int],
        completed: dict[Sample, list[int]] | None = None,
    ) -> None:
        self.completed = {} if completed is None else completed
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
        self._pass_on(queue)
        while any(sample is not None for sample in self.samples):
            self._draw(until_free=max(1, len(self.rows) // SHARE))
            self._pass_on(queue)
        return self.completed

    def _draw(self, until_free: int) -> None:
        """Draw tokens until so many rows are free; a row is free when its completion has ended."""
        longest = int((self.rows.lengths * ~self.rows.free).max())
        while int(self.rows.free.sum()) < until_free:
            self.rows.step(longest)
            longest += 1

    def _pass_on(self, queue: deque[Sample]) -> None:
        """Keep the completions of free rows, and give the rows to the next samples."""
        rows = self.rows
        free = rows.free.nonzero().flatten()
        drawn = zip(free.tolist(), rows.tokens[free].tolist(), rows.counts[free].tolist(), strict=True)
        for row, tokens, count in drawn:
            sample = self.samples[row]
            if sample is not None:
                self.completed[sample] = tokens[:count]
                self.samples[row] = None
        joining = [queue.popleft() for _ in range(min(len(free), len(queue)))]
        if joining:
            self._join(joining, free[: len(joining)])
        if len(joining) < len(free):
            self._close(free[len(joining) :])

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

    Empty with sliding windows: the mask would count a prompt's padding after the prefix.
    """
    if not attends_by_row(model) or SLIDING in kinds_of_layers(model.config):
        return []
    in_order = sorted(list(prompt) for prompt in prompts)
    first = in_order[0]
    last = in_order[-1]  # all others are between these two
    most = min(len(prompt) for prompt in prompts) - 1
    length = 0
    while length < most and first[length] == last[length]:
        length += 1
    return first[:length] if length >= PREFIX else []


# --------------------------------------------------------------------------------------------------------------- models


def is_supported(model: PreTrainedModel) -> bool:
    """Return whether a model only caches keys and values of tokens, and accepts custom positions and masks."""
    config = model.config
    return (
        not config.is_encoder_decoder
        and model._supports_attention_backend  # only the mask determines causality
        and config._attn_implementation in ("sdpa", "eager")
        and "position_ids" in forward_parameters(model)
        and kinds_of_layers(config) <= {FULL, SLIDING}
    )


def kinds_of_layers(config: PreTrainedConfig) -> frozenset[str]:
    return frozenset(get_layer_types_and_kwargs(config.get_text_config(decoder=True))[0])


def forward_parameters(model: PreTrainedModel) -> frozenset[str]:
    inner = getattr(model, "get_base_model", lambda: model)()
    return frozenset(inspect.signature(inner.forward).parameters)


def attends_by_row(model: PreTrainedModel) -> bool:
    """Return whether `attend` can replace a model's attention: PyTorch's, with a mask."""
    return bool(model.config._attn_implementation == "sdpa")


def shares_keys(model: PreTrainedModel) -> bool:
    """Return whether several query heads share keys and values."""
    config = model.config.get_text_config(decoder=True)
    heads: int = config.num_attention_heads
    return (getattr(config, "num_key_value_heads", None) or heads) < heads


# ------------------------------------------------------------------------------------------------------ keys and values


class RowLayer(DynamicLayer):
    """Keys and values of a layer, (rows, columns, heads, head size), and of the prefix, (heads, tokens, head size)."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(
        self,
        cache: RowCache,
        keys: torch.Tensor,
        values: torch.Tensor,
        prefix: tuple[torch.Tensor, torch.Tensor] | None,
    ) -> None:
        super().__init__()
        self.cache = cache
        self.keys = keys
        self.values = values
        self.prefix = prefix
        self.is_initialized = True

    def get_seq_length(self) -> int:
        return self.cache.width - 1

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._written(self.keys, key_states), self._written(self.values, value_states)

    def _written(self, states: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        states[self.cache.places] = new[:, :, 0].to(states.dtype)  # autocast may change it between passes
        return states[:, : self.cache.width].transpose(1, 2)


class RowCache(Cache):
    """Cache of all layers. `by_row`: each row and head is contiguous in memory, for `attend`."""

    def __init__(self, columns: int, by_row: bool) -> None:
        self.columns = columns
        self.width = 1
        self.by_row = by_row
        nowhere = torch.empty(0, dtype=torch.long)
        self.places = (nowhere, nowhere)  # rows and columns that the step writes
        self.prefix: DynamicCache | None = None  # a cache with one row
        self.parts: list[RowLayer] = []
        super().__init__(layers=self.parts)

    @property
    def prefix_length(self) -> int:
        return 0 if self.prefix is None else int(self.prefix.get_seq_length())

    def prefix_of(self, rows: int) -> DynamicCache:
        read = DynamicCache()
        for index, states in enumerate(self.prefix or ()):
            keys, values = states[:2]
            read.update(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1), index)
        return read

    def write(self, rows: torch.Tensor, read: DynamicCache, which: torch.Tensor, padding: torch.Tensor, n: int) -> None:
        """Write prompts: `rows[i]` of n gets prompt `which[i]` of `read`, without prefix and left padding."""
        for index, states in enumerate(read):
            length = states[0].shape[2] - self.prefix_length
            if index == len(self.parts):
                self.parts.append(self._layer(index, states, n))
            source = (torch.arange(length, device=rows.device) + padding[which].unsqueeze(-1)).clamp(max=length - 1)
            for own, prompts in zip((self.parts[index].keys, self.parts[index].values), states[:2], strict=True):
                own[rows, :length] = prompts[which.unsqueeze(-1), :, source + self.prefix_length]

    def _layer(self, index: int, like: Sequence[torch.Tensor], rows: int) -> RowLayer:
        """Create zeroed keys and values: masked values are multiplied by 0, and 0 times NaN would be NaN."""
        heads = like[0].shape[1]
        key_size = like[0].shape[3]
        value_size = like[1].shape[3]
        if self.by_row:
            keys = like[0].new_zeros(rows, heads, key_size, self.columns).permute(0, 3, 1, 2)
            values = like[1].new_zeros(rows, heads, self.columns, value_size).transpose(1, 2)
        else:
            keys = like[0].new_zeros(rows, self.columns, heads, key_size)
            values = like[1].new_zeros(rows, self.columns, heads, value_size)
        if self.prefix is None:
            return RowLayer(self, keys, values, None)
        read = self.prefix.layers[index]
        return RowLayer(self, keys, values, (read.keys[0], read.values[0]))

    def keep(self, rows: torch.Tensor) -> None:
        """Keep some of the rows, in place: `rows[i]` becomes row i."""
        moving = (rows != torch.arange(len(rows), device=rows.device)).nonzero().flatten()
        for part in self.parts:
            for states in (part.keys, part.values):
                states[moving] = states[rows[moving]]
            part.keys = part.keys[: len(rows)]
            part.values = part.values[: len(rows)]


def attend(
    module: nn.Module,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    attention_mask: torch.Tensor,
    *,
    row_cache: RowCache,
    scaling: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Compute attention for one query per row and head: (rows, 1, heads, head size), for transformers.

    Args:
        query: (rows, heads, 1, head size).
        keys: (rows, key heads, columns, head size); so are the values.
        attention_mask: added to the scores, (rows, 1, 1, columns of the prefix and of the row).
        row_cache: has the prefix of every layer.
    """
    rows, heads, _, size = query.shape
    kv_heads = keys.shape[1]
    prefix = row_cache.parts[module.layer_idx].prefix
    scaled = query * (size**-0.5 if scaling is None else scaling)
    scaled = scaled.reshape(rows, kv_heads, heads // kv_heads, size)
    scores = scaled @ keys.transpose(2, 3)
    if prefix is not None:
        scores = torch.cat([_with_all(scaled, prefix[0].transpose(1, 2)), scores], dim=-1)
    weights = (scores + attention_mask).softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    if prefix is None:
        output = weights @ values
    else:
        shared, of_row = weights.split([prefix[1].shape[1], values.shape[2]], dim=-1)
        output = _with_all(shared, prefix[1]) + of_row @ values
    return output.reshape(rows, 1, heads, size), None


def _with_all(by_row: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
    """Multiply (rows, heads, group, n) by the shared (heads, n, m): (rows, heads, group, m)."""
    rows, heads, group, n = by_row.shape
    product = by_row.transpose(0, 1).reshape(heads, rows * group, n) @ shared
    return product.view(heads, rows, group, -1).transpose(0, 1)


AttentionInterface.register(BY_ROW, attend)


@contextmanager
def by_row(model: PreTrainedModel) -> Iterator[None]:
    """Use `attend` in the model's attention; its forward pass then needs `row_cache`."""
    config = model.config.get_text_config(decoder=True)
    before = config._attn_implementation
    config._attn_implementation = BY_ROW
    try:
        yield
    finally:
        config._attn_implementation = before


# ----------------------------------------------------------------------------------------------------------------- rows


class Rows:
    """Rows of a batch; each is free or holds an unfinished completion.

    Args:
        columns: most tokens of a prompt and its completion.
        prefix: tokens that all prompts start with, read now; not part of `columns` or of the prompts of `join`. Only
            for a model that `attends_by_row`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        decoding: Decoding,
        end_ids: Iterable[int],
        rows: int,
        columns: int,
        prefix: Sequence[int] = (),
    ) -> None:
        self.model = model
        self.decoding = decoding
        self.device = model.device

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=self.device)

        budget = decoding.max_completion_length
        self.free = ~zeros(rows, dtype=torch.bool)
        # The last column is for free rows: these keep sampling without advancing.
        self.tokens = zeros(rows, budget + 1)
        self.uniforms = zeros(rows, budget + 1, dtype=torch.float64)
        self.counts = zeros(rows)  # tokens sampled
        self.lengths = zeros(rows) + 1  # tokens of the prompt and sampled tokens
        self.latest = zeros(rows)  # last sampled token, not read yet
        self.by_row = attends_by_row(model) and (len(prefix) > 0 or shares_keys(model))
        self.cache = RowCache(columns, self.by_row)
        self.end_ids = torch.tensor(sorted(end_ids), dtype=torch.long, device=self.device)
        self.every = torch.arange(rows, device=self.device)
        self.options: dict[str, object] = {"use_cache": True}  # arguments of every pass
        if "logits_to_keep" in forward_parameters(model):
            self.options["logits_to_keep"] = 1
        self.kinds = kinds_of_layers(model.config)
        self.window = getattr(model.config.get_text_config(decoder=True), "sliding_window", None)
        if prefix:
            self.cache.prefix = DynamicCache()
            tokens = torch.tensor([list(prefix)], device=self.device)
            self.model(input_ids=tokens, past_key_values=self.cache.prefix, **self.options)

    def __len__(self) -> int:
        return len(self.free)

    def step(self, width: int) -> None:
        """Sample the next token of every row that is not free.

        Their tokens must be in the first `width` columns. A `width` beyond the existing columns is cut.
        """
        at = self.lengths - 1
        self.cache.width = min(width, self.cache.columns)
        self.cache.places = (self.every, at)
        options = self.options
        attention: AbstractContextManager[None] = nullcontext()
        if self.by_row:
            options = options | {"row_cache": self.cache}
            attention = by_row(self.model)
        with attention:
            logits = self.model(
                input_ids=self.latest.unsqueeze(-1),
                attention_mask=self._mask(self.cache.width),
                position_ids=at.unsqueeze(-1) + self.cache.prefix_length,
                past_key_values=self.cache,
                **options,
            ).logits
        self.draw(self.every, logits[:, -1])

    def _mask(self, width: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """Return the additive mask, (rows, 1, 1, prefix + width), by kind of layer if they differ."""
        # Columns of the prefix come before column 0.
        columns = torch.arange(-self.cache.prefix_length, width, device=self.device)
        back = (self.lengths - 1).unsqueeze(-1) - columns
        hidden = dict.fromkeys(self.kinds, back < 0)
        if SLIDING in hidden:
            hidden[SLIDING] = hidden[SLIDING] | (back >= self.window)
        nothing = torch.zeros_like(back, dtype=self.model.dtype)
        masks = {kind: nothing.masked_fill(out, -torch.inf)[:, None, None] for kind, out in hidden.items()}
        return masks if len(masks) > 1 else masks.popitem()[1]

    def join(
        self, prompts: Sequence[Sequence[int]], rows: torch.Tensor, which: torch.Tensor, uniforms: torch.Tensor
    ) -> None:
        """Read prompts and sample each row's first token: row `rows[i]` gets prompt `which[i]`."""
        n_tokens = [len(prompt) for prompt in prompts]
        longest = max(n_tokens)
        padded = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        lengths = torch.tensor(n_tokens, device=self.device)
        padding = longest - lengths
        before = self.cache.prefix_length
        columns = torch.arange(-before, longest, device=self.device)
        read = self.cache.prefix_of(len(prompts))
        logits = self.model(
            input_ids=torch.tensor(padded, device=self.device),
            attention_mask=((columns >= padding.unsqueeze(-1)) | (columns < 0)).long(),
            position_ids=before + (columns[before:] - padding.unsqueeze(-1)).clamp(min=0),
            past_key_values=read,
            **self.options,
        ).logits
        self.cache.write(rows, read, which, padding, len(self))
        self.counts[rows] = 0
        self.lengths[rows] = lengths[which]
        self.uniforms[rows, :-1] = uniforms
        self.free[rows] = False
        self.draw(rows, logits[:, -1][which])

    def draw(self, rows: torch.Tensor, logits: torch.Tensor) -> None:
        counts = self.counts[rows]
        going = ~self.free[rows]
        drawn = choose_tokens(logits, self.uniforms[rows, counts], self.decoding.temperature, self.decoding.top_p)
        self.tokens[rows, counts] = drawn
        self.latest[rows] = drawn
        self.counts[rows] = counts + going
        self.lengths[rows] += going
        ended = (drawn.unsqueeze(-1) == self.end_ids).any(-1) | (counts + 1 == self.decoding.max_completion_length)
        self.free[rows] = ended | ~going

    def keep(self, rows: torch.Tensor) -> None:
        self.cache.keep(rows)
        for name in ("free", "tokens", "uniforms", "counts", "lengths", "latest"):
            setattr(self, name, getattr(self, name)[rows])
        self.every = self.every[: len(rows)]
