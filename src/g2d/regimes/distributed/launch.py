"""Run a training in several processes with accelerate's launcher."""

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
from typing import TYPE_CHECKING, TypeVar

from g2d.jobs.cost import Meter, charge, cpu_seconds
from g2d.jobs.orphans import name_of
from g2d.regimes.distributed.messages import read_message, write_message
from g2d.regimes.distributed.rank import (
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
from g2d.regimes.run.checkpoints import TrainingStoppedError
from g2d.regimes.run.processes import Processes
from g2d.regimes.run.stopping import stop_requests

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

Result = TypeVar("Result")
FOLDER = "processes"
LOOK_S = 0.2  # seconds
TOGETHER_S = 1


def launched(
    function: Callable[..., Result],
    arguments: tuple[object, ...],
    *,
    training: Processes,
    work: Path,
    log: Path,
    meter: Meter,
) -> Result:
    """Call a function in several processes and return the first one's result.

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
        began=meter.began,  # processes of a machine share this clock
        cpu_before=-cpu_seconds(),
        threads=meter.threads,
        file=folder / METER,
    )
    write_message(folder / CALL, Call(arguments, given, log, name_of(os.getpid())))
    launch = _Launch(training, folder, f"{function.__module__}:{function.__qualname__}")
    with stop_requests() as requests:
        launch.start()
        try:
            signalled: set[int] = set()
            while launch.is_alive():
                launch.join(LOOK_S)
                read_meter(folder / METER, meter)
                if requests:
                    signalled |= _tell(folder, training.processes, signalled, requests[0])
        finally:
            _tell(folder, training.processes if launch.is_alive() else 0, set(), "SIGKILL")
    if launch.failure is not None:
        raise RuntimeError(_why(launch.failure, folder, training.processes, log))
    outcome: Outcome = read_message(folder / OUTCOME)
    read_meter(folder / METER, meter)
    if outcome.used is not None:
        charge(replace(outcome.used, cpu_s=0.0))  # the launcher has already counted CPU time
    if outcome.stopped:
        raise TrainingStoppedError(outcome.stopped)
    result: Result = outcome.result
    return result


def require_devices(training: Processes) -> None:
    import torch

    n_gpus = torch.cuda.device_count()
    if torch.cuda.is_available() and n_gpus < training.processes:
        raise ValueError(
            f"training.processes={training.processes} needs as many GPUs and this job has {n_gpus}: lower it, or allow "
            f"more (snakemake --resources gpu={training.processes})"
        )


class _Launch(threading.Thread):
    def __init__(self, training: Processes, folder: Path, function: str) -> None:
        super().__init__(name="accelerate", daemon=True)
        self.training = training
        self.folder = folder
        self.function = function
        self.failure: BaseException | None = None

    def run(self) -> None:
        from accelerate.commands.launch import launch_command_parser, multi_gpu_launcher

        # Hide its warning that a thread cannot handle signals.
        logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.ERROR)
        threads = max(1, int(os.environ.get("OMP_NUM_THREADS", "1")) // self.training.processes)
        words = ["--multi_gpu", "--num_machines", 1, "--num_processes", self.training.processes]
        words += ["--main_process_port", 0, "--num_cpu_threads_per_process", threads]
        words += ["--mixed_precision", "no", "--dynamo_backend", "no"]
        words += ["--module", "g2d.regimes.distributed.rank", self.folder, self.function]
        try:
            multi_gpu_launcher(launch_command_parser().parse_args([str(word) for word in words]))
        except BaseException as error:
            self.failure = error


def _tell(folder: Path, n: int, told: set[int], name: str) -> set[int]:
    """Signal processes that handle signals and have not received one; return their ranks."""
    sent = set()
    for rank in set(range(n)) - told:
        if pid_file(folder, rank).exists():
            sent.add(rank)
            with suppress(ProcessLookupError):
                os.kill(int(pid_file(folder, rank).read_text()), signal.Signals[name])
    return sent


def _wait_for_orphans(work: Path) -> None:
    """Wait for processes of a killed attempt: they may be saving their step."""
    living = os.open(work / LIVING, os.O_RDWR | os.O_CREAT)
    with suppress(OSError):  # no locks on NFS
        fcntl.lockf(living, fcntl.LOCK_EX)
    os.close(living)


def _why(failure: BaseException, folder: Path, n: int, log: Path) -> str:
    failures: dict[int, ProcessFailure] | None = getattr(failure, "failures", None)  # ChildFailedError has it
    if not failures:
        return f"the training's processes could not be started: {failure}"
    first = min(failed.timestamp for failed in failures.values())

    def blame(entry: tuple[int, ProcessFailure]) -> tuple[bool, bool, bool, int]:
        """Sort key: if a process is killed, others fail by closed connections or the launcher's SIGTERM."""
        rank, failed = entry
        return failed.timestamp > first + TOGETHER_S, failed.exitcode == -signal.SIGTERM, failed.exitcode > 0, rank

    rank, failed = min(failures.items(), key=blame)
    if failed.exitcode < 0:
        description = f"was ended by {signal.Signals(-failed.exitcode).name}"
    else:
        error = error_file(folder, rank)
        description = f"failed: {error.read_text()}" if error.exists() else f"ended with {failed.exitcode}"
    return f"process {rank} of {n} {description}; its log: {rank_log(log, rank)}"
