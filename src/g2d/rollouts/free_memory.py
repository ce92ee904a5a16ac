"""Whether a card has the memory that an engine will ask for, and what is in the way where it has not.

vLLM takes a share of the whole card and refuses to start where less is free. What is in the way is most often something
that this process or its neighbours could have let go: a trainer's tensors that a reference keeps alive, an engine of
the job before, another user's process. So before an engine starts, what can be freed is freed, and if that is not
enough the message says who has how much.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

GIB = 2**30


@dataclass(frozen=True)
class Holder:
    """A process on the card, and the bytes that it holds there; None where the driver does not say."""

    pid: int
    bytes: int | None


class Memory(Protocol):
    """What can be asked of a card."""

    def empty_cache(self) -> None:
        """Give back what torch holds and no tensor uses."""

    def free_and_total(self) -> tuple[int, int]:
        """Bytes."""

    def own_tensors(self) -> int:
        """Bytes of the tensors that live in this process."""

    def holders(self) -> Sequence[Holder]:
        """The processes on the card, this one among them."""


class CudaMemory:
    """The first card that this process sees."""

    def empty_cache(self) -> None:
        """See `Memory`."""
        import torch

        torch.cuda.empty_cache()

    def free_and_total(self) -> tuple[int, int]:
        """See `Memory`."""
        import torch

        free, total = torch.cuda.mem_get_info()
        return int(free), int(total)

    def own_tensors(self) -> int:
        """See `Memory`."""
        import torch

        return int(torch.cuda.memory_allocated())

    def holders(self) -> Sequence[Holder]:
        """See `Memory`; none where NVML is not installed or does not answer, as in some containers."""
        try:
            import pynvml
            import torch

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
            found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except Exception:  # of NVML's many; its answer only words a message
            return []
        return [Holder(int(process.pid), process.usedGpuMemory) for process in found]


def require_free(share: float, memory: Memory | None = None) -> None:
    """Free what can be freed, and check that a share of the card is.

    Raises:
        RuntimeError: it is not; one line says what is in the way and what to do.
    """
    memory = memory or CudaMemory()
    gc.collect()
    memory.empty_cache()
    free, total = memory.free_and_total()
    if free >= share * total:
        return
    raise RuntimeError(
        f"vLLM is to have {share:g} of the card, {share * total / GIB:.1f} GiB, and {free / GIB:.1f} GiB of "
        f"{total / GIB:.1f} are free: {_in_the_way(memory)}; end what should not be there, or lower "
        "engine.gpu_memory_utilization (in training, engine.training_gpu_memory_utilization)"
    )


def _in_the_way(memory: Memory) -> str:
    others = [holder for holder in memory.holders() if holder.pid != os.getpid()]
    named = [
        f"process {holder.pid}" + (f" has {holder.bytes / GIB:.1f} GiB" if holder.bytes is not None else " is on it")
        for holder in others
    ]
    own = memory.own_tensors()
    mine = f"tensors of this process ({os.getpid()}) have {own / GIB:.1f} GiB"
    if not named and own < GIB / 100:
        return "the driver names no process that has the rest (another container may)"
    return ", ".join([*named, mine] if own >= GIB / 100 else named)
