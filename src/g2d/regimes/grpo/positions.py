"""Positions of the tokens of left-padded rows, for models in which they are absolute."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import ModelOutput

from g2d.rollouts.rows import parameters


def has_absolute_positions(model: PreTrainedModel) -> bool:
    """Return whether states depend on where a row begins (GPT-2, OPT), not only on distances, as with rotary ones."""
    config = model.config.get_text_config(decoder=True)
    return getattr(config, "rope_parameters", None) is None and "position_ids" in parameters(model)


def from_first_token(model: PreTrainedModel) -> Callable[..., ModelOutput]:
    """Call a model with positions that are counted from the first token of each row, not from its padding."""

    def call(*, attention_mask: torch.Tensor, **inputs: object) -> ModelOutput:
        positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        return model(attention_mask=attention_mask, position_ids=positions, **inputs)

    return call
