"""`g2d recover`: make a folder usable again after Snakemake itself was killed (kill -9, a reboot of the login node).

It cancels running Slurm jobs, waits until they and the jobs on this machine end (a trainer saves a checkpoint first),
moves unfinished outputs to the trash (`results/.trash`), and removes the lock. An output is unfinished if Snakemake
marked it and no job recorded the digest of its content.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from base64 import urlsafe_b64decode
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from g2d.jobs.digests import as_recorded, read_digests
from g2d.jobs.files import TRASH, to_trash
from g2d.jobs.orphans import RUN
from g2d.plain import counted, say

RESULTS = Path("results")
LOCKS = ".snakemake/locks"


@dataclass(frozen=True)
class SlurmJob:
    job_id: str
    state: str
    label: str  # rule and wildcards


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "recover",
        help="after Snakemake was killed: cancel its jobs, move away unfinished outputs, unlock",
        description=(__doc__ or "").partition("\n\n")[2],
    )
    parser.add_argument("--yes", action="store_true", help="do it; without this, only say what would be done")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    folder = Path.cwd()
    require_no_snakemake(folder)
    jobs = []
    if (folder / ".snakemake/slurm_logs").exists():
        jobs = unfinished_jobs(folder)
    processes = processes_of_jobs(folder)
    if not jobs and not processes and not is_locked(folder):
        say("nothing to recover: no jobs, no lock")
        return 0
    for job in jobs:
        say(f"cancel the Slurm job {job.job_id} ({job.state}, {job.label})")
    for process in processes:
        say(f"wait for process {process.pid}, a job of the killed run (or end it: kill {process.pid})")
    left, half_made = unseen_outputs(folder)
    for output in left:
        why = "its job finished it" if output.is_relative_to(RESULTS) else "it is not among the results"
        say(f"leave {output}: {why}; the next run makes it again, because no Snakemake saw that job end")
    for output in half_made:
        say(f"move {output} to {RESULTS / TRASH}: its job was started and did not finish it")
    if is_locked(folder):
        say("remove Snakemake's lock")
    if not arguments.yes:
        say("\nnothing was done. If no Snakemake is running in this folder, on this or another host: g2d recover --yes")
        return 1
    cancel(folder, jobs)
    while processes_of_jobs(folder):
        time.sleep(1)
    _, half_made = unseen_outputs(folder)  # a job may have ended well meanwhile
    if half_made:
        say(to_trash(RESULTS, half_made))
    shutil.rmtree(folder / LOCKS, ignore_errors=True)
    say("done: type the same command again")
    return 0


def is_locked(folder: Path) -> bool:
    """Return whether a running or killed Snakemake has the folder's lock."""
    return any((folder / LOCKS).glob("*"))


def require_no_snakemake(folder: Path) -> None:
    for process in psutil.process_iter(["cwd", "cmdline"]):
        if not _is_in(folder, process):
            continue
        command = process.info["cmdline"] or []
        # A Snakemake with --target-jobs is cancelled with its job.
        if _is_snakemake(command) and "--target-jobs" not in command:
            raise RuntimeError(
                f"process {process.pid} is a Snakemake that is running in {folder}: end it first (Ctrl-C)"
            )


def _is_snakemake(command: list[str]) -> bool:
    """Return whether a command line runs Snakemake; that of a tmux session may only have its name."""
    program, *arguments = [Path(word).name for word in command] or [""]
    return program == "snakemake" or (program.startswith("python") and "snakemake" in arguments)


def processes_of_jobs(folder: Path) -> list[psutil.Process]:
    """Return the processes of a folder's jobs on this machine that still run."""
    found = []
    for process in psutil.process_iter(["cwd", "environ", "status"]):
        is_job = RUN in (process.info["environ"] or {})
        if _is_in(folder, process) and is_job and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def _is_in(folder: Path, process: psutil.Process) -> bool:
    """Return whether another process than this one works in the folder."""
    if process.pid == os.getpid():
        return False
    works_in: str | None = process.info["cwd"]
    return works_in == str(folder.resolve())


def unfinished_jobs(folder: Path) -> list[SlurmJob]:
    """Return the Slurm jobs of a folder; a RuntimeError if Slurm does not answer."""
    command = ["squeue", "--me", "--noheader", "--format=%i|%T|%Z|%k"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"squeue does not answer ({done.stderr.strip()}), so jobs of an earlier run may still be running: try "
            "again when Slurm is back"
        )
    jobs = []
    for line in done.stdout.splitlines():
        job_id, state, workdir, comment = line.split("|", 3)
        if comment.startswith(("rule_", "group_")) and Path(workdir).resolve() == folder.resolve():
            jobs.append(SlurmJob(job_id, state, comment))
    return jobs


def require_no_orphans(folder: Path) -> None:
    """Raise a RuntimeError if jobs of another run are queued; wait for jobs that are ending."""
    waited = False
    while True:
        jobs = unfinished_jobs(folder)
        if not jobs:
            return
        running = [job for job in jobs if job.state != "COMPLETING"]
        if running:
            raise RuntimeError(
                f"{len(running)} Slurm jobs of another run from this folder have not ended (first: "
                f"{running[0].job_id}, {running[0].state}, {running[0].label}); if its Snakemake was killed: "
                "g2d recover --yes, then start again"
            )
        if not waited:
            say(f"waiting for {counted(len(jobs), 'Slurm job')} of another run to end (first: {jobs[0].job_id})")
            waited = True
        time.sleep(1)


def cancel(folder: Path, jobs: list[SlurmJob]) -> None:
    if not jobs:
        return
    subprocess.run(["scancel", *(job.job_id for job in jobs)], check=True)
    ids = {job.job_id for job in jobs}
    while ids & {job.job_id for job in unfinished_jobs(folder)}:
        time.sleep(1)


def unseen_outputs(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the outputs that Snakemake marked as incomplete: finished by their jobs or no results, and half made."""
    left: list[Path] = []
    half_made: list[Path] = []
    marked = [path for path in _marked(folder / ".snakemake/incomplete") if os.path.lexists(folder / path)]
    if not marked:
        return left, half_made
    digests = read_digests(RESULTS)
    for path in marked:
        if path.is_relative_to(RESULTS) and not as_recorded(path, digests):
            half_made.append(path)
        else:
            left.append(path)
    return left, half_made


def _marked(incomplete: Path) -> list[Path]:
    outputs = []
    for mark in sorted(file for file in incomplete.rglob("*") if file.is_file()):
        name = "".join(part.removeprefix("@") for part in mark.relative_to(incomplete).parts)
        with suppress(ValueError):
            outputs.append(Path(urlsafe_b64decode(name).decode()))
    return outputs
