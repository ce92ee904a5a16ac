"""Attention for one decoding step (one query per row and head), without copying the cache.

transformers repeats shared keys and values for every query head: a copy of the cache per layer and step. Here heads
that share them are multiplied together, and so are all rows with their common prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "g2d_rows"


def attend(
    module: Any,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    attention_mask: torch.Tensor,
    *,
    row_cache: Any,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention, (rows, 1, heads, head size), with the signature of transformers' attention functions.

    Args:
        query: (rows, heads, 1, head size).
        keys: (rows, key heads, columns, head size), like `values`.
        attention_mask: added to the scores, (rows, 1, 1, columns of the prefix and of the row).
        row_cache: a `g2d.rollouts.rows.RowCache` with the prefix of every layer.
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


AttentionInterface.register(NAME, attend)


@contextmanager
def by_row(model: PreTrainedModel) -> Iterator[None]:
    """Use `attend` in the model's attention; its forward pass then needs `row_cache`."""
    config = model.config.get_text_config(decoder=True)
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
