"""One job, and the table of jobs. Paths begin with `results/`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from g2d.experiment.arms import Arm
from g2d.experiment.stages import RUNNING_ORDER
from g2d.jobs.stage import FETCHING

Files = str | list[str]
Key = tuple[Any, ...]  # rule and wildcards

DEVICE_STAGES = {*RUNNING_ORDER, "calibrate_temperature"}


class Wildcards(SimpleNamespace):
    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


@dataclass(frozen=True, eq=False)
class Job:
    """One job of a grid.

    Args:
        inputs, outputs: files by name, "" for unnamed ones.
        state: computes the params that depend on the configuration.
        arm: arm of the policy that it trains.
        continues: K of the checkpoint that it continues.
        devices: number of GPUs, if there are any.
        settled: its rollouts belong to another harvest, so it samples nothing.
    """

    rule: str
    wildcards: Wildcards
    inputs: Mapping[str, Files]
    outputs: Mapping[str, Files]
    state: Callable[[], dict[str, Any]] = field(default=dict, repr=False)
    arm: Arm | None = None
    continues: int | None = None
    devices: int = 0
    settled: bool = False

    @property
    def key(self) -> Key:
        return key_of(self.rule, vars(self.wildcards))

    @property
    def model(self) -> str:
        """The model that it belongs to, or ""."""
        return model_of(vars(self.wildcards))

    @cached_property
    def params(self) -> dict[str, Any]:
        """Params that depend on the configuration; a job with others is stale."""
        return self.state()

    @property
    def holds_device(self) -> bool:
        """Whether it trains or samples; other jobs take seconds."""
        return not self.settled and self.rule in DEVICE_STAGES

    @cached_property
    def done(self) -> tuple[str, ...]:
        """Files that exist when it has finished: the first output, and the costs, written last."""
        first = self.outputs["policy"] if "policy" in self.outputs else next(flat(self.outputs))
        bills = [file for file in flat(self.outputs) if file.endswith("cost.json")]
        return str(first), *bills

    @property
    def name(self) -> str:
        return self.done[-1].rpartition(".")[0]

    @property
    def files(self) -> Iterator[str]:
        return flat(self.inputs)


def job_of(
    rule: str,
    inputs: Mapping[str, Files],
    outputs: Mapping[str, Files],
    state: Callable[[], dict[str, Any]] = dict,
    /,
    **more: Any,
) -> Job:
    attributes = {name: more.pop(name) for name in ("devices", "settled") if name in more}
    return Job(rule, Wildcards(**more), inputs, outputs, state, **attributes)


def model_of(wildcards: Mapping[str, str]) -> str:
    return wildcards.get("model") or wildcards.get("policy", "").partition("/")[0]


def problems_of(name: str) -> str:
    return f"results/problems/{name}.jsonl"


def key_of(rule: str, wildcards: Mapping[str, Any]) -> Key:
    return (rule, *sorted(wildcards.items()))


def flat(named: Mapping[str, Files]) -> Iterator[str]:
    for files in named.values():
        if isinstance(files, str):
            yield files
        else:
            yield from files


@dataclass(frozen=True, eq=False)
class Deferred:
    """A job that depends on finished results, read on lookup: a cluster job reads only its own.

    Args:
        jobs: yields it, and jobs that it needs and that may be missing from the table.
    """

    key: Key
    jobs: Callable[[], Iterable[Job | Deferred]]


class Jobs(Mapping[Key, Job]):
    """Jobs by rule and wildcards, roughly in the order in which they run."""

    def __init__(self, jobs: Iterable[Job | Deferred]) -> None:
        self._jobs = {job.key: job for job in jobs}

    def __getitem__(self, key: Key) -> Job:
        if key not in self._jobs and len(key) > 1:  # perhaps only a finished result needs it; such a job has wildcards
            self._read()
        job = self._jobs[key]
        if isinstance(job, Job):
            return job
        for other in job.jobs():
            if other.key == key or other.key not in self._jobs:
                self._jobs[other.key] = other
        return self[key]

    def __iter__(self) -> Iterator[Key]:
        self._read()
        return iter(self._jobs)

    def __len__(self) -> int:
        self._read()
        return len(self._jobs)

    def _read(self) -> None:
        while deferred := [key for key, job in self._jobs.items() if isinstance(job, Deferred)]:
            for key in deferred:
                self[key]

    @cached_property
    def makers(self) -> dict[str, Job]:
        return {file: job for job in self.values() for file in flat(job.outputs)}

    def behind(self, rule: str) -> list[Job]:
        """Return the jobs that the one job of a rule needs, in the order of the table.

        Raises:
            LookupError: no job makes a needed result.
        """
        return self.needed_for(self[rule,].files, rule)

    def needed_for(self, files: Iterable[str], rule: str = "") -> list[Job]:
        makers = self.makers
        todo, needed = [(file, rule) for file in files], set[Job]()
        while todo:
            file, reader = todo.pop()
            maker = makers.get(file)
            if maker is None:
                # Files that the configuration names may be anywhere.
                if file.startswith("results/") and reader not in FETCHING:
                    raise LookupError(f"{file}: {reader} needs it, and no rule of this configuration makes it")
            elif maker not in needed:
                needed.add(maker)
                todo += [(other, maker.rule) for other in maker.files]
        return [job for job in self.values() if job in needed]
