"""Replacement of `python` for the processes that a forked Snakemake starts (`tests.workflow.forked`).

    python -IS as_python.py PYTHON FOLDER ARGUMENTS...      # same result as PYTHON ARGUMENTS...

It sends the command to the server that has imported the packages, and exits with the same status. The server forks
jobs, nested calls of Snakemake and processes of shared imports. Other commands, such as the verifier's workers, start
PYTHON.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from typing import Any

NUMBER = struct.Struct("!i")
LIGHT, HEAVY, VLLM = "light", "heavy", "vllm"  # sockets in FOLDER: Snakemake and what its jobs load; torch, TRL; vLLM
DOORS = {
    "snakemake": LIGHT,
    "g2d.jobs.shared_imports": HEAVY,
    "trl.cli.main": HEAVY,
    "vllm.entrypoints.openai.api_server": VLLM,
}
# Scripts that load the packages of a training, or name it, but share no imports with other jobs.
OF_TRAINING = (".pretrained_model.py", ".record_provenance.py")
DOOR_OF_SCRIPTS = "G2D_TESTS_DOOR"  # variable, used if no shared imports of the run make it cheap to train
HANDED_ON = (signal.SIGTERM, signal.SIGINT)


def ask(
    door: str, arguments: list[str], folder: str, environment: dict[str, str], files: dict[int, int], hand_on: bool
) -> int:
    """Run a command in a fork of another process.

    Args:
        door: socket of that process.
        arguments: `-m` and a module, or a script, and its arguments.
        folder: working directory.
        environment: the whole environment.
        files: file descriptors of this process, by the fork's descriptors; includes 1 and 2.
        hand_on: forward termination signals of this process to the fork.

    Returns:
        Its exit status, as in `subprocess`.
    """
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(door)
        request = json.dumps([arguments, folder, environment, [*files]]).encode()
        socket.send_fds(server, [NUMBER.pack(len(request))], [*files.values()])
        server.sendall(request)

        def pass_on(number: int, _: Any) -> None:
            server.sendall(bytes([number]))

        for number in HANDED_ON if hand_on else ():
            signal.signal(number, pass_on)
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
    words = arguments[arguments[:1] == ("-u",) :]  # output is unbuffered anyway
    door = door_of(words)
    if door is None:
        os.execv(python, [python, *arguments])
    here = os.getcwd()  # noqa: PTH109
    status = ask(f"{folder}/{door}", list(words), here, dict(os.environ), {1: 1, 2: 2}, hand_on=True)
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def door_of(arguments: tuple[str, ...]) -> str | None:
    """Return the socket of the process that has this command's imports; None to start Python."""
    if "HF_ENDPOINT" in os.environ:
        return None  # huggingface_hub reads it when it is imported
    if arguments[:2] == ("-m", "snakemake") and "SLURM_STEP_ID" in os.environ:
        return None  # Slurm sends its signals to what it started
    if arguments[:1] == ("-m",):
        return DOORS.get(arguments[1])
    if arguments and "/.snakemake/scripts/" in arguments[0]:
        if arguments[0].endswith(OF_TRAINING):
            return HEAVY
        with open(arguments[0], "rb") as script:  # begins with the job's settings
            return VLLM if b"vllm" in script.read() else os.environ.get(DOOR_OF_SCRIPTS, LIGHT)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
