"""Snakemake's command line and the jobs below it, forked from processes that have made the imports.

Most of what a dry-run or a small job costs is imports, and the tests run many hundreds. So a test run keeps a process
that has imported what Snakemake and its jobs load, and children of that one that have imported what training and vLLM
need. A call is a fork: the real command line with the call's folder, environment, arguments, output, signals and exit
status, and the same for its jobs (`as_python.py`). The server imports `g2d` from the checkout that projects are copied
from; a call whose copy of `g2d` differs imports that copy.

    python -m tests.workflow.forked FOLDER CHECKOUT IMPORTS...      # `call` starts it

Left out on purpose: calls with variables that Python or a library reads at its start, and calls of Snakemake that a
test stops or kills. They start Python. `test_grid` checks that jobs in new Pythons leave the same bytes.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import pickle
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
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from tests.workflow import accesses
from tests.workflow.as_python import HEAVY, LIGHT, NUMBER, VLLM, ask, receive

REPOSITORY = Path(__file__).parents[2]
AS_PYTHON = Path(__file__).with_name("as_python.py")
IMPORTS = (
    *("snakemake.cli", "snakemake.profiles", "snakemake.report.html_reporter", "snakemake.script", "smart_open", "yte"),
    *("pandas", "pyarrow.parquet", "pydantic", "scipy.stats", "altair", "psutil"),
)
OF_PACKAGE = (
    *("g2d.grid.grid", "g2d.checks.requirements", "g2d.jobs.recover"),
    *("g2d.tables.all_tables", "g2d.tables.results", "g2d.report.page", "g2d.rollouts.pairs"),
)
PACKAGES = ("g2d",)
OF_VLLM = ("vllm.entrypoints.llm", "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.llama")

# ------------------------------------------------------------------------------------------------------ for the tests


def call(arguments: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run `python ARGUMENTS` in a fork; the first argument is `-m` or a script.

    Returns:
        The exit status, as in `subprocess`, and the output.
    """
    ours, theirs = os.pipe()
    with open(ours, encoding="utf-8") as output:
        printed: list[str] = []
        reader = threading.Thread(target=lambda: printed.append(output.read()))
        reader.start()
        try:
            files = {1: theirs, 2: theirs}
            status = ask(f"{_server()}/{LIGHT}", arguments, str(folder), environment, files, hand_on=False)
        finally:
            os.close(theirs)
            reader.join()
    return status, printed[0]


def train(arguments: list[str], folder: Path) -> int:
    """Run a script in a fork that has imported the packages of training; return its exit status."""
    return ask(f"{_server()}/{HEAVY}", arguments, str(folder), dict(os.environ), {1: 1, 2: 2}, hand_on=False)


def python() -> str:
    """Return a replacement of `python` that runs commands in forks with their imports made."""
    return str(_server() / "python")


@cache
def _server() -> Path:
    """Return the folder of the server; the processes of a test run share it."""
    from tests.shared import made_once  # imports pytest, unlike the server

    return Path((made_once("forked", _start) / "folder").read_text())


def _start(place: Path) -> None:
    from g2d.jobs.shared_imports import IMPORTS as OF_JOBS
    from tests.workflow.conftest import checkout

    folder = Path(tempfile.mkdtemp(prefix="g2d-tests-"))  # a socket's name must be short
    python = folder / "python"
    words = (sys.executable, "-IS", AS_PYTHON, sys.executable, folder)
    python.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
    python.chmod(0o755)
    run = os.pidfd_open(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid())
    ready, theirs = os.pipe()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder), str(checkout() / "src"), *OF_JOBS],
        cwd=REPOSITORY,
        env=environment
        # environment of jobs, and of vLLM below our engine
        | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "TORCH_COMPILE_DISABLE": "1"},
        stdin=run,  # can be read when the test run has ended
        stdout=theirs,
    )
    os.close(theirs)
    with open(ready) as line:
        assert line.read() == "ready", "the process with the imports could not start"
    place.mkdir()
    (place / "folder").write_text(str(folder))


# ----------------------------------------------------------------------------------------------------------- the server


