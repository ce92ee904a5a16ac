"""Shared processes: which jobs and users may use them, and cleaning up after killed ones."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Client
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from g2d.jobs.orphans import RUN, name_of
from g2d.jobs.run_process import accept, current_run, greeted, listen, only_one

ASK = [sys.executable, "-c", "from g2d.jobs.run_process import current_run; print(current_run())"]


def test_jobs_in_separate_containers_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that outlives its job would lose the files of the job's image."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a user may not unshare mounts here")
    monkeypatch.setenv(RUN, name_of(os.getpid()))
    assert current_run() == name_of(os.getpid())
    assert [subprocess.check_output([*how, *ASK], text=True).strip() for how in ([], unshare)] == [
        current_run(),
        "None",
    ]


# ------------------------------------------------------------------------------------------- other users of the machine

NOBODY = 65534
as_nobody = pytest.mark.skipif(os.getuid() != 0, reason="only root may be another user")


@pytest.fixture
def socket() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="g2d-test-", dir="/tmp") as folder:  # a socket's name must be short
        yield Path(folder) / "0123456789abcdef.socket"


def connect_as_nobody(socket: Path) -> str:
    """Connect as another user; return the first message or the error's type."""
    code = (
        "import os, sys; from multiprocessing.connection import Client\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "try: print(Client(sys.argv[1], 'AF_UNIX').recv())\n"
        "except Exception as error: print(type(error).__name__)"
    )
    return subprocess.check_output([sys.executable, "-S", "-c", code, str(socket)], text=True).strip()


@as_nobody
def test_another_user_cannot_connect(socket: Path) -> None:
    with listen(socket):
        assert connect_as_nobody(socket) == "PermissionError"
        socket.parent.chmod(0o777)  # the socket is closed too
        assert connect_as_nobody(socket) == "PermissionError"


@as_nobody
def test_a_connection_of_another_user_is_refused_and_the_next_one_served(socket: Path) -> None:
    with listen(socket) as listener:
        socket.parent.chmod(0o777)
        socket.chmod(0o777)
        accepted: list[Any] = []
        server = Thread(target=lambda: accepted.extend(accept(listener) for _ in range(2)))
        server.start()
        assert connect_as_nobody(socket) == "EOFError"
        with Client(str(socket), "AF_UNIX"):
            server.join()
        assert accepted[0] is None
        accepted[1].close()


@as_nobody
def test_messages_of_another_user_are_not_read(socket: Path) -> None:
    socket.parent.chmod(0o777)
    code = (
        "import os, sys; from multiprocessing.connection import Listener\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "with Listener(sys.argv[1], 'AF_UNIX') as listener:\n"
        "    print(flush=True)\n"
        "    listener.accept().send('pickled')\n"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", code, str(socket)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(RuntimeError, match=f"user {NOBODY} listens there"):
            greeted(socket)


# ---------------------------------------------------------------------------------------------- what killed ones leave


def test_files_of_killed_processes_are_removed_by_the_next(socket: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from g2d.jobs.run_process import listen, only_one\n"
        "socket = Path(sys.argv[1]); lock = only_one(socket.with_suffix('.lock')); listener = listen(socket)\n"
        "print(flush=True); time.sleep(600)"
    )
    folder, lives, killed = socket.parent, socket, socket.with_name("fedcba9876543210.socket")
    processes = []
    for file in (lives, killed):
        command = [sys.executable, "-c", code, str(file)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert processes[-1].stdout is not None
        processes[-1].stdout.readline()
    try:
        processes[1].kill()
        processes[1].wait()
        (folder / "gpu-here-0.lock").touch()  # its holder only looks at its name
        assert killed.exists()
        lock = only_one(folder / "0000000000000000.lock")
        assert lock is not None
        with lock:
            assert only_one(lives.with_suffix(".lock")) is None
            left = {file.name for file in folder.iterdir()}
            assert left == {"0000000000000000.lock", lives.name, lives.with_suffix(".lock").name, "gpu-here-0.lock"}
        processes[0].kill()
        processes[0].wait()
        lock = only_one(lives.with_suffix(".lock"))  # a lock of the same run
        assert lock is not None
        lock.close()
    finally:
        for process in processes:
            process.kill()
            process.communicate()
