"""Modules that `lora.target_modules` names in a model, checked on a model without weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from g2d.plain import first_line
from g2d.policies.model_keys import Lora, lora_config
from g2d.policies.record import config_of, on_meta

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def require_targets(config: Path, lora: Lora) -> None:
    """Raise a ValueError if some of `lora.target_modules` cannot get an adapter in the model of a config.json."""
    if lora.trains_all:
        return
    mistakes = [*_mistakes(on_meta(config_of(config)), lora)]
    if mistakes:
        raise ValueError(f"lora.target_modules: {'; '.join(mistakes)}")


def _mistakes(model: PreTrainedModel, lora: Lora) -> Iterator[str]:
    from peft import get_peft_model
    from peft.tuners.lora import Linear, LoraLayer, ParamWrapper

    missing = [name for name in _names(lora) if not _matches(model, name)]
    if missing:
        yield f"no module is named {', '.join(missing)}; the model has {', '.join(_linear(model))}: correct the names"
        return
    head = model.get_output_embeddings()
    embedding = model.get_input_embeddings()
    is_tied = head is not None and head.weight is embedding.weight
    without_dropout = lora.model_copy(update={"dropout": 0.0})  # PEFT adapts stacked experts only without
    try:
        adapted = get_peft_model(model, lora_config(without_dropout), low_cpu_mem_usage=True)
    except ValueError as error:
        yield f"{first_line(error)} (the linear modules are {', '.join(_linear(model))})"
        return
    layers = {name: module for name, module in adapted.named_modules() if isinstance(module, LoraLayer)}
    bases = [layer.get_base_layer() for layer in layers.values()]
    if head in bases:
        yield "the head cannot get an adapter, because TRL computes log-probabilities from its weights: leave it out"
    if embedding in bases and is_tied:
        yield (
            "the embedding has the weights of the head, so the adapter would change the head of the evaluated policy, "
            "but not of the trained one: leave it out"
        )
    if any(isinstance(layer, ParamWrapper) for layer in layers.values()):
        plain = sorted({name.rpartition(".")[2] for name, layer in layers.items() if isinstance(layer, Linear)})
        yield f"experts that are stacked in one tensor cannot get an adapter: write [{', '.join(plain)}]"


def _names(lora: Lora) -> list[str]:
    """Return the names of a list; text is a pattern of PEFT, or `all-linear`."""
    return lora.target_modules if isinstance(lora.target_modules, list) else []


def _matches(model: PreTrainedModel, name: str) -> bool:
    from peft import LoraConfig
    from peft.tuners.tuners_utils import check_target_module_exists

    one = LoraConfig(target_modules=[name])
    return any(check_target_module_exists(one, key) for key, _ in model.named_modules())


def _linear(model: PreTrainedModel) -> list[str]:
    from torch.nn import Linear
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()
    linear = [name for name, module in model.named_modules() if isinstance(module, Linear | Conv1D) and module != head]
    return sorted({name.rpartition(".")[2] for name in linear})
