"""Processes that jobs share, one per machine, run, purpose and set of visible GPUs.

The first job starts one as `python -m MODULE SOCKET RUN`; others find its socket. Messages are unpickled, so folder
and socket are closed to other users, and each end checks the other's user.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket as sockets
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import IO, Any

from g2d.jobs.orphans import RUN, has_ended
from g2d.plain import say

QUEUE = 512  # jobs that may wait
LOCKS = "[0-9a-f]" * 16 + ".lock"  # locks of GPUs have other names
LONGEST_NAME = 107  # bytes of a socket's path, on Linux
OTHER_FOLDER = "set XDG_RUNTIME_DIR or TMPDIR to a folder that is yours and has a short name"


def current_run() -> str | None:
    """Return the name of the Snakemake whose jobs may share processes.

    None if each job has a container: a shared process would lose the image's files.
    """
    run = os.environ.get(RUN)
    if run is None or has_ended(run) is not False:
        return None
    pid = run.partition(" ")[0]
    try:
        sees_same_files = Path(f"/proc/{pid}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return None
    return run if sees_same_files else None


def own_folder(lasting: bool = False) -> Path:
    """Return a folder that only this user can enter, with `lasting` one that stays after the user logs out."""
    parent = "" if lasting else os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.access(parent, os.W_OK):  # it may be inherited from another machine
        parent = tempfile.gettempdir()
    folder = Path(parent) / f"g2d-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise RuntimeError(f"{folder}: cannot be made ({error.strerror}): {OTHER_FOLDER}") from None
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise RuntimeError(f"{folder}: must be a folder of yours that nobody else can enter: remove it or chmod 700")
    return folder


def socket_of(run: str, purpose: str) -> Path:
    folder = own_folder()
    identity = f"{run}/{os.environ.get('CUDA_VISIBLE_DEVICES')}/{purpose}"
    socket = folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.socket"
    if len(os.fsencode(socket)) > LONGEST_NAME:
        raise RuntimeError(f"{folder}: too long for a socket, which may have {LONGEST_NAME} bytes: {OTHER_FOLDER}")
    return socket


def greeted(socket: Path) -> tuple[Connection, Any] | None:
    """Return a connection and the first message; None without a process, a RuntimeError if it is another user's."""
    try:
        connection = Client(str(socket), "AF_UNIX")
        user = _user_of(connection)
        if user != os.getuid():
            connection.close()
            raise RuntimeError(f"{socket}: a process of user {user} listens there: {OTHER_FOLDER}")
        return connection, connection.recv()
    except (FileNotFoundError, ConnectionError, EOFError):
        return None


def connect(module: str, socket: Path, run: str, output: IO[str]) -> tuple[Connection, Any]:
    """Return the result of `greeted`, starting a process if none listens; a RuntimeError if it cannot start.

    `output` is its standard output and error.
    """
    command = [sys.executable, "-m", module, str(socket), run]
    started: subprocess.Popen[bytes] | None = None
    while True:
        connected = greeted(socket)
        if connected is not None:
            return connected
        if started is not None and started.poll():
            raise RuntimeError(f"the process of {module} could not start (exit status {started.returncode})")
        if started is None or started.poll() == 0:  # 0: another process had the lock; it may have ended by now
            # A new session, because the process outlives this job.
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        time.sleep(0.05)


def listen(socket: Path) -> Listener:
    socket.unlink(missing_ok=True)
    listener = Listener(str(socket), "AF_UNIX", backlog=QUEUE)
    socket.chmod(0o600)
    return listener


def accept(listener: Listener) -> Connection | None:
    """Accept a connection; None if it was another user's."""
    connection = listener.accept()
    user = _user_of(connection)
    if user == os.getuid():
        return connection
    connection.close()
    say(f"{listener.address}: a connection of user {user} was refused", file=sys.stderr)
    return None


def _user_of(connection: Connection) -> int:
    with sockets.socket(fileno=os.dup(connection.fileno())) as raw:
        credentials = struct.Struct("3i")
        _, user, _ = credentials.unpack(raw.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, credentials.size))
    return int(user)


def only_one(file: Path) -> IO[str] | None:
    """Return the lock of the shared process, None if another has it. Clean up after killed processes."""
    lock = _locked(file, "a")
    if lock is None:
        return None
    for other in file.parent.glob(LOCKS):
        if other == file:
            continue
        left = _locked(other, "r+")
        if left is not None:
            with left:  # a process that waits for this lock sees that its file is gone
                other.with_suffix(".socket").unlink(missing_ok=True)
                other.unlink(missing_ok=True)
    return lock


def _locked(file: Path, mode: str) -> IO[str] | None:
    lock: IO[str] | None = None
    with suppress(OSError):  # another process has it, or has just removed the file
        lock = open(file, mode)  # noqa: SIM115 -- held for life
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock: a fork would keep it
        if os.path.samestat(os.fstat(lock.fileno()), file.stat()):
            return lock
    if lock is not None:
        lock.close()
    return None
