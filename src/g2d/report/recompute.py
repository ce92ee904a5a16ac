"""Recompute finished jobs in a temporary folder, each from its recorded inputs.

Snakemake plans from copies of their inputs and of all small files (records, costs, settings). The folder of the run is
only read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import g2d
from g2d.graph.job import Job, flat
from g2d.jobs.attempts import read_attempt
from g2d.jobs.digests import FOLDER, MARK
from g2d.jobs.files import TRASH
from g2d.plain import plain

SNAKEFILE = Path(g2d.__file__).parents[2] / "Snakefile"
SMALL = 2**20  # bytes
LEFT_OUT = {"logs", "benchmarks", TRASH}
ATTEMPTS = "attempts"


def recompute(
    results: Path, folder: Path, jobs: Sequence[Job], threads: int | None, before: float = 0.0
) -> dict[Job, str]:
    """Run jobs in an empty folder; return the error message of each job that failed.

    Args:
        jobs: run by one Snakemake, so a job reads what others of them made again.
        threads: threads of a job; None: the configured number.
        before: copy records of attempts that ended earlier (seconds since the epoch).
    """
    if not SNAKEFILE.is_file():
        raise FileNotFoundError(f"{SNAKEFILE} is not there: install the package from a checkout (pip install -e .)")
    link_beside(results, folder)
    _copy_inputs(results, folder, jobs, before)
    for listed in _lists(folder, jobs).values():
        listed.unlink()  # a job writes it last
    rules = sorted({job.rule for job in jobs} | {f"{job.rule}_shard" for job in jobs if job.inputs.get("shards")})
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE), "--configfile", "results/config.yaml"]
    command += ["--cores", str(threads or os.cpu_count()), "--keep-going", "--quiet", "rules", "--nolock", "--no-hooks"]
    # A cluster job (`--mode remote`) does not make missing outputs of other jobs.
    command += ["--mode", "remote", "--force", "--allowed-rules", *rules, "--target-jobs", *map(_target, jobs)]
    command += ["--set-threads", *(f"{rule}={threads}" for rule in rules)] if threads else []
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    environment = os.environ | {"WANDB_MODE": "disabled", "PYTHONSAFEPATH": "1"}  # the folder may have modules
    lines = subprocess.run(command, cwd=folder, env=environment, check=False, **pipes).stdout.splitlines()
    made = _lists(folder, jobs)
    return {job: _reason([*map(plain, lines)], f"{job.rule}: ") for job in jobs if job not in made}


def link_beside(results: Path, folder: Path) -> None:
    """Link the files beside the results, which a configuration may name."""
    for beside in results.absolute().parent.iterdir():
        if beside.name not in (results.name, "results") and not beside.name.startswith("."):
            (folder / beside.name).symlink_to(beside)


def _copy_inputs(results: Path, folder: Path, jobs: Sequence[Job], before: float) -> None:
    """Copy the inputs of jobs, all with one time stamp, and the attempts that ended `before`."""
    read = {file for job in jobs for file in job.files}
    read |= {str(Path(*Path(file).parts[:3])) for file in read if "/base/" in file}  # M0's whole folder
    now = time.time() - 60
    for file in _files(results):
        inside = Path("results", file.relative_to(results))
        if inside.parts[1] == ATTEMPTS:
            wanted = file.suffix == ".json" and read_attempt(file).updated < before
        else:
            wanted = file.stat().st_size <= SMALL or not read.isdisjoint(map(str, (inside, *inside.parents)))
        if wanted and inside.parts[1] not in LEFT_OUT:
            (folder / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / inside)
            os.utime(folder / inside, (now, now))


def outputs(results: Path, job: Job) -> Iterator[Path]:
    """Yield the files that a job wrote, relative to the results."""
    for output in flat(job.outputs):
        path = results / Path(output).relative_to("results")
        yield from (file.relative_to(results) for file in (_files(path) if path.is_dir() else [path]))


def _files(path: Path) -> list[Path]:
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return [file for file in files if file.name != MARK and not file.name.endswith(".partial")]


def _lists(folder: Path, jobs: Sequence[Job]) -> dict[Job, Path]:
    texts = {listed: listed.read_text("utf-8") for listed in (folder / "results" / FOLDER).rglob("*.sha256")}
    return {job: listed for listed, text in texts.items() for job in jobs if f"  {job.done[0]}\n" in text}


def _target(job: Job) -> str:
    return f"{job.rule}:{','.join(f'{name}={value}' for name, value in vars(job.wildcards).items())}"


def _reason(lines: Sequence[str], start: str) -> str:
    reasons = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return next(iter([*reasons, *filter(None, reversed(lines))]), "no output")
