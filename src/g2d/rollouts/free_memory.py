"""Memory of a GPU: free what is unused, notice a lack of it, and check that vLLM's share is free."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import TypeVar

import psutil

GIB = 2**30
Result = TypeVar("Result")


def free_unused() -> None:
    """Free GPU memory of unused objects; a trainer's reference cycles keep it until the collector runs."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def unless_out_of_memory(run: Callable[[], Result]) -> Result | None:
    """Return the result of `run`. If the GPU runs out of memory, free the memory of `run` and return None.

    The traceback of the error keeps the tensors of `run` alive, so memory can only be freed after the `except` block.
    """
    import torch

    try:
        return run()
    except torch.OutOfMemoryError:
        pass
    free_unused()
    return None


def gpu_memory() -> tuple[int, int]:
    """Return the GPU's free and total bytes. The page cache is free memory if GPU and CPU share theirs, as in vLLM."""
    import torch

    free, total = torch.cuda.mem_get_info()
    if torch.cuda.get_device_properties().is_integrated:
        free = psutil.virtual_memory().available
    return free, total


def require_free(share: float) -> None:
    """Free unused memory; raise a RuntimeError that lists the card's processes if a share is still not free."""
    import torch

    free_unused()
    free, total = gpu_memory()
    if free >= share * total:
        return
    raise RuntimeError(
        f"vLLM is to have {share:g} of the card, {share * total / GIB:.1f} GiB, and {free / GIB:.1f} GiB of "
        f"{total / GIB:.1f} are free: {_users(torch.cuda.memory_allocated())}; end what should not be there, or lower "
        "engine.gpu_memory_utilization (in training, engine.training_gpu_memory_utilization)"
    )


def _users(own_tensors: int) -> str:
    users: list[str] = []
    for pid, held in processes():
        if pid == os.getpid():
            continue
        if held is None:
            users.append(f"process {pid} is on it")
        else:
            users.append(f"process {pid} has {held / GIB:.1f} GiB")
    if own_tensors >= GIB / 100:
        users.append(f"tensors of this process ({os.getpid()}) have {own_tensors / GIB:.1f} GiB")
    return ", ".join(users) or "the driver names no process that has the rest (another container may)"


def processes() -> list[tuple[int, int | None]]:
    """Return PID and bytes of every process on the card; bytes may be None, and the list is empty without NVML."""
    try:
        import pynvml
        import torch

        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(card)
    except Exception:  # NVML raises many types, and only a message needs the result
        return []
    return [(process.pid, process.usedGpuMemory) for process in running]
