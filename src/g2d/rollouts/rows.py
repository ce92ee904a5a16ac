"""The rows of a batch on the device: their keys and values, what they have drawn, and the step that draws a token.

Every row is written at its own column, from column 0, and a mask hides what is not its own, so no tensor of a step
changes its shape while the number of columns that are looked at stays the same (`width`), and no step needs the host.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, get_layer_types_and_kwargs

from g2d.rollouts.engine import Decoding
from g2d.rollouts.sampling import choose_tokens

FULL, SLIDING = "full_attention", "sliding_attention"


def is_supported(model: Any) -> bool:
    """Whether a model caches keys and values of tokens alone, and takes positions and a mask of our own."""
    config = model.config
    return (
        not config.is_encoder_decoder
        and model._supports_attention_backend  # its attention has no other idea of causality than the mask
        and config._attn_implementation in ("sdpa", "eager")
        and "position_ids" in parameters(model)
        and kinds_of_layers(config) <= {FULL, SLIDING}
    )


def kinds_of_layers(config: Any) -> frozenset[str]:
    """Kinds of attention, in transformers' words."""
    return frozenset(get_layer_types_and_kwargs(config.get_text_config(decoder=True))[0])


def parameters(model: Any) -> frozenset[str]:
    """Names of the arguments of a model's forward pass, with an adapter around it or without."""
    own = getattr(model, "get_base_model", lambda: model)()
    return frozenset(inspect.signature(own.forward).parameters)


