"""Energy of GPUs, from NVML's counters; NVML is shut down before any fork."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

Readings = Mapping[str, int]  # mJ since the driver was loaded, by UUID


def read(gpus: Sequence[str]) -> Readings | None:
    if not gpus:
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return dict(_counter(pynvml, gpu) for gpu in gpus)
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # must not fail the job
        return None


def joules_since(before: Readings | None) -> float | None:
    now = read(list(before)) if before else None
    if before is None or now is None:
        return None
    used = [now[card] - before[card] for card in before]
    return sum(used) / 1000 if min(used) >= 0 else None  # counters restart with the driver


def _counter(pynvml: Any, gpu: str) -> tuple[str, int]:
    """Return UUID and counter of a card; raises if it is shared or cannot be identified."""
    if gpu.startswith("GPU-"):
        card = pynvml.nvmlDeviceGetHandleByUUID(gpu)
    else:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        # CUDA orders cards by speed and NVML by bus: the same only if all cards are of one kind.
        if os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len(set(map(pynvml.nvmlDeviceGetName, handles))) > 1:
            raise ValueError(f"{gpu}: the order of unlike cards is not known")
        card = pynvml.nvmlDeviceGetHandleByIndex(int(gpu))
    with suppress(pynvml.NVMLError_NotSupported):  # it has no MIG
        if pynvml.nvmlDeviceGetMigMode(card)[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
            raise ValueError(f"{gpu}: MIG is on")
    return str(pynvml.nvmlDeviceGetUUID(card)), int(pynvml.nvmlDeviceGetTotalEnergyConsumption(card))
