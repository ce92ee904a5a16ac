"""Checks of adapters before vLLM starts, which finds these mistakes late."""

from __future__ import annotations

from pathlib import Path

from g2d.jobs.files import read_json
from g2d.policies.settings import LORA_RANKS


def adapter_rank_of(folder: str | Path) -> int:
    """Rank of the LoRA adapter in a folder.

    Raises:
        ValueError: there is no adapter in it, or one that is not LoRA.
    """
    file = Path(folder) / "adapter_config.json"
    if not file.is_file() or not (Path(folder) / "adapter_model.safetensors").is_file():
        raise ValueError(f"{folder}: no LoRA adapter in it (adapter_config.json, adapter_model.safetensors)")
    rank = read_json(file).get("r")
    if not isinstance(rank, int):
        raise ValueError(f"{file}: has no rank r: not a LoRA adapter")
    return rank


def require_own_base(folder: str | Path, base: str) -> None:
    """Check that an adapter was trained on a model of this width.

    Raises:
        ValueError: there is no adapter in the folder, or its attention has another width than the base model's.
    """
    from safetensors import safe_open

    adapter_rank_of(folder)
    width = read_json(Path(base) / "config.json").get("hidden_size")
    with safe_open(Path(folder) / "adapter_model.safetensors", framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118 -- not a dictionary
            if "q_proj.lora_A" in name and (found := weights.get_slice(name).get_shape()[1]) != width:
                raise ValueError(f"{folder}: trained on a model {found} wide, but {base} is {width}: use its own base")


def supported_rank(rank: int, where: str) -> int:
    """The smallest rank of vLLM's kernels that holds an adapter of this one."""
    if rank > LORA_RANKS[-1]:
        raise ValueError(f"{where}: vLLM applies adapters up to rank {LORA_RANKS[-1]}, not {rank}: merge it")
    return next(supported for supported in LORA_RANKS if supported >= rank)
