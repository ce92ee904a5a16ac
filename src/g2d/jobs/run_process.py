"""Processes that the jobs of one Snakemake run share: found by a socket, started by the first job that needs one.

    python -m MODULE SOCKET RUN ...       started by a job

There is one per machine, run, purpose and set of visible GPUs: it holds a file lock, and ends with its Snakemake. The
folder of socket and lock is closed to other users, so messages can be unpickled.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import select
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import IO, Any

from g2d.jobs.orphans import RUN, has_ended

QUEUE = 512  # jobs that may wait
LONGEST_NAME = 107  # bytes of a socket's path, on Linux
OTHER_FOLDER = "set XDG_RUNTIME_DIR or TMPDIR to a folder that is yours and has a short name"


def current_run() -> str | None:
    """Name of the Snakemake whose jobs may share a process; None without one, and where it cannot be watched.

    None also where every job has a container of its own: a shared process would lose the files of the image.
    """
    run = os.environ.get(RUN)
    return run if run is not None and has_ended(run) is False and _sees_files_of(run) else None


def _sees_files_of(run: str) -> bool:
    """Whether a process has the mounts of this one; False where that is hidden, as in a container."""
    try:
        return Path(f"/proc/{run.partition(' ')[0]}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False


def own_folder() -> Path:
    """A folder for sockets and locks that no other user can enter; a RuntimeError if it cannot be made or belongs to
    somebody else."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")  # a job may inherit it from another machine
    folder = Path(runtime if os.access(runtime, os.W_OK) else tempfile.gettempdir()) / f"g2d-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise RuntimeError(f"{folder}: cannot be made ({error.strerror}): {OTHER_FOLDER}") from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise RuntimeError(f"{folder}: must be a folder of yours that nobody else can enter: remove it or chmod 700")
    return folder


def socket_of(run: str, purpose: str = "engine") -> Path:
    """Where the shared process for this run, purpose and the GPUs this process sees listens; a RuntimeError as
    `own_folder`, or where its name is too long for a socket."""
    folder = own_folder()
    identity = f"{run}/{os.environ.get('CUDA_VISIBLE_DEVICES')}/{purpose}"
    socket = folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.socket"
    if len(os.fsencode(socket)) > LONGEST_NAME:
        raise RuntimeError(f"{folder}: too long for a socket, which may have {LONGEST_NAME} bytes: {OTHER_FOLDER}")
    return socket


def greeted(socket: Path) -> tuple[Connection, Any] | None:
    """Connection to a shared process, when it accepts ours, and its first message; None if no process listens."""
    try:
        connection = Client(str(socket), "AF_UNIX")
        return connection, connection.recv()
    except (FileNotFoundError, ConnectionError, EOFError):
        return None


def connect(
    module: str, socket: Path, run: str, *arguments: object, output: IO[Any] | None = None
) -> tuple[Connection, Any]:
    """As `greeted`, but a process that does not listen is started and waited for; a RuntimeError if it cannot be.

    Args:
        module: what it runs.
        arguments: further words of its command line, behind socket and run (`current_run`).
        output: where it prints; None: where this process prints.
    """
    command = [sys.executable, "-m", module, str(socket), run, *map(str, arguments)]
    started: subprocess.Popen[bytes] | None = None
    while (found := greeted(socket)) is None:
        if started is not None and started.poll():
            raise RuntimeError(f"the process of {module} could not start (exit status {started.returncode})")
        if started is None or started.poll() == 0:  # 0: there was another, which may have ended by now
            # A session of its own: it outlives this job.
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        time.sleep(0.05)
    return found


def listen(socket: Path) -> Listener:
    """Listen on a socket; the file that a killed process has left is replaced."""
    socket.unlink(missing_ok=True)
    return Listener(str(socket), "AF_UNIX", backlog=QUEUE)


def only_one(file: Path) -> IO[str] | None:
    """The lock of the shared process, held until it ends; None if another process has it."""
    lock = open(file, "w")  # noqa: SIM115 -- held for life
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a fork would keep one of flock
        return lock if os.path.samestat(os.fstat(lock.fileno()), file.stat()) else None
    except OSError:  # it is taken, or its holder has removed the file
        return None


def release() -> None:
    """End the run's shared engine, if there is one, so that the GPU is free on return."""
    run = current_run()
    found = None if run is None else greeted(socket_of(run))
    if found is None:
        return
    connection, (host, _) = found
    with connection:
        try:
            process = os.pidfd_open(host)
            connection.send(("leave", ()))
        except OSError:  # it has ended already
            return
        select.select([process], [], [])
        os.close(process)
