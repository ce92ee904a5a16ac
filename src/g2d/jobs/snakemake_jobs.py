"""Jobs of Snakemake: the object that a script gets, and the jobs of a plan. The package does not import Snakemake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from g2d.jobs.files import read_json, write_json

JOBS = "jobs.json"  # written when a run starts, for `g2d status`


class Values(Protocol):
    """Files, params or resources of a job, by position and by the name in the rule."""

    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, position: int) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...
    def get(self, name: str, default: Any = None) -> Any: ...
    def items(self) -> Iterable[tuple[str, Any]]: ...


class Snakemake(Protocol):
    rule: str
    input: Values
    output: Values
    params: Values
    resources: Values
    log: Values
    wildcards: Mapping[str, str]
    threads: int
    config: dict[str, Any]


def model_of(wildcards: Mapping[str, str]) -> str:
    """Return the model that a job of these wildcards belongs to, or ""."""
    model = wildcards.get("model")
    if model:
        return model
    return wildcards.get("policy", "").partition("/")[0]


@dataclass(frozen=True)
class PlannedJob:
    """One job.

    Args:
        done: files that exist when it has finished: its first output, and its costs, written last. An evaluation has
            costs per benchmark.
    """

    rule: str
    wildcards: Mapping[str, str]
    done: tuple[str, ...]

    @property
    def model(self) -> str:
        return model_of(self.wildcards)

    @property
    def name(self) -> str:
        named = self.done[:2][-1]  # the first costs, if it has any
        return named.rpartition(".")[0]

    @property
    def costs(self) -> tuple[str, ...]:
        return self.done[1:]

    @property
    def folder(self) -> str:
        """Folder of its outputs below the results folder, such as demo/seed0/dpo/g2/k50."""
        return Path(self.done[0]).parent.relative_to("results").as_posix()


def write_jobs(results: Path, jobs: Iterable[PlannedJob]) -> None:
    write_json(results / JOBS, {"jobs": [asdict(job) for job in jobs]})


def read_jobs(results: Path) -> list[PlannedJob]:
    """Read the jobs of the last run.

    Raises:
        FileNotFoundError: no run of this version has begun in the folder.
        ValueError: the file cannot be read.
    """
    file = results / JOBS
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there: it lists the jobs of a run, and the next snakemake writes it")
    try:
        jobs = read_json(file)["jobs"]
        return [PlannedJob(job["rule"], job["wildcards"], tuple(job["done"])) for job in jobs]
    except (KeyError, TypeError):
        raise ValueError(f"{file}: not a list of jobs: delete it, and the next snakemake writes it again") from None
