"""One of several processes of a training, started by `g2d.regimes.distributed.launch`:

    python -m g2d.regimes.distributed.rank FOLDER MODULE:FUNCTION

FOLDER has the `Call`; the first process writes its `Outcome` there.
"""

from __future__ import annotations

import fcntl
import os
import sys
import traceback
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from g2d.jobs.cost import Elsewhere, Meter, gpu_memory_peak, this_process
from g2d.jobs.files import write_text
from g2d.jobs.orphans import stop, when_ends
from g2d.regimes.distributed.messages import read_message, write_message
from g2d.regimes.run.checkpoints import TrainingStoppedError
from g2d.regimes.run.processes import NotTheFirstError, is_first
from g2d.regimes.run.stopping import stop_requests

# Files in the folder of the processes, and in the work folder:
CALL = "call.json"
OUTCOME = "outcome.json"
METER = "meter.json"
LIVING = "living.lock"


@dataclass(frozen=True)
class Outcome:
    result: Any = None
    stopped: str = ""
    used: Elsewhere | None = None


@dataclass
class RankMeter(Meter):
    file: Path = Path(METER)

    def reached(self, step: int, steps: int) -> None:
        super().reached(step, steps)
        if is_first():
            self.tell()

    def tell(self) -> None:
        write_message(self.file, {name: getattr(self, name) for name in ("tokens_generated", "carried", "progress")})


def read_meter(file: Path, meter: Meter) -> None:
    values = read_message(file) if file.exists() else {}
    for name, value in values.items():
        setattr(meter, name, value)


@dataclass(frozen=True)
class Call:
    arguments: tuple[object, ...]
    meter: RankMeter
    log: Path
    process: str  # `g2d.jobs.orphans.name_of`


def rank_log(log: Path, rank: int) -> Path:
    return log if rank == 0 else log.with_suffix(f".rank{rank}.log")


def pid_file(folder: Path, rank: int) -> Path:
    """PID of a process, written once it handles signals."""
    return folder / f"{rank}.pid"


def error_file(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.error"


def end_with_the_job(job: str) -> None:
    """If the job is killed, save the step, or exit if the process group does not exist yet."""

    def end() -> None:
        have_met = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)  # torch may be half imported
        if have_met is None or not have_met():
            os._exit(1)
        stop()

    try:
        when_ends(job, end)
    except ProcessLookupError:
        os._exit(1)


def read_on_cpus() -> None:
    """Let torch load storages saved on `cpu:0`, transformers' name for a distributed process's CPU."""
    from torch.serialization import register_package

    register_package(5, lambda _: None, lambda storage, place: storage if place.startswith("cpu:") else None)


def main(folder: Path, function: str, rank: int) -> int:
    # If the job is killed, the next attempt waits for this lock.
    living = os.open(folder.parent / LIVING, os.O_RDWR | os.O_CREAT)
    fcntl.lockf(living, fcntl.LOCK_SH)
    call: Call = read_message(folder / CALL)
    with stop_requests():
        end_with_the_job(call.process)
        write_text(pid_file(folder, rank), str(os.getpid()))
        if not is_first():
            with open(rank_log(call.log, rank), "w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
        outcome = Outcome()
        try:
            read_on_cpus()
            module, _, name = function.partition(":")
            outcome = Outcome(result=getattr(import_module(module), name)(*call.arguments, meter=call.meter))
        except NotTheFirstError:
            pass
        except TrainingStoppedError as error:
            outcome = Outcome(stopped=str(error))
        except Exception as error:
            traceback.print_exc()
            error_file(folder, rank).write_text(f"{error}" or type(error).__name__)
            return 1
    if is_first():
        call.meter.tell()
        used = replace(this_process(), peak_gpu_memory_bytes=gpu_memory_peak())
        write_message(folder / OUTCOME, replace(outcome, used=used))
    return 0


if __name__ == "__main__":
    from g2d.regimes.distributed import rank  # noqa: PLW0406 -- the instance of this module whose classes the messages name

    status = rank.main(Path(sys.argv[1]), sys.argv[2], int(os.environ["RANK"]))
    distributed = sys.modules.get("torch.distributed")
    if status == 0 and distributed is not None and distributed.is_initialized():
        distributed.destroy_process_group()
    sys.exit(status)
