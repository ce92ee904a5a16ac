"""One training in several processes with one GPU each: configuration keys and communication.

Without a launcher these functions do nothing.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from g2d.jobs.usage import charge, gpu_memory_peak, this_process
from g2d.settings import MistakeInKeyError, Section, key


class Processes(Section):
    """Processes of one training, one GPU each. The batch of a gradient step does not depend on their number.

    Trainings with auto-stop need one process.
    """

    processes: int = key(1, "Processes per training, which share a gradient step's rows.", ge=1, neutral=1)
    strategy: Literal["ddp", "fsdp"] = key(
        "ddp", "ddp: a whole model per process; fsdp: a part, for models larger than a GPU.", neutral="ddp"
    )
    gradient_checkpointing: bool | Literal["auto"] = key(
        "auto", "Recompute activations: less memory, a third more computing. auto: on a GPU, if needed.", neutral="auto"
    )
    threads: int = key(1, "Cores per training on a CPU (docs/environments.md).", ge=1, neutral=1)
    shared_prompts: bool | Literal["auto"] = key(
        "auto", "On a CPU, process a prompt once for all its completions. auto: for pretrained models.", neutral="auto"
    )
    precision: Literal["auto", "float32", "bfloat16"] = key(
        "auto", "Precision of matrix products on a CPU. auto: float32. GPUs use bfloat16.", neutral="auto"
    )

    @model_validator(mode="after")
    def _fits(self) -> Processes:
        if self.strategy == "fsdp" and self.processes == 1:
            raise MistakeInKeyError(
                "strategy", "fsdp divides a model among processes: set processes to 2 or more, or drop strategy"
            )
        return self


class NotTheFirstError(BaseException):
    """This process is done, and the first one does the rest."""


def n_processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    return n_processes() == 1 or os.environ["RANK"] == "0"


def share(total: int, what: str) -> int:
    """Return a process's share of a total; a ValueError if it is not divisible."""
    if total % (n := n_processes()):
        raise ValueError(indivisible(total, what, n))
    return total // n


def own_part(n_rows: int) -> slice:
    n, rank = n_processes(), int(os.environ.get("RANK", "0"))
    return slice(n_rows * rank // n, n_rows * (rank + 1) // n)


def indivisible(total: int, what: str, n: int) -> str:
    return f"{what}={total} cannot be divided among training.processes={n}: change one of them"


def gathered(rows: list[Any]) -> list[Any]:
    if n_processes() == 1:
        return rows
    from accelerate.utils import gather_object

    return gather_object(rows)


def largest(*numbers: int) -> list[int]:
    if n_processes() == 1:
        return list(numbers)
    import torch
    from accelerate import PartialState
    from accelerate.utils import gather

    return gather(torch.tensor([numbers], device=PartialState().device)).max(dim=0).values.tolist()


def from_first(value: Callable[[], Any]) -> Any:
    if n_processes() == 1:
        return value()
    from accelerate.utils import broadcast_object_list

    values = [value() if is_first() else None]
    broadcast_object_list(values)
    return values[0]


def wait() -> None:
    if n_processes() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()


_charged: dict[int, float] = {}


def charge_others() -> None:
    """Charge the other processes' resources to the first; all must call this."""
    if n_processes() == 1:
        return
    for number, part in enumerate(gathered([replace(this_process(), peak_gpu_memory_bytes=gpu_memory_peak())])):
        if number and is_first():
            charge(replace(part, cpu_s=part.cpu_s - _charged.get(number, 0.0)))
            _charged[number] = part.cpu_s


FSDP = (
    *("--use_fsdp", "--fsdp_version", "2"),  # version 1 needs one dtype per unit, but the adapter has another
    *("--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
    *("--fsdp_cpu_ram_efficient_loading", "true"),
    *("--fsdp_state_dict_type", "SHARDED_STATE_DICT"),  # FULL would gather the frozen weights for every checkpoint
)


def is_sharded() -> bool:
    return n_processes() > 1 and os.environ.get("ACCELERATE_USE_FSDP") == "true"


def init_process_group() -> None:
    """Initialise the process group. Call this before M0 is loaded, so that only the first process reads its weights."""
    import torch
    from accelerate import PartialState

    PartialState(cpu=not torch.cuda.is_available())


def keep_precision(trainer: Any) -> None:
    if not trainer.is_fsdp_enabled:
        raise RuntimeError("training.strategy: fsdp needs GPUs: accelerate shards no model on a CPU: set it to ddp")
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    # accelerate 1.15 would return outputs in bfloat16, in which a log-probability of -20 has a precision of 1/8.
    plugin = trainer.accelerator.state.fsdp_plugin
    if (policy := plugin.mixed_precision_policy) is not None:
        plugin.mixed_precision_policy = MixedPrecisionPolicy(policy.param_dtype, reduce_dtype=torch.float32)


@contextmanager
def in_step(model: Any) -> Iterator[None]:
    """Keep FSDP ranks in step: a finished rank runs one-token dummy passes."""
    import torch

    def go_on(*_: Any) -> None:
        largest(1)

    hook = model.register_forward_pre_hook(go_on, prepend=True)
    try:
        yield
    finally:
        hook.remove()
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    with torch.no_grad():
        while largest(0) == [1]:
            model(input_ids=token)


def require_same_strategy(checkpoint: Path) -> None:
    """Raise a ValueError if only one of checkpoint and training is sharded."""
    was_sharded = any(checkpoint.glob("pytorch_model_fsdp*"))
    if was_sharded != is_sharded():
        raise ValueError(
            f"{checkpoint} was written with training.strategy: {'fsdp' if was_sharded else 'ddp'}: set that again to "
            "resume from it, or delete the folder to train anew"
        )


# Pickled names in PyTorch's sharded checkpoints.
LISTED = {
    *(("pathlib", "PosixPath"), ("torch", "Size"), ("torch.serialization", "_get_layout")),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    *(
        ("torch.distributed.checkpoint.metadata", name)
        for name in (
            *("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta"),
            *("TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"),
        )
    ),
}


def refuse_code_in(checkpoint: Path) -> None:
    """Prevent a checkpoint from running code; a ValueError names a pickle that PyTorch does not write."""
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # a sharded optimizer is read with `weights_only=False`
    for file in checkpoint.glob("*/.metadata"):
        with open(file, "rb") as content:
            try:
                _ListOfTensors(content).load()
            except Exception as error:
                raise ValueError(f"{file}: not what PyTorch writes ({error}); delete {checkpoint}") from None


class _ListOfTensors(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        import torch

        if (module, name) in LISTED or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise ValueError(f"{module}.{name}")
