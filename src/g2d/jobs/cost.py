"""Resources of a job, and costs of it and all jobs it depends on: the GPU-hours of the paper's Table 1."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from g2d.jobs.files import parse_record, read_json, write_json

JobKey = tuple[str, str]  # stage and name; jobs of two stages may share a name


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Resources that another process used for this job."""

    cpu_s: float
    peak_memory_bytes: int  # since the process started


_elsewhere: list[Elsewhere] = []
_gpu_peaks: list[int] = []  # bytes: peaks of other processes on this job's GPU, plus what this process held


def _usages() -> list[resource.struct_rusage]:
    return [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]


def own_cpu_seconds() -> float:
    return sum(usage.ru_utime + usage.ru_stime for usage in _usages())


def cpu_seconds() -> float:
    return own_cpu_seconds() + sum(part.cpu_s for part in _elsewhere)


def visible_devices() -> tuple[str, int]:
    """Return name and number of the job's devices; a job that has not imported torch used no GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0)), int(torch.cuda.device_count())
    return "cpu", 1


def gpu_memory_peak() -> int | None:
    """Return torch's peak allocation on the fullest GPU, in bytes."""
    return max([*_on_each_gpu("max_memory_allocated"), *_gpu_peaks], default=None)


def _on_each_gpu(measure: str) -> list[int]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [int(getattr(torch.cuda, measure)(gpu)) for gpu in range(torch.cuda.device_count())]


def memory_peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB on Linux
    own_peak = unit * max(usage.ru_maxrss for usage in _usages())
    others = [part.peak_memory_bytes for part in _elsewhere]
    return max([own_peak, *others])


def charge(part: Elsewhere) -> None:
    """Add another process's usage to this job's cost, except wall time."""
    _elsewhere.append(part)


