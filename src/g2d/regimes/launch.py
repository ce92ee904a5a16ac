"""Have several processes make one training: accelerate's launcher, and what a job of the grid needs around it
(docs/architecture.md). The job's own process trains nothing: it hands signals on, and says which process has died."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from g2d.jobs.cost import Meter
from g2d.jobs.orphans import name_of
from g2d.jobs.usage import charge, cpu_seconds
from g2d.regimes.checkpoints import TrainingStoppedError
from g2d.regimes.messages import read_message, write_message
from g2d.regimes.processes import FSDP, Processes
from g2d.regimes.rank import (
    CALL,
    LIVING,
    METER,
    OUTCOME,
    Call,
    Outcome,
    RankMeter,
    error_file,
    pid_file,
    rank_log,
    read_meter,
)
from g2d.regimes.stopping import stop_requests

FOLDER = "processes"  # in the folder that a training is kept in
LOOK_S = 0.2  # how often signals and the meter are looked after
TOGETHER_S = 1  # two that failed within so many seconds failed together, as far as the launcher's clock tells


def launched(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    training: Processes,
    work: Path,
    log: Path,
    meter: Meter,
) -> Any:
    """Call a function in several processes and return what it returns in the first of them.

    Args:
        function: of a module; it is given `meter` beside `arguments`, which, as what it returns, are values that
            `g2d.regimes.messages` can write.
        log: the job's; the other processes print beside it.
        meter: of the job; it gets what the processes have used, and how far they are.

    Raises:
        TrainingStoppedError: a signal stopped it early.
        RuntimeError: a process failed or was killed; the message names it and its log.
    """
    require_devices(training)
    folder = work / FOLDER
    _wait_for_orphans(work)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    given = RankMeter(
        meter.job,
        meter.stage,
        began=meter.began,  # on the clock that all processes of a machine share
        cpu_before=-cpu_seconds(),
        energy=meter.energy,
        file=folder / METER,
    )
    write_message(folder / CALL, Call(arguments, given, log, name_of(os.getpid())))
    launch = _Launch(training, folder, f"{function.__module__}:{function.__qualname__}")
    with stop_requests() as requests:
        launch.start()
        try:
            told: set[int] = set()
            while launch.is_alive():
                launch.join(LOOK_S)
                read_meter(folder / METER, meter)
                if requests:
                    told |= _tell(folder, training.processes, told, requests[0])
        finally:
            _tell(folder, training.processes if launch.is_alive() else 0, set(), "SIGKILL")
    if launch.failure is not None:
        raise RuntimeError(_why(launch.failure, folder, training.processes, log))
    outcome: Outcome = read_message(folder / OUTCOME)
    read_meter(folder / METER, meter)
    if outcome.used is not None:
        charge(replace(outcome.used, cpu_s=0.0))  # which the launcher has waited for
    if outcome.stopped:
        raise TrainingStoppedError(outcome.stopped)
    return outcome.log


def require_devices(training: Processes) -> None:
    """Raise a ValueError where there are GPUs, but not one for every process."""
    import torch

    if torch.cuda.is_available() and (there := torch.cuda.device_count()) < training.processes:
        raise ValueError(
            f"training.processes={training.processes} needs as many GPUs and this job has {there}: lower it, or allow "
            f"more (snakemake --resources gpu={training.processes})"
        )


class _Launch(threading.Thread):
    """accelerate's launcher, as `accelerate launch` runs it; `failure` is what it ended with."""

    def __init__(self, training: Processes, folder: Path, function: str) -> None:
        super().__init__(name="accelerate", daemon=True)
        self.training, self.folder, self.function = training, folder, function
        self.failure: Any = None

    def run(self) -> None:
        from accelerate.commands.launch import launch_command_parser, multi_gpu_launcher

        # It warns that it leaves the signals alone, which is why it runs here.
        logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.ERROR)
        threads = max(1, int(os.environ.get("OMP_NUM_THREADS", "1")) // self.training.processes)
        words = ["--multi_gpu", "--num_machines", 1, "--num_processes", self.training.processes]
        words += ["--main_process_port", 0, "--num_cpu_threads_per_process", threads]
        words += ["--mixed_precision", "no", "--dynamo_backend", "no"]  # the trainer's arguments say what there is
        words += FSDP if self.training.strategy == "fsdp" else ()
        words += ["--module", "g2d.regimes.rank", self.folder, self.function]
        try:
            multi_gpu_launcher(launch_command_parser().parse_args([str(word) for word in words]))
        except BaseException as error:
            self.failure = error


def _tell(folder: Path, n: int, told: set[int], name: str) -> set[int]:
    """Send a signal to the processes that have not had it yet, as soon as they can take it; which were sent it."""
    sent = set()
    for rank in set(range(n)) - told:
        if pid_file(folder, rank).exists():
            sent.add(rank)
            with suppress(ProcessLookupError):
                os.kill(int(pid_file(folder, rank).read_text()), signal.Signals[name])
    return sent


def _wait_for_orphans(work: Path) -> None:
    """Return when no process of an attempt that was killed is left: each may be saving its step."""
    living = os.open(work / LIVING, os.O_RDWR | os.O_CREAT)
    with suppress(OSError):  # where a file system cannot lock (NFS), nobody waits
        fcntl.lockf(living, fcntl.LOCK_EX)
    os.close(living)


def _why(failure: Any, folder: Path, n: int, log: Path) -> str:
    """Which process failed first, of what, and where it has printed."""
    failures = getattr(failure, "failures", None)
    if not failures:
        return f"the training's processes could not be started: {failure}"
    first = min(found.timestamp for found in failures.values())

    def blame(entry: tuple[int, Any]) -> tuple[Any, ...]:
        """Who was killed takes the others along: they fail of a closed connection, or end by the launcher's SIGTERM."""
        rank, found = entry
        return found.timestamp > first + TOGETHER_S, found.exitcode == -signal.SIGTERM, found.exitcode > 0, rank

    rank, found = min(failures.items(), key=blame)
    if found.exitcode < 0:
        what = f"was ended by {signal.Signals(-found.exitcode).name}"
    else:
        said = error_file(folder, rank)
        what = f"failed: {said.read_text()}" if said.exists() else f"ended with {found.exitcode}"
    return f"process {rank} of {n} {what}; its log: {rank_log(log, rank)}"
