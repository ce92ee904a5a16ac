"""One training in several processes with one GPU each: configuration keys and communication.

Without a launcher these functions do nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar

from g2d.jobs.cost import charge, gpu_memory_peak, this_process
from g2d.settings import Section, key

Value = TypeVar("Value")


class Processes(Section):
    """Processes of one training, one GPU each. The batch of a gradient step does not depend on their number.

    Trainings with auto-stop need one process.
    """

    processes: int = key(1, "Processes per training, which share a gradient step's rows.", ge=1, neutral=1)
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


class NotTheFirstError(BaseException):
    """This process is done, and the first one does the rest."""


def n_processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    return n_processes() == 1 or os.environ["RANK"] == "0"


def share(total: int, what: str) -> int:
    """Return a process's share of a total; a ValueError if it is not divisible."""
    n = n_processes()
    if total % n:
        raise ValueError(indivisible(total, what, n))
    return total // n


def own_part(n_rows: int) -> slice:
    n = n_processes()
    rank = int(os.environ.get("RANK", "0"))
    return slice(n_rows * rank // n, n_rows * (rank + 1) // n)


def indivisible(total: int, what: str, n: int) -> str:
    return f"{what}={total} cannot be divided among training.processes={n}: change one of them"


def seed_by_rank(seed: int) -> None:
    """Let processes drop different units, as in TRL's GRPO trainer; one process keeps its random numbers."""
    if n_processes() > 1:
        from accelerate.utils import set_seed

        set_seed(seed, device_specific=True)


def gathered(rows: list[Value]) -> list[Value]:
    if n_processes() == 1:
        return rows
    from accelerate.utils import gather_object

    everybodys: list[Value] = gather_object(rows)
    return everybodys


def largest(*numbers: int) -> list[int]:
    if n_processes() == 1:
        return list(numbers)
    import torch
    from accelerate import PartialState
    from accelerate.utils import gather

    by_process = gather(torch.tensor([numbers], device=PartialState().device))
    maxima: list[int] = by_process.max(dim=0).values.tolist()
    return maxima


def from_first(value: Callable[[], Value]) -> Value:
    """Return the value that the first process computes."""
    if n_processes() == 1:
        return value()
    from accelerate.utils import broadcast_object_list

    values: list[Any] = [None]  # filled by the first process
    if is_first():
        values = [value()]
    broadcast_object_list(values)
    received: Value = values[0]
    return received


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