def main(folder: Path, source: Path, *heavy: str) -> None:
    """Serve; in a fork, run the command."""
    doors: dict[socket.socket, tuple[str, ...]] = {}
    for name, imports in ((LIGHT, ()), (HEAVY, heavy), (VLLM, (*heavy, *(OF_VLLM if find_spec("vllm") else ())))):
        door = socket.socket(socket.AF_UNIX)
        door.bind(str(folder / name))
        door.listen(128)
        doors[door] = imports
    sys.path.insert(0, str(source))
    _import((*IMPORTS, *OF_PACKAGE))
    _keep_bundle()
    sys.modules["snakemake.cli"].get_argument_parser()  # has Snakemake collect its plugins, a quarter of a dry-run
    sys.modules["yaml"].SafeLoader = sys.modules["yaml"].CSafeLoader  # type: ignore[attr-defined]  # ten times as fast
    _keep_parsed(folder)
    print("ready", end="", flush=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what it forks
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the calls and for who waits for them
    caller = _serve(doors, folder)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.path.remove(str(source))
    program = _take_over(caller, folder / "python", interrupt)
    _use_package(source)
    _end(_status_of(program))


def _status_of(program: str) -> int:
    """Run a script or a module; returns the exit status that Python would have."""
    try:
        if program.endswith(".py"):
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """Exit as Python does, without unloading modules, a step of up to half a second."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status & 0xFF)


def _import(names: tuple[str, ...]) -> None:
    gc.disable()  # a quarter of the time of imports
    for name in names:
        import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()  # children neither scan nor copy these objects
    gc.unfreeze = lambda: None  # an engine of vLLM calls it at its end


def _keep_bundle() -> None:
    """Make vl-convert's JavaScript for the report once (2 CPU seconds), in another process for its threads."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    code = f"import sys, vl_convert; sys.stdout.write(vl_convert.javascript_bundle(vl_version={version!r}))"
    bundle = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8").stdout
    made = vl_convert.javascript_bundle

    def kept(*given: Any, **named: Any) -> str:
        return bundle if not given and named == {"vl_version": version} else made(*given, **named)

    vl_convert.javascript_bundle = kept


def _keep_parsed(folder: Path) -> None:
    """Parse equal Snakefiles of all projects once, a fifth of a dry-run; the result has the file's path in it."""
    from snakemake import workflow

    parse = workflow.parse

    def kept(file: Any, run: Any, linemap: dict[int, int], rulecount: int = 0) -> tuple[str, int]:
        path = repr(file.get_path_or_uri(secret_free=True))
        with run.sourcecache.open(file) as opened:
            made = folder / sha256(f"{rulecount} {opened.read()}".encode()).hexdigest()
        if not made.exists():
            code, count = parse(file, run, linemap=linemap, rulecount=rulecount)
            part = made.with_name(f"{made.name}.{os.getpid()}")
            part.write_bytes(pickle.dumps((code, count, path, linemap)))
            part.rename(made)
        code, count, first, lines = pickle.loads(made.read_bytes())
        linemap.update(lines)
        return code.replace(first, path), count

    workflow.parse = kept


def _serve(doors: dict[socket.socket, tuple[str, ...]], folder: Path) -> socket.socket:
    """Fork for every caller until the tests have ended; returns in the fork, with the connection."""
    while True:
        ready: list[Any] = select.select([0, *doors], [], [])[0]
        if 0 in ready:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        door = ready[0]
        if imports := doors[door]:  # first caller: a child makes the imports and serves this door from now on
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
    header, received, *_ = socket.recv_fds(caller, NUMBER.size, 2)
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
    if accesses.VARIABLE in environment:
        accesses.trace(environment[accesses.VARIABLE])
    tempfile.tempdir = None  # it is remembered from the other environment, and so is the folder:
    sys.modules["snakemake.workflow"].Workflow._rundir = folder  # type: ignore[attr-defined]
    sys.executable = str(python)
    is_module = arguments[0] == "-m"
    sys.argv = arguments[is_module:]
    first = folder if is_module else str(Path(arguments[0]).parent)
    sys.path[:1] = [first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return str(sys.argv[0])


def _use_package(source: Path) -> None:
    """Keep what was imported of the package, as if from the call's copy, if that has the same files; else drop it.

    The copy is in `PYTHONPATH`, or installed from the repository. Files of a copy have the sizes and time stamps of the
    files they were copied from.
    """
    given = Path(os.environ.get("PYTHONPATH", "").partition(os.pathsep)[0])
    copy = given if (given / "g2d").is_dir() else REPOSITORY / "src"
    modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in PACKAGES}
    files = [Path(str(module.__file__)).relative_to(source) for module in modules.values()]
    if copy.is_absolute() and all(_stamp(copy / file) == _stamp(source / file) for file in files):
        for module in modules.values():
            for name in ("__file__", "__path__"):
                if hasattr(module, name):
                    setattr(module, name, _moved(getattr(module, name), source, copy))
    else:
        from snakemake_interface_common.plugin_registry import PluginRegistryBase

        for name in modules:
            del sys.modules[name]
        for registry in PluginRegistryBase.__subclasses__():
            registry._instance = None  # it has the package's logger


def _moved(place: Any, source: Path, copy: Path) -> Any:
    """A file, or the folders of a package, in another copy."""
    if isinstance(place, str):
        return str(copy / Path(place).relative_to(source))
    return [_moved(folder, source, copy) for folder in place]


def _stamp(file: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        stat = file.stat()
        return stat.st_size, stat.st_mtime_ns
    return None


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
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
