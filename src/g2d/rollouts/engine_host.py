"""One process with a running vLLM engine that the jobs of a Snakemake run use one after another.

Every evaluation is a job and a file of its own, so that each is cached by itself; nearly all the time of a small one is
the import and the start of vLLM. With `engine.keep_alive` the first job that generates starts this process, and later
ones ask it instead of an engine of their own:

    python -m g2d.rollouts.engine_host SOCKET RUN KEEP_ALIVE       what a job starts; nobody types it

It does what the job would have done itself, with the same `VllmEngine`, so that a result does not depend on who
generated. Adapters that are applied are exchanged in the running engine (milliseconds). M0 and every merged policy have
an engine of their own, started in turn in this process, which saves the import only.

It ends when nobody has asked for `keep_alive` seconds, when its Snakemake ends however it ends, or when a job needs the
GPU for something else (`run_process.release`). A connection is a job's turn, and the others queue at the socket. How a
run's one process is found, started and guarded stands in `g2d.jobs.run_process`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from g2d.jobs.orphans import RUN, watched
from g2d.jobs.run_process import connect, listen, only_one, socket_of
from g2d.jobs.usage import Elsewhere, charge, this_process
from g2d.policies.policy import Policy
from g2d.problems.prompts import Messages
from g2d.rollouts.engine import Completion, Decoding, Request
from g2d.rollouts.settings import EngineSettings

if TYPE_CHECKING:
    from g2d.rollouts.vllm_engine import VllmEngine


# ---------------------------------------------------------------------------------------------------------- for jobs


class SharedEngine:
    """The engine of the run's host, with the interface of an own one; no torch or transformers in this process.

    Args:
        policy: M0 with or without an adapter.
        settings: how to run it.
        run: see `run_process.current_run`.

    Raises:
        ValueError: (by `render` and `generate`) what `VllmEngine` would raise.
        RuntimeError: (by `render` and `generate`) the engine failed, or its process died.
    """

    name = "vllm"

    def __init__(self, policy: Policy, settings: EngineSettings, run: str) -> None:
        self.policy = policy
        self.settings = settings
        self.run = run
        self._turn: Turn | None = None

    def render(self, messages: Messages) -> str:
        """The conversation in the model's chat template, ready for the assistant's turn."""
        return str(self._ask("render", messages))

    def document(self, text: str) -> str:
        """A text as the beginning of a document."""
        return str(self._ask("document", text))

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """Complete every request in one call, and let the next job have its turn."""
        if not requests:
            return []
        completions: list[list[Completion]] = self._ask("generate", list(requests), decoding)
        self._end_turn()
        return completions

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            if self._turn is None:
                self._turn = Turn(self.run, self.settings.keep_alive)
                self._turn.ask("open", self.policy, self.settings, int(os.environ.get("OMP_NUM_THREADS", "0")))
            return self._turn.ask(method, *arguments)
        except (ValueError, RuntimeError):
            self._end_turn()
            raise

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.connection.close()
            self._turn = None


class Turn:
    """A connection to the host of a run, made when its turn has come; a host is started where there is none.

    Raises:
        RuntimeError: the host could not be started.
    """

    def __init__(self, run: str, keep_alive: int) -> None:
        # What the host prints goes where this job prints.
        self.connection, (self.host, self.log) = connect(__name__, socket_of(run), run, keep_alive)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Have the host run one of its methods.

        Raises:
            RuntimeError: it died, or its engine failed; the message says where it wrote why.
        """
        try:
            self.connection.send((method, arguments))
            succeeded, answer, spent = self.connection.recv()
        except (EOFError, OSError):
            raise RuntimeError(
                f"the shared engine (process {self.host}) died, its output is in {self.log}: "
                "run again, which starts another, or set engine.keep_alive: 0"
            ) from None
        charge(spent)
        if not succeeded:
            raise answer
        return answer


# ----------------------------------------------------------------------------------------------------------- the host


