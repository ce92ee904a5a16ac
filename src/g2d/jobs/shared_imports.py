"""Jobs forked from one process that has imported torch, transformers, PEFT and TRL (`share_imports`).

The process that Snakemake started waits for the fork, forwards signals and exits with its status. The shared process
never initialises CUDA: its forks could not use it then.
"""

from __future__ import annotations

import gc
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from g2d.jobs import orphans
from g2d.jobs.cost import Elsewhere, charge, cpu_seconds, memory_peak
from g2d.jobs.environment import AVX2, pin_embedded
from g2d.jobs.orphans import end_with_snakemake, name_of, stop, watched, when_ends
from g2d.jobs.run_process import accept, connect, current_run, listen, only_one, socket_of
from g2d.jobs.snakemake_jobs import Snakemake
from g2d.jobs.stage import LOGS, allow_interrupt, go_offline, set_trackio_folder
from g2d.plain import say

IMPORTS = (
    "pandas",
    "pyarrow.parquet",
    "scipy.stats",
    "torch",
    "transformers.models.llama.modeling_llama",
    "transformers.models.auto.modeling_auto",
    "peft",
    "datasets",
    "trl.trainer.dpo_trainer",
    "trl.trainer.sft_trainer",
    "snakemake.script",
    "g2d.stages.sample_rollouts",
    "g2d.stages.train_policy",
    "g2d.regimes.grpo.trainer",  # and with it TRL's
    "g2d.rollouts.transformers_engine",
)
LOG = f"{LOGS}/shared_imports.log"


# The process that Snakemake started finds the shared process, or starts it, and sends the job: script, environment and
# folder through the connection, then its own output descriptors. Afterwards it only forwards signals and waits. If no
# shared process can be reached, the job makes its own imports.


def run(main: Callable[[Snakemake], None], snakemake: Snakemake) -> None:
    allow_interrupt()
    end_with_snakemake()  # imports take long
    try:
        shared = _shared(snakemake)
        if shared is None:
            main(snakemake)
            return
    except KeyboardInterrupt:  # without a traceback of the imports
        sys.exit(128 + signal.SIGINT)
    connection, (host, child) = shared
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: connection.send(number))
    with connection:
        connection.send((str(main.__globals__["__file__"]), snakemake, dict(os.environ), str(Path.cwd())))
        with socket.socket(fileno=os.dup(connection.fileno())) as raw:
            socket.send_fds(raw, [b"."], [1, 2])
        try:
            _wait_for(connection, host, child)
            status = connection.recv()
        except (EOFError, OSError):
            sys.exit(f"{snakemake.rule}: the process that jobs share their imports with has died; its log: {LOG}")
    if status < 0:
        status = 128 - status  # a shell reports signals this way
    sys.exit(status)


def _wait_for(connection: Connection, host: str, child: str) -> None:
    """Wait until the child's status can be read; the child's own children may keep the connection open."""
    for process in (host, child):
        descriptor = watched(process)
        assert descriptor is not None
        ready, _, _ = select.select([connection.fileno(), descriptor], [], [])
        os.close(descriptor)
        if connection.fileno() in ready:
            return
    raise ProcessLookupError(f"process {host} has ended")


def _shared(snakemake: Snakemake) -> tuple[Connection, Any] | None:
    """Connect to the process that forks jobs; None if this job makes its own imports."""
    run = current_run()
    if not snakemake.config.get("share_imports") or run is None:
        return None
    engines = (snakemake.params.get("engine"), snakemake.params.get("settings", {}).get("engine"))
    if "vllm" in engines:
        return None
    pin_embedded(snakemake)
    purpose = f"imports for {[os.environ.get(name) for name in AVX2]}"  # a child cannot change its kernels
    try:
        Path(LOG).parent.mkdir(parents=True, exist_ok=True)
        with open(LOG, "a") as log:
            connection, message = connect(__name__, socket_of(run, purpose), run, log)
        if isinstance(message, OSError):
            connection.close()
            raise message
        return connection, message
    except (OSError, RuntimeError) as error:
        say(f"{snakemake.rule}: makes its own imports: {error}; the log of the shared ones: {LOG}", file=sys.stderr)
        return None


# The shared process imports. One `select` then waits for new jobs, for the end of its run, and for the ends of its
# forks; their status is sent back. After the end of the run it accepts no job, and ends with its last fork. Usage of
# the imports is charged to the first job, so that costs stay complete.


