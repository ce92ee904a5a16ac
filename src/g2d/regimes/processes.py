"""One training in several processes, a GPU each: the keys, and what a process has to know of the others.

Every process runs the same code on its part of every batch, and accelerate is all that they talk through. The first one
writes. Without a launcher there is one process, and nothing here does anything.

With `training.strategy: fsdp` each has a part of the model (PyTorch's `fully_shard`). What accelerate 1.15 would do
otherwise than with a whole model is set right here: its mixed precision hands on what a model returns in bfloat16,
where a log-probability of -20 is known to 1/8.
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

    KTO and trainings with auto-stop need one process.
    """

    processes: int = key(
        1,
        "Processes per training; they divide the rows of a gradient step among them.",
        ge=1,
        neutral=1,
    )
    strategy: Literal["ddp", "fsdp"] = key(
        "ddp",
        "ddp: every process has the whole model; fsdp: a part of it, for a model that does not fit on one GPU.",
        neutral="ddp",
    )
    gradient_checkpointing: bool | Literal["auto"] = key(
        "auto",
        "Recompute activations: a third more computing, less memory, same results. auto: on a GPU, if "
        "`g2d plan`'s forecast does not fit otherwise.",
        neutral="auto",
    )
    threads: int = key(
        1,
        "Cores per training on a CPU (docs/environments.md).",
        ge=1,
        neutral=1,
    )
    shared_prompts: bool | Literal["auto"] = key(
        "auto",
        "Process a prompt once for all its completions, on a CPU; equal up to rounding, except with "
        "lora.dropout. auto: for models that g2d did not train.",
        neutral="auto",
    )
    precision: Literal["auto", "float32", "bfloat16"] = key(
        "auto",
        "Precision of matrix products on a CPU; weights and optimizer stay in float32. auto: bfloat16 if "
        "the CPU supports it and g2d did not train the model, else float32. GPUs use bfloat16.",
        neutral="auto",
    )

    @model_validator(mode="after")
    def _fits(self) -> Processes:
        if self.strategy == "fsdp" and self.processes == 1:
            raise MistakeInKeyError(
                "strategy", "fsdp divides a model among processes: set processes to 2 or more, or drop strategy"
            )
        return self


class NotTheFirstError(BaseException):
    """This process has done its part of the training; what is left is for the first one. Only `rank` handles it."""


def n_processes() -> int:
    """Processes that share this training."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return n_processes() == 1 or os.environ["RANK"] == "0"


def share(total: int, what: str) -> int:
    """The part of each process of a number that is for all of them; a ValueError names its keys if it has none."""
    if total % (n := n_processes()):
        raise ValueError(indivisible(total, what, n))
    return total // n


def own_part(n_rows: int) -> slice:
    """The rows of a batch that are this process's: as many as the others have, or one more."""
    n, rank = n_processes(), int(os.environ.get("RANK", "0"))
    return slice(n_rows * rank // n, n_rows * (rank + 1) // n)


def indivisible(total: int, what: str, n: int) -> str:
    """The sentence about a number that so many processes cannot divide."""
    return f"{what}={total} cannot be divided among training.processes={n}: change one of them"


def gathered(rows: list[Any]) -> list[Any]:
    """The rows of all processes, in their order, in every process."""
    if n_processes() == 1:
        return rows
    from accelerate.utils import gather_object

    return gather_object(rows)


def largest(*numbers: int) -> list[int]:
    """Of each number the largest that any process has."""
    if n_processes() == 1:
        return list(numbers)
    import torch
    from accelerate import PartialState
    from accelerate.utils import gather

    return gather(torch.tensor([numbers], device=PartialState().device)).max(dim=0).values.tolist()


def from_first(value: Callable[[], Any]) -> Any:
    """What the first process finds, in every process; the others wait for it."""
    if n_processes() == 1:
        return value()
    from accelerate.utils import broadcast_object_list

    found = [value() if is_first() else None]
    broadcast_object_list(found)
    return found[0]


def wait() -> None:
    """Go on when all processes are here."""
    if n_processes() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()


_charged: dict[int, float] = {}  # by process, the CPU seconds that are on the bill of the first


def charge_others() -> None:
    """Put what the other processes have used until now on the bill of the first; all of them call it."""
    if n_processes() == 1:
        return
    for number, part in enumerate(gathered([replace(this_process(), peak_gpu_memory_bytes=gpu_memory_peak())])):
        if number and is_first():
            charge(replace(part, cpu_s=part.cpu_s - _charged.get(number, 0.0)))
            _charged[number] = part.cpu_s


FSDP = (  # to the launcher: frozen weights and adapter in units of a block, put together where they compute
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


# Classes and functions in the lists of tensors that PyTorch writes into the folders of a sharded checkpoint.
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
    """Have nothing that is read from a checkpoint run code; a ValueError if the list of tensors of a sharded one, which
    PyTorch unpickles, has another content than PyTorch writes."""
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