class Host:
    """The process that holds the engine. Jobs ask for `open`, `render`, `document`, `generate` and `leave`."""

    def __init__(self, socket: Path, run: int, keep_alive: int, lock: IO[str]) -> None:
        self._socket = socket
        self._run = run
        self._keep_alive = keep_alive
        self._lock = lock
        self._scratch = tempfile.TemporaryDirectory(prefix="g2d-engine-", ignore_cleanup_errors=True)  # merged weights
        tempfile.tempdir = self._scratch.name
        self._listener = listen(socket)
        self._guard = threading.Lock()  # between the end of idleness and the end of the process
        self._idle_since: float | None = time.monotonic()
        self._billed = 0.0  # CPU seconds
        self._engine: VllmEngine | None = None
        self._holds: object = None

    def serve(self) -> NoReturn:
        """One job after another, until `leave`."""
        signal.signal(signal.SIGTERM, lambda *_: self.leave())
        threading.Thread(target=self._watch, daemon=True).start()
        while True:
            connection = self._listener.accept()
            with self._guard:
                self._idle_since = None
            try:
                with connection:
                    self._serve(connection)
            except (EOFError, ConnectionError):
                pass  # the job has what it wanted, or died
            self._idle_since = time.monotonic()

    def _serve(self, connection: Connection) -> None:
        connection.send((os.getpid(), str(Path("/proc/self/fd/2").readlink())))
        while True:
            method, arguments = connection.recv()
            answer: Any = None
            failed: Exception | None = None
            try:
                answer = getattr(self, method)(*arguments)
            except ValueError as error:
                failed = ValueError(str(error))
            except Exception as error:
                traceback.print_exc()
                failed = RuntimeError(f"{type(error).__name__}: {error}")
            connection.send((failed is None, failed or answer, self._spent()))
            if isinstance(failed, RuntimeError):
                self.leave()  # who knows what state vLLM is in: a retry starts afresh

    def open(self, policy: Policy, settings: EngineSettings, threads: int) -> None:
        """Hold a policy, in the running engine if that is the one the job would have started itself."""
        from g2d.rollouts.vllm_engine import VllmEngine

        self._keep_alive = settings.keep_alive
        if threads:
            import torch

            torch.set_num_threads(threads)
        wanted = VllmEngine(policy, settings)
        merged = policy.adapter if wanted.merges else None
        needs = (
            [fingerprint(folder) for folder in (policy.base, merged) if folder is not None],
            wanted.max_lora_rank,
            settings.model_dump(exclude={"keep_alive", "shards"}),
        )
        if self._engine is None or needs != self._holds:
            self._engine, self._holds = wanted, needs  # the start of the new one closes the old one
        elif policy.adapter is not None and merged is None:
            self._engine.use_adapter(policy.adapter)
        self._engine.forget_prompts()

    def render(self, messages: Messages) -> str:
        """See `SharedEngine`."""
        assert self._engine is not None
        return self._engine.render(messages)

    def document(self, text: str) -> str:
        """See `SharedEngine`."""
        assert self._engine is not None
        return self._engine.document(text)

    def generate(self, requests: list[Request], decoding: Decoding) -> list[list[Completion]]:
        """See `SharedEngine`."""
        assert self._engine is not None
        return self._engine.generate(requests, decoding)

    def leave(self) -> NoReturn:
        """End now, from whichever thread, with nothing left behind."""
        self._socket.unlink(missing_ok=True)
        self._scratch.cleanup()
        Path(self._lock.name).unlink(missing_ok=True)  # last: from here on another may be the host
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _watch(self) -> None:
        while not select.select([self._run], [], [], min(1, self._keep_alive))[0]:
            with self._guard:
                if self._idle_since is not None and time.monotonic() - self._idle_since > self._keep_alive:
                    self.leave()
        self.leave()

    def _spent(self) -> Elsewhere:
        """What this process has used since it last said so. The job that starts it pays for its start."""
        now = this_process()
        before, self._billed = self._billed, now.cpu_s
        return replace(now, cpu_s=now.cpu_s - before)


def fingerprint(folder: str | Path) -> tuple[object, ...]:
    """What tells the weights in a folder from others without reading them.

    Path, sizes, inodes and times of the last change; those of content, which `cp -p` and `touch` set, are no evidence.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    found = ((file.name, (s := file.stat()).st_size, s.st_ino, s.st_ctime_ns) for file in files)
    return str(Path(folder).resolve()), *found


def main(socket: Path, run: str, keep_alive: int) -> None:
    """Be the host, unless there is one."""
    os.environ.pop(RUN, None)  # in here nobody shares, and nobody asks for a release
    ends_with = watched(run)
    lock = only_one(socket.with_suffix(".lock"))
    if lock is not None and ends_with is not None:
        Host(socket, ends_with, keep_alive, lock).serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