def main(socket_file: Path, run: str) -> None:
    ends_with = watched(run)
    lock = only_one(socket_file.with_suffix(".lock"))
    if lock is None or ends_with is None:
        return
    go_offline()
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # `is_available` does not initialise CUDA
    set_trackio_folder()
    gc.disable()  # a quarter of the time of imports
    for name in IMPORTS:
        import_module(name)
    gc.enable()
    if _forks_cannot_use_cuda():
        sys.exit("an import has begun CUDA, which no fork can use then: share_imports: false saves this attempt")
    gc.collect()
    gc.freeze()  # otherwise a collection in a child copies the pages of all imports
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with its run
    _serve(socket_file, ends_with)
    Path(lock.name).unlink(missing_ok=True)  # last: from here on another process may take it
    os._exit(0)


def _forks_cannot_use_cuda() -> bool:
    """Return whether CUDA was initialised, tested in a fork: `is_initialized` misses a count of the devices."""
    import torch

    child = os.fork()
    if child == 0:
        os._exit(bool(torch.cuda._is_in_bad_fork()))
    _, status = os.waitpid(child, 0)
    return status != 0


def _serve(socket_file: Path, ends_with: int) -> None:
    listener = listen(socket_file)
    socket_fd: int = listener._listener._socket.fileno()  # type: ignore[attr-defined]
    children: dict[int, tuple[ForkProcess, Connection]] = {}  # key: pidfd
    fork = get_context("fork")
    import_usage: Elsewhere | None = Elsewhere(cpu_seconds(), memory_peak())  # charged to the first job
    host = os.getpid()
    accepts_jobs = True
    while accepts_jobs or children:
        watched_for = list(children)
        if accepts_jobs:
            watched_for += [socket_fd, ends_with]
        ready, _, _ = select.select(watched_for, [], [])
        for descriptor in ready:
            if descriptor == ends_with:
                accepts_jobs = False
                with suppress(FileNotFoundError):  # /tmp may have been cleaned up
                    listener.close()
            elif descriptor == socket_fd:
                if ends_with in ready:
                    continue
                connection = accept(listener)
                if connection is None:
                    continue
                others = [other for _, other in children.values()]
                child = fork.Process(target=_run_job, args=(connection, others, socket_fd, import_usage, host))
                try:
                    child.start()
                except OSError as error:
                    with connection, suppress(OSError):
                        connection.send(error)
                    continue
                assert child.pid is not None
                # Not `child.sentinel`: the child's own children keep it open.
                children[os.pidfd_open(child.pid)] = (child, connection)
                import_usage = None
            else:
                child, connection = children.pop(descriptor)
                os.close(descriptor)
                child.join()
                with suppress(OSError), connection:  # the waiting process may have been killed
                    connection.send(child.exitcode)


# A fork closes what belongs to the shared process and to other jobs, receives the descriptors, environment and folder
# of its job, and runs the script as Python would. It ends if the shared process does.


def _run_job(
    connection: Connection, others: list[Connection], socket_fd: int, import_usage: Elsewhere | None, host: int
) -> None:
    for other in others:
        other.close()
    os.close(socket_fd)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        host_name = name_of(host)
        when_ends(host_name, stop)
        connection.send((host_name, name_of(os.getpid())))
        script, snakemake, environment, folder = connection.recv()
    except (EOFError, OSError):
        return
    orphans.bound = os.getpid()  # the waiting process watches Snakemake
    with socket.socket(fileno=os.dup(connection.fileno())) as raw:
        _, descriptors, _, _ = socket.recv_fds(raw, 1, 2)
    for descriptor, received in zip((1, 2), descriptors, strict=True):
        os.dup2(received, descriptor)
        os.close(received)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    threading.Thread(target=_forward_signals, args=(connection,), name="signals", daemon=True).start()
    if import_usage is not None:
        charge(import_usage)
    runpy.run_path(script)["main"](snakemake)


def _forward_signals(connection: Connection) -> None:
    with suppress(EOFError, OSError):
        while True:
            os.kill(os.getpid(), connection.recv())
    stop()


if __name__ == "__main__":
    from g2d.jobs import shared_imports  # noqa: PLW0406 -- the instance that other modules import

    shared_imports.main(Path(sys.argv[1]), sys.argv[2])
