"""Snakemake's command line and the jobs below it, forked from processes that have made the imports.

Most of what a dry-run or a small job costs is imports, and the tests run many hundreds. So every process of tests keeps
one that has imported what Snakemake and its jobs load, and children of that one that have imported what training and
vLLM need. A call is a fork: the real command line with the call's own folder, environment, arguments, output, signals
and exit status, and the same for its jobs (`as_python.py`). `g2d` is not among the imports: each project has its own.

    python -m tests.workflow.forked FOLDER IMPORTS...       what `call` starts; nobody types it

Left out on purpose: calls with variables that a library reads when it is imported, and calls that a test stops or
kills: they are starts of Python, as everything is that no test calls through `Project.snakemake` or `train`. The micro
grid, which most tests look at, is made by starts of Python alone.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from tests.workflow.as_python import HEAVY, LIGHT, NUMBER, VLLM, ask, receive

REPOSITORY = Path(__file__).parents[2]
AS_PYTHON = Path(__file__).with_name("as_python.py")
IMPORTS = (
    *("snakemake.cli", "snakemake.profiles", "snakemake.report.html_reporter", "snakemake.script", "smart_open", "yte"),
    *("pandas", "pyarrow.parquet", "pydantic", "scipy.stats", "altair", "psutil"),
)
OF_VLLM = ("vllm.entrypoints.llm", "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.llama")

# ------------------------------------------------------------------------------------------------------ for the tests


def call(arguments: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """As `python -m snakemake` in that folder and environment.

    Returns:
        Its exit status, as `subprocess` says it, and what it printed.
    """
    ours, theirs = os.pipe()
    with open(ours, encoding="utf-8") as output:
        printed: list[str] = []
        reader = threading.Thread(target=lambda: printed.append(output.read()))
        reader.start()
        try:
            command = ["-m", "snakemake", *arguments]
            files = {1: theirs, 2: theirs}
            status = ask(f"{_server()}/{LIGHT}", command, str(folder), environment, files, hand_on=False)
        finally:
            os.close(theirs)
            reader.join()
    return status, printed[0]


def train(arguments: list[str], folder: Path) -> int:
    """As `python` with these arguments, a script first, in that folder; what training needs is imported already.

    Returns:
        Its exit status, as `subprocess` says it.
    """
    return ask(f"{_server()}/{HEAVY}", arguments, str(folder), dict(os.environ), {1: 1, 2: 2}, hand_on=False)


def python() -> str:
    """What a process of tests may start in the place of Python: what it forks has made its imports."""
    return str(_server() / "python")


@cache
def _server() -> Path:
    """The folder of this process's own two, which end with it."""
    from g2d.jobs.shared_imports import IMPORTS as OF_JOBS

    folder = Path(tempfile.mkdtemp(prefix="g2d-tests-"))  # a socket's name must be short
    python = folder / "python"
    words = (sys.executable, "-IS", AS_PYTHON, sys.executable, folder)
    python.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
    python.chmod(0o755)
    ready, theirs = os.pipe()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder), *(name for name in OF_JOBS if not name.startswith("g2d."))],
        cwd=REPOSITORY,
        env=environment
        # as jobs have it, and as an engine of ours leaves torch before it imports vLLM
        | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "TORCH_COMPILE_DISABLE": "1"},
        stdin=subprocess.PIPE,
        stdout=theirs,
    )
    _kept.append(server)
    os.close(theirs)
    with open(ready) as said:
        assert said.read() == "ready", "the process with the imports could not start"
    return folder


_kept: list[subprocess.Popen[bytes]] = []  # its standard input tells it when this process ends

# ----------------------------------------------------------------------------------------------------------- the server


def main(folder: Path, *heavy: str) -> None:
    """Serve; in a fork, be the process that was asked for."""
    doors: dict[socket.socket, tuple[str, ...]] = {}
    for name, imports in ((LIGHT, ()), (HEAVY, heavy), (VLLM, (*heavy, *(OF_VLLM if find_spec("vllm") else ())))):
        door = socket.socket(socket.AF_UNIX)
        door.bind(str(folder / name))
        door.listen(128)
        doors[door] = imports
    _import(IMPORTS)
    print("ready", end="", flush=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what it forks
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the calls and for who waits for them
    caller = _serve(doors, folder)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    what = _take_over(caller, folder / "python", interrupt)
    if what.endswith(".py"):
        runpy.run_path(what, run_name="__main__")
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        import_module(name)
    gc.collect()
    gc.freeze()  # what is here for good is neither looked at nor copied by a child
    gc.unfreeze = lambda: None  # as the end of an engine of vLLM would have it


def _serve(doors: dict[socket.socket, tuple[str, ...]], folder: Path) -> socket.socket:
    """Fork for every caller until the tests have ended; returns in the fork, with the connection."""
    while True:
        ready, _, _ = select.select([0, *doors], [], [])
        if 0 in ready:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        door = ready[0]
        if imports := doors[door]:  # its first caller: from now on a child, which makes them, serves this door
            if os.fork() == 0:
                _close(other for other in doors if other is not door)
                doors = {door: ()}
                _import(imports)
            else:
                del doors[door]
                door.close()
            continue
        caller, _ = door.accept()
        if os.fork() == 0:
            _close(doors)
            return caller
        caller.close()


def _close(doors: Iterable[socket.socket]) -> None:
    for door in doors:
        door.close()


def _take_over(caller: socket.socket, python: Path, interrupt: Any) -> str:
    """Fork once more, so that somebody can tell the caller how it ends; returns what the child is to run."""
    header, received, *_ = socket.recv_fds(caller, NUMBER.size, 3)
    arguments, folder, environment, numbers = json.loads(receive(caller, NUMBER.unpack(header)[0]))
    if child := os.fork():
        for descriptor in received:
            os.close(descriptor)
        _keep(child, caller)
    caller.close()
    signal.signal(signal.SIGINT, interrupt)
    files = dict(zip((0, *numbers), (os.open(os.devnull, os.O_RDONLY), *received), strict=True))
    above = max(*files, *files.values()) + 1  # out of each other's way
    kept = {number: fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for number, descriptor in files.items()}
    for descriptor in files.values():
        os.close(descriptor)
    for number, descriptor in kept.items():
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # it is remembered from the other environment, and so is the folder:
    sys.modules["snakemake.workflow"].Workflow._rundir = folder  # type: ignore[attr-defined]
    sys.executable = str(python)
    is_module = arguments[0] == "-m"
    sys.argv = arguments[is_module:]
    first = folder if is_module else str(Path(arguments[0]).parent)
    sys.path[:1] = [first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return str(sys.argv[0])


def _keep(child: int, caller: socket.socket) -> NoReturn:
    """Tell the caller how the child ended, and the child which signals the caller gets; should that end, so does it."""

    def tell() -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(OSError):
            caller.sendall(NUMBER.pack(status))
        os._exit(0)

    threading.Thread(target=tell).start()
    with suppress(OSError):
        while number := caller.recv(1):
            os.kill(child, number[0])
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
