"""The trained part of a model: an adapter or all weights.

TRL's reference is a frozen copy of the adapter, "ref", or a second model if all weights are trained, called `frozen`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from g2d.policies.model_keys import ALL_FILES, Lora, lora_config

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from torch.nn import Module
    from transformers import PreTrainedModel
from g2d.policies.record import require_whole_adapter, with_trained


def with_own_adapter(model: PreTrainedModel, lora: Lora, seed: int) -> PeftModel:
    """Add the adapter that TRL would create, so that TRL also keeps a reference adapter."""
    from peft import get_peft_model
    from transformers import set_seed

    set_seed(seed)
    return get_peft_model(model, lora_config(lora))


def reference_weights(model: PreTrainedModel, frozen: PreTrainedModel | None = None) -> dict[str, torch.Tensor]:
    if frozen is not None:
        return dict(frozen.named_parameters())
    return {name: parameter for name, parameter in model.named_parameters() if ".ref." in name}


def copy_to_reference(model: PreTrainedModel, frozen: PreTrainedModel | None = None) -> None:
    import torch

    with torch.no_grad():
        for name, reference in reference_weights(model, frozen).items():
            reference.copy_(model.get_parameter(name.replace(".ref.", ".default.")))


def sort_target_modules(model: PreTrainedModel) -> None:
    """Let PEFT write the modules of an adapter in order; it has a set, and would write its arbitrary order."""
    for config in getattr(model, "peft_config", {}).values():
        if isinstance(config.target_modules, set):
            config.target_modules = sorted(config.target_modules)


def load_weights(model: PreTrainedModel, folder: Path, adapter: str, frozen: PreTrainedModel | None = None) -> None:
    if not hasattr(model, "peft_config"):
        with_trained(model if adapter == "default" else frozen, folder)
        return
    from peft import load_peft_weights, set_peft_model_state_dict

    set_peft_model_state_dict(model, load_peft_weights(str(folder), device="cpu"), adapter_name=adapter)
    require_whole_adapter(model, folder, adapter)


@contextmanager
def merged(model: PreTrainedModel) -> Iterator[None]:
    """Merge the adapter into float32 weights and bypass PEFT's layers; restore the original tensors afterwards."""
    from peft.tuners.lora import LoraLayer

    layers: list[tuple[Module, str, LoraLayer]] = []  # (module above it, name there, layer)
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, LoraLayer):
                layers.append((parent, name, child))
    before = [layer.get_base_layer().weight.data for *_, layer in layers]
    if not layers:
        yield
        return
    model.merge_adapter(safe_merge=True)  # creates new tensors; unmerging would subtract, with rounding errors
    for parent, name, layer in layers:
        setattr(parent, name, layer.get_base_layer())
    try:
        yield
    finally:
        for (parent, name, layer), weights in zip(layers, before, strict=True):
            setattr(parent, name, layer)
            layer.get_base_layer().weight.data = weights
            layer.merged_adapters.clear()


def save_trained(model: PreTrainedModel, folder: Path) -> None:
    """Save the trained part byte for byte as PEFT would."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file, save_model

    folder.mkdir(parents=True, exist_ok=True)
    if not hasattr(model, "peft_config"):
        save_model(model, str(folder / Path(ALL_FILES[0]).name))
        return
    weights = get_peft_model_state_dict(model, adapter_name="default", save_embedding_layers=False)
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(on_cpu, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    sort_target_modules(model)
    model.peft_config["default"].save_pretrained(folder)
