"""What is trained of a model, an adapter or all weights: handed to whoever generates, and copied to the reference.

Of a model that brings an adapter of its own, TRL's trainers make a frozen copy, the adapter "ref", and take that for
the reference. Where all weights are trained, the reference is a second model, `frozen` here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from g2d.policies.policy import with_trained
from g2d.policies.settings import ALL_FILES, Lora, lora_config
from g2d.regimes.processes import is_first, is_sharded


def with_own_adapter(model: Any, lora: Lora, seed: int) -> Any:
    """M0 with a fresh adapter, the one that TRL would have made itself: what it keeps a reference adapter for."""
    from peft import get_peft_model
    from transformers import set_seed

    set_seed(seed)
    return get_peft_model(model, lora_config(lora))


def reference_weights(model: Any, frozen: Any = None) -> dict[str, Any]:
    """The parameters of the reference, by their names."""
    if frozen is not None:
        return dict(frozen.named_parameters())
    return {name: parameter for name, parameter in model.named_parameters() if ".ref." in name}


def copy_to_reference(model: Any, frozen: Any = None) -> None:
    """Have the reference be what is in training as it is now."""
    import torch

    with torch.no_grad():
        for name, reference in reference_weights(model, frozen).items():
            reference.copy_(model.get_parameter(name.replace(".ref.", ".default.")))


def load_weights(model: Any, folder: Path, adapter: str, frozen: Any = None) -> None:
    """Have what is trained of a model, "default", or its reference, "ref", be what is in a folder."""
    if not hasattr(model, "peft_config"):
        with_trained(model if adapter == "default" else frozen, folder)
        return
    from peft import load_peft_weights, set_peft_model_state_dict

    set_peft_model_state_dict(model, load_peft_weights(str(folder), device="cpu"), adapter_name=adapter)


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """The adapter in training, if there is one, is part of the weights in here, in float32 on one device, and PEFT's
    layers are out of the way; afterwards the weights are the very tensors they were."""
    from peft.tuners.lora import LoraLayer

    children = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]
    layers = [(parent, name, child) for parent, name, child in children if isinstance(child, LoraLayer)]
    before = [layer.get_base_layer().weight.data for *_, layer in layers]
    if not layers:
        yield
        return
    model.merge_adapter(safe_merge=True)  # makes new tensors; unmerging would subtract, and round
    for parent, name, layer in layers:
        setattr(parent, name, layer.get_base_layer())
    try:
        yield
    finally:
        for (parent, name, layer), weights in zip(layers, before, strict=True):
            setattr(parent, name, layer)
            layer.get_base_layer().weight.data = weights
            layer.merged_adapters.clear()


def save_trained(model: Any, folder: Path) -> None:
    """Write what is in training to a folder, for `with_trained`: all weights, or the adapter, byte for byte as PEFT
    does but for its model card. Where processes have parts of it, all of them call this, and the first one writes."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file, save_model

    if not hasattr(model, "peft_config"):
        folder.mkdir(parents=True, exist_ok=True)
        save_model(model, str(folder / Path(ALL_FILES[0]).name))
        return
    weights = get_peft_model_state_dict(model, adapter_name="default", save_embedding_layers=False)
    whole = {name: tensor.full_tensor() if is_sharded() else tensor for name, tensor in weights.items()}
    if is_sharded() and not is_first():
        return
    folder.mkdir(parents=True, exist_ok=True)
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in whole.items()}
    save_file(on_cpu, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    model.peft_config["default"].save_pretrained(folder)