def charge_gpu_memory(peak: int | None) -> None:
    """Add the GPU memory of another process of this job, beside what this process holds now; None: it used no GPU."""
    if peak is not None:
        _gpu_peaks.append(peak + max(_on_each_gpu("memory_allocated"), default=0))


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one job. A device is a GPU; on a machine without one, all CPU cores count as one device."""

    job: str
    stage: str
    wall_s: float
    cpu_s: float  # user + system, also of children it waited for
    devices: int
    device: str
    device_s: float  # wall_s x devices
    tokens_generated: int
    peak_memory_bytes: int  # resident memory of the largest process, without GPU memory
    peak_gpu_memory_bytes: int | None = None  # torch's, on the fullest GPU; without the workers of vLLM on several
    threads: int | None = None

    @property
    def key(self) -> JobKey:
        return self.stage, self.job


def merge_costs(earlier: Cost | None, later: Cost) -> Cost:
    """Add the costs of two attempts; the later resumed from a checkpoint of the earlier."""
    if earlier is None:
        return later
    on_gpu = [part.peak_gpu_memory_bytes for part in (earlier, later) if part.peak_gpu_memory_bytes is not None]
    return replace(
        later,
        wall_s=earlier.wall_s + later.wall_s,
        cpu_s=earlier.cpu_s + later.cpu_s,
        devices=max(earlier.devices, later.devices),
        device=", ".join(dict.fromkeys([*earlier.device.split(", "), later.device])),
        device_s=earlier.device_s + later.device_s,
        tokens_generated=earlier.tokens_generated + later.tokens_generated,
        peak_memory_bytes=max(earlier.peak_memory_bytes, later.peak_memory_bytes),
        peak_gpu_memory_bytes=max(on_gpu, default=None),
        threads=later.threads if earlier.threads == later.threads else None,
    )


@dataclass(frozen=True, slots=True)
class CostFile:
    """Costs of a job and of every job it depends on (`ancestry`), each once, oldest first."""

    own: Cost
    ancestry: tuple[Cost, ...]

    @property
    def records(self) -> tuple[Cost, ...]:
        return (*self.ancestry, self.own)

    @property
    def device_hours(self) -> float:
        return sum(record.device_s for record in self.records) / 3600


@dataclass(frozen=True, slots=True)
class Progress:
    step: int
    steps: int
    since: int


@dataclass(slots=True)
class Meter:
    """Measures a job; `carried` is the cost of earlier processes up to the checkpoint of a resumed training."""

    job: str
    stage: str
    tokens_generated: int = 0  # including those in `carried`
    carried: Cost | None = None
    saved: bool = False  # whether a checkpoint has costs of this process, so that `carried` stays
    threads: int | None = None
    progress: Progress | None = None
    began: float = field(default_factory=time.perf_counter)
    cpu_before: float = field(default_factory=own_cpu_seconds)  # charged usage counts from the start
    _own: Cost | None = None

    def reached(self, step: int, steps: int) -> None:
        since = step
        if self.progress is not None:
            since = self.progress.since
        self.progress = Progress(step, steps, since)

    def measured(self) -> Cost:
        """Return the cost of this attempt. Only the main thread may call it: it calls CUDA."""
        if self._own is not None:
            return self._own
        device, devices = visible_devices()
        return self._record(device, devices, gpu_memory_peak())

    def spent(self) -> Cost:
        return merge_costs(self.carried, self.measured())

    def end(self) -> Cost:
        self._own = self.measured()
        return self._own

    def so_far(self) -> Cost:
        """Return `measured` from any thread, without CUDA: the job may import torch or fork meanwhile."""
        torch = sys.modules.get("torch")
        has_cuda = getattr(getattr(torch, "version", None), "cuda", None)
        if not has_cuda:
            return self._record("cpu", 1)
        allotted = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        return self._record("unknown", max(1, len(allotted)))

    def _record(self, device: str, devices: int, peak_gpu_memory_bytes: int | None = None) -> Cost:
        wall_s = time.perf_counter() - self.began
        tokens = self.tokens_generated
        if self.carried is not None:
            # `carried` may be set before `tokens_generated` includes the checkpoint's tokens.
            tokens = max(0, tokens - self.carried.tokens_generated)
        return Cost(
            job=self.job,
            stage=self.stage,
            wall_s=wall_s,
            cpu_s=cpu_seconds() - self.cpu_before,
            devices=devices,
            device=device,
            device_s=wall_s * devices,
            tokens_generated=tokens,
            peak_memory_bytes=memory_peak(),
            peak_gpu_memory_bytes=peak_gpu_memory_bytes,
            threads=self.threads,
        )


def write_cost(path: str | Path, cost: Cost, parents: str | Path | Sequence[str | Path] = ()) -> None:
    """Write a job's record with its ancestry; a ValueError if the job is its own ancestor.

    `parents` are the cost.json of the jobs whose outputs this one read; Snakemake passes a single one as a string.
    """
    if isinstance(parents, (str, Path)):
        parents = [parents]
    ancestry: dict[str, Cost] = {}
    for file in parents:
        parent = read_cost(file)
        for record in parent.ancestry:
            ancestry.setdefault(record.job, record)
        # After a re-run, the job's own file is newer than a sibling's copy.
        ancestry[parent.own.job] = parent.own
    if cost.job in ancestry:
        raise ValueError(f"{path}: job {cost.job!r} is its own ancestor: give every job a different name")
    write_json(path, asdict(cost) | {"ancestry": [asdict(record) for record in ancestry.values()]})


def read_cost(path: str | Path) -> CostFile:
    """Read a file of `write_cost`; a ValueError names the file."""
    values = read_json(path)
    if not isinstance(values.get("ancestry"), list):
        raise ValueError(f"{path}: no list `ancestry`, so it is no cost record: delete it to have it made again")
    ancestry = []
    try:
        for i, entry in enumerate(values.pop("ancestry")):
            ancestry.append(parse_record(Cost, entry, f"{path}, ancestry {i}"))
        own = parse_record(Cost, values, str(path))
    except ValueError as error:
        raise ValueError(f"{error}: delete the file to have it made again") from None
    names = set()
    for record in (*ancestry, own):
        if record.job in names:
            raise ValueError(f"{path}: job {record.job!r} is counted twice: delete the file to have it made again")
        names.add(record.job)
    return CostFile(own, tuple(ancestry))
