"""Check that a GPU has the memory that vLLM will ask for, and say what holds it where it has not.

vLLM takes a share of the whole card and does not start where less is free. What can be freed is freed first: tensors of
a trainer, an engine of the job before.
"""

from __future__ import annotations

import gc
import os

GIB = 2**30


def free_unused() -> None:
    """Give back the GPU memory of what went out of use: a trainer refers to itself, so nothing is freed at once."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def require_free(share: float) -> None:
    """Free what can be freed; a RuntimeError says what holds the memory where a share of the first visible card is not
    free then."""
    import torch

    free_unused()
    free, total = torch.cuda.mem_get_info()
    if free >= share * total:
        return
    raise RuntimeError(
        f"vLLM is to have {share:g} of the card, {share * total / GIB:.1f} GiB, and {free / GIB:.1f} GiB of "
        f"{total / GIB:.1f} are free: {_users(torch.cuda.memory_allocated())}; end what should not be there, or lower "
        "engine.gpu_memory_utilization (in training, engine.training_gpu_memory_utilization)"
    )


def _users(own_tensors: int) -> str:
    found = [
        f"process {pid} has {held / GIB:.1f} GiB" if held is not None else f"process {pid} is on it"
        for pid, held in processes()
        if pid != os.getpid()
    ]
    if own_tensors >= GIB / 100:
        found.append(f"tensors of this process ({os.getpid()}) have {own_tensors / GIB:.1f} GiB")
    return ", ".join(found) or "the driver names no process that has the rest (another container may)"


def processes() -> list[tuple[int, int | None]]:
    """PID and bytes of every process on the card, None where the driver does not say; none where NVML does not answer,
    as in some containers."""
    try:
        import pynvml
        import torch

        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(card)
    except Exception:  # NVML has many; the answer is for a message only
        return []
    return [(process.pid, process.usedGpuMemory) for process in found]
