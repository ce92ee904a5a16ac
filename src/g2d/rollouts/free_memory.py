"""Check that a GPU has the memory that vLLM will ask for, and say what holds it where it has not.

vLLM takes a share of the whole card and does not start where less is free. What can be freed is freed first: tensors of
a trainer, an engine of the job before.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class Holder:
    """A process on the card and the bytes that it holds there; None where the driver does not say."""

    pid: int
    bytes: int | None


class CudaMemory:
    """The memory of the first card that this process sees."""

    def empty_cache(self) -> None:
        """Give back what torch holds and no tensor uses."""
        import torch

        torch.cuda.empty_cache()

    def free_and_total(self) -> tuple[int, int]:
        """In bytes."""
        import torch

        free, total = torch.cuda.mem_get_info()
        return int(free), int(total)

    def own_tensors(self) -> int:
        """Bytes of the tensors in this process."""
        import torch

        return int(torch.cuda.memory_allocated())

    def holders(self) -> Sequence[Holder]:
        """The processes on the card, with this one; none where NVML does not answer, as in some containers."""
        try:
            import pynvml
            import torch

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
            found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except Exception:  # NVML has many; the answer is for a message only
            return []
        return [Holder(int(process.pid), process.usedGpuMemory) for process in found]


def require_free(share: float, memory: CudaMemory | None = None) -> None:
    """Free what can be freed, and check that a share of the card is free.

    Raises:
        RuntimeError: it is not; one line says what holds the memory and what to do.
    """
    memory = memory or CudaMemory()
    gc.collect()
    memory.empty_cache()
    free, total = memory.free_and_total()
    if free >= share * total:
        return
    raise RuntimeError(
        f"vLLM is to have {share:g} of the card, {share * total / GIB:.1f} GiB, and {free / GIB:.1f} GiB of "
        f"{total / GIB:.1f} are free: {_users(memory)}; end what should not be there, or lower "
        "engine.gpu_memory_utilization (in training, engine.training_gpu_memory_utilization)"
    )


def _users(memory: CudaMemory) -> str:
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