class RowLayer(DynamicLayer):
    """Keys and values of one layer, (rows, columns, heads, numbers of a head)."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, cache: RowCache, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.cache, self.keys, self.values, self.is_initialized = cache, keys, values, True

    def get_seq_length(self) -> int:
        return self.cache.width - 1

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        """Write one token of every row and return the columns that are looked at."""
        return self._written(self.keys, key_states), self._written(self.values, value_states)

    def _written(self, states: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        states.flatten(0, 1).index_copy_(0, self.cache.places, new[:, :, 0])
        return states[:, : self.cache.width].transpose(1, 2)


class RowCache(Cache):
    """The layers of a model."""

    def __init__(self, columns: int) -> None:
        self.columns, self.width = columns, 1
        self.places = torch.empty(0, dtype=torch.long)  # where a step writes, in rows x columns
        self.parts: list[RowLayer] = []
        super().__init__(layers=self.parts)

    def write(self, rows: torch.Tensor, read: DynamicCache, which: torch.Tensor, padding: torch.Tensor, n: int) -> None:
        """Write prompts into rows of `n`; row i gets prompt `which[i]` of `read` without its padding on the left."""
        for index, states in enumerate(read):
            length = states[0].shape[2]
            if index == len(self.parts):
                self.parts.append(RowLayer(self, *(self._blank(prompts, n) for prompts in states[:2])))
            source = (torch.arange(length, device=rows.device) + padding[which].unsqueeze(-1)).clamp(max=length - 1)
            for own, prompts in zip((self.parts[index].keys, self.parts[index].values), states[:2], strict=True):
                own[rows, :length] = prompts[which.unsqueeze(-1), :, source]

    def _blank(self, like: torch.Tensor, rows: int) -> torch.Tensor:
        """Keys or values of zeros: masked ones are multiplied by 0, and 0 times NaN would be NaN."""
        return like.new_zeros(rows, self.columns, like.shape[1], like.shape[3])

    def keep(self, rows: torch.Tensor) -> None:
        """Keep some of the rows, in place: `rows[i]` becomes row i."""
        moving = (rows != torch.arange(len(rows), device=rows.device)).nonzero().flatten()
        for part in self.parts:
            for states in (part.keys, part.values):
                states[moving] = states[rows[moving]]
            part.keys, part.values = part.keys[: len(rows)], part.values[: len(rows)]


class Rows:
    """The rows of a batch, each at a token of a completion, or free; `columns` is the most tokens of a prompt and its
    completion."""

    def __init__(self, model: Any, decoding: Decoding, end_ids: Iterable[int], rows: int, columns: int) -> None:
        self.model, self.decoding, self.device = model, decoding, model.device

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=self.device)

        budget = decoding.max_completion_length
        self.free = ~zeros(rows, dtype=torch.bool)
        # The last column is for free rows, which draw without going on.
        self.tokens = zeros(rows, budget + 1)
        self.uniforms = zeros(rows, budget + 1, dtype=torch.float64)
        self.counts = zeros(rows)  # tokens drawn
        self.lengths = zeros(rows) + 1  # tokens of the prompt and those drawn
        self.latest = zeros(rows)  # the token drawn last, which the model has not read
        self.cache = RowCache(columns)
        self.end_ids = torch.tensor(sorted(end_ids), dtype=torch.long, device=self.device)
        self.columns = torch.arange(columns, device=self.device)
        self.every = torch.arange(rows, device=self.device)
        self.last_logits_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters(model) else {}
        self.kinds = kinds_of_layers(model.config)
        self.window = getattr(model.config.get_text_config(decoder=True), "sliding_window", None)

    def __len__(self) -> int:
        return len(self.free)

    def step(self, width: int) -> None:
        """Draw the next token of every row that is not free; all their tokens are in the first `width` columns."""
        at = self.lengths - 1
        self.cache.width, self.cache.places = width, self.every * self.cache.columns + at
        logits = self.model(
            input_ids=self.latest.unsqueeze(-1),
            attention_mask=self._mask(width),
            position_ids=at.unsqueeze(-1),
            past_key_values=self.cache,
            use_cache=True,
            **self.last_logits_only,
        ).logits
        self.draw(self.every, logits[:, -1].float())

    def _mask(self, width: int) -> Any:
        """What is added to the scores of a row's columns, (rows, 1, 1, width); by kind of layer where they differ."""
        back = (self.lengths - 1).unsqueeze(-1) - self.columns[:width]
        hidden = dict.fromkeys(self.kinds, back < 0)
        if SLIDING in hidden:
            hidden[SLIDING] = hidden[SLIDING] | (back >= self.window)
        nothing = torch.zeros_like(back, dtype=self.model.dtype)
        masks = {kind: nothing.masked_fill(out, -torch.inf)[:, None, None] for kind, out in hidden.items()}
        return masks if len(masks) > 1 else masks.popitem()[1]

    def join(
        self, prompts: Sequence[Sequence[int]], rows: torch.Tensor, which: torch.Tensor, uniforms: torch.Tensor
    ) -> None:
        """Read prompts, and draw the first tokens of the rows that get them: row `rows[i]` gets prompt `which[i]`."""
        longest = max(map(len, prompts))
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        padding = longest - lengths
        columns = torch.arange(longest, device=self.device)
        read = DynamicCache()
        logits = self.model(
            input_ids=torch.tensor([[0] * (longest - len(p)) + list(p) for p in prompts], device=self.device),
            attention_mask=(columns >= padding.unsqueeze(-1)).long(),
            position_ids=(columns - padding.unsqueeze(-1)).clamp(min=0),
            past_key_values=read,
            use_cache=True,
            **self.last_logits_only,
        ).logits
        self.cache.write(rows, read, which, padding, len(self))
        self.counts[rows] = 0
        self.lengths[rows] = lengths[which]
        self.uniforms[rows, :-1] = uniforms
        self.free[rows] = False
        self.draw(rows, logits[:, -1].float()[which])

    def draw(self, rows: torch.Tensor, logits: torch.Tensor) -> None:
        """Draw the next token of those of these rows that are not free."""
        counts, going = self.counts[rows], ~self.free[rows]
        drawn = choose_tokens(logits, self.uniforms[rows, counts], self.decoding.temperature, self.decoding.top_p)
        self.tokens[rows, counts] = drawn
        self.latest[rows] = drawn
        self.counts[rows] = counts + going
        self.lengths[rows] += going
        ended = (drawn.unsqueeze(-1) == self.end_ids).any(-1) | (counts + 1 == self.decoding.max_completion_length)
        self.free[rows] = ended | ~going

    def keep(self, rows: torch.Tensor) -> None:
        """Keep some of the rows: `rows[i]` becomes row i."""
        self.cache.keep(rows)
        for name in ("free", "tokens", "uniforms", "counts", "lengths", "latest"):
            setattr(self, name, getattr(self, name)[rows])
        self.every = self.every[: len(rows)]
