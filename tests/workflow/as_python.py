"""What stands in for `python` below a call that `tests.workflow.forked` forks: it hands what it is asked to run to the
process that has made the imports, and ends as that ends.

    python -IS as_python.py PYTHON FOLDER ARGUMENTS...      as PYTHON ARGUMENTS...; nobody types it

That process forks jobs, nested calls of Snakemake, and the process whose imports the jobs of a run share. Everything
else, such as the verifier's workers, is a start of PYTHON.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys

NUMBER = struct.Struct("!i")
LIGHT, HEAVY = "light", "heavy"  # sockets in FOLDER: Snakemake and what its jobs load; torch, TRL


def ask(door: str, arguments: list[str], folder: str, environment: dict[str, str], output: list[int]) -> int:
    """Have a command run in a fork of another process.

    Args:
        door: where that process listens.
        arguments: of Python: `-m` and a module, or a script, and what follows.
        folder: where it runs.
        environment: all of it.
        output: file descriptors of its standard output and standard error.

    Returns:
        Its exit status, as `subprocess` says it.
    """
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(door)
        said = json.dumps([arguments, folder, environment]).encode()
        socket.send_fds(server, [NUMBER.pack(len(said))], output)
        server.sendall(said)
        return int(NUMBER.unpack(receive(server, NUMBER.size))[0])


def receive(connection: socket.socket, n: int) -> bytes:
    """The next n bytes.

    Raises:
        EOFError: the other end has closed.
    """
    received = b""
    while len(received) < n:
        more = connection.recv(n - len(received))
        if not more:
            raise EOFError("the other process has ended")
        received += more
    return received


def main(python: str, folder: str, *arguments: str) -> None:
    """Run a command of Python and end as it ends."""
    what = arguments[1] if arguments[:1] == ("-m",) else "".join(arguments[:1])
    if what == "g2d.jobs.shared_imports":
        door = HEAVY
    elif what == "snakemake" or "/.snakemake/scripts/" in what:
        door = LIGHT
    else:
        os.execv(python, [python, *arguments])
    status = ask(f"{folder}/{door}", list(arguments), os.getcwd(), dict(os.environ), [1, 2])  # noqa: PTH109
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
