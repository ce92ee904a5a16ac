"""Resources used by this process, and by others for its job."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass


def _usages() -> list[resource.struct_rusage]:
    return [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]


def own_cpu_seconds() -> float:
    return sum(usage.ru_utime + usage.ru_stime for usage in _usages())


def cpu_seconds() -> float:
    return own_cpu_seconds() + sum(part.cpu_s for part in _elsewhere)


def visible_devices() -> tuple[str, int]:
    """Return name and number of the job's devices; a job that has not imported torch used no GPU."""
    for part in reversed(_elsewhere):
        if part.device is not None:
            return part.device, part.devices
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0)), int(torch.cuda.device_count())
    return "cpu", 1


def gpu_memory_peak() -> int | None:
    """Return torch's peak allocation on the fullest GPU, in bytes."""
    torch = sys.modules.get("torch")
    peaks = [part.peak_gpu_memory_bytes for part in _elsewhere if part.peak_gpu_memory_bytes is not None]
    if torch is not None and torch.cuda.is_initialized():
        peaks += [int(torch.cuda.max_memory_allocated(gpu)) for gpu in range(torch.cuda.device_count())]
    return max(peaks, default=None)


def memory_peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB on Linux
    own_peak = unit * max(usage.ru_maxrss for usage in _usages())
    others = [part.peak_memory_bytes for part in _elsewhere]
    return max([own_peak, *others])


@dataclass(frozen=True, slots=True)
class Elsewhere:
    cpu_s: float
    peak_memory_bytes: int  # since the process started
    device: str | None = None
    devices: int = 0
    peak_gpu_memory_bytes: int | None = None


_elsewhere: list[Elsewhere] = []


def charge(part: Elsewhere) -> None:
    """Add another process's usage to this job's cost, except wall time."""
    _elsewhere.append(part)


def this_process() -> Elsewhere:
    return Elsewhere(cpu_seconds(), memory_peak(), *visible_devices())
