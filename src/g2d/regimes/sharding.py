"""One training of a model in parts, a part on every GPU (`training.strategy: fsdp`): PyTorch's `fully_shard`.

accelerate's launcher says how, and no regime knows of it. What accelerate 1.15 would do otherwise than with a whole
model is set right here: its mixed precision hands on what a model returns in bfloat16, where a log-probability of -20
is known to 1/8.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from g2d.regimes.processes import largest, n_processes

LAUNCHER = (  # frozen weights and adapter in units of a block, which are put together where they compute
    *("--use_fsdp", "--fsdp_version", "2"),  # version 1 wants one dtype in a unit, and the adapter has its own
    *("--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
    *("--fsdp_cpu_ram_efficient_loading", "true"),
    *("--fsdp_state_dict_type", "SHARDED_STATE_DICT"),  # FULL puts the frozen weights together for every checkpoint
)


def is_sharded() -> bool:
    """Whether each of the processes has a part of the weights: what the launcher told accelerate."""
    return n_processes() > 1 and os.environ.get("ACCELERATE_USE_FSDP") == "true"


def init_process_group() -> None:
    """Have the processes find each other before M0 is loaded: then the first one alone reads its weights, and the
    others have their parts from it (accelerate's `cpu_ram_efficient_loading`)."""
    import torch
    from accelerate import PartialState

    PartialState(cpu=not torch.cuda.is_available())


def keep_precision(trainer: Any) -> None:
    """Have a trainer that will divide its model compute as with a whole one: weights in the half precision of its
    arguments, what the model returns as it is, gradients added up in float32."""
    if not trainer.is_fsdp_enabled:
        raise RuntimeError(
            "training.strategy: fsdp needs GPUs, without which accelerate divides no model: set it to ddp"
        )
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    plugin = trainer.accelerator.state.fsdp_plugin
    if (policy := plugin.mixed_precision_policy) is not None:
        plugin.mixed_precision_policy = MixedPrecisionPolicy(policy.param_dtype, reduce_dtype=torch.float32)


@contextmanager
def in_step(model: Any) -> Iterator[None]:
    """Let every process run a divided model as often as it needs: one that is done goes on with passes of one token
    until all are, since its part of the weights takes part in the passes of the others."""
    import torch

    def go_on(*_: Any) -> None:
        largest(1)

    hook = model.register_forward_pre_hook(go_on, prepend=True)  # before the weights are put together
    try:
        yield
    finally:
        hook.remove()
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    with torch.no_grad():
        while largest(0) == [1]:
            model(input_ids=token)


def require_same_strategy(checkpoint: Path) -> None:
    """Raise a ValueError where the trainer cannot read a checkpoint: one in parts needs processes that have parts, and
    the reverse."""
    was_sharded = any(checkpoint.glob("pytorch_model_fsdp*"))
    if was_sharded != is_sharded():
        raise ValueError(
            f"{checkpoint} was written with training.strategy: {'fsdp' if was_sharded else 'ddp'}: set that again to "
            "go on from it, or delete the folder to have it made anew"
        )
