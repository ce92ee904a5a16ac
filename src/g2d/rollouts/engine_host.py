"""One process with a running vLLM engine that the jobs of a Snakemake run use one after another (`engine.keep_alive`).

    python -m g2d.rollouts.engine_host SOCKET RUN KEEP_ALIVE       started by the first job that generates

A connection is a job's turn. The process ends when no job has asked for `keep_alive` seconds, when its Snakemake ends,
or when a job needs the GPU for something else (`run_process.release`). Which policies share the engine:
docs/architecture.md.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from g2d.jobs.digests import identity
from g2d.jobs.orphans import RUN, when_ends
from g2d.jobs.run_process import accept, connect, listen, name_scratch, only_one, socket_of
from g2d.policies.policy import Policy
from g2d.rollouts.remote_engine import Holder, RemoteEngine
from g2d.rollouts.settings import EngineSettings

if TYPE_CHECKING:
    from g2d.problems.prompts import Messages
    from g2d.rollouts.engine import Completion, Decoding, Request
    from g2d.rollouts.vllm_engine import VllmEngine


# ---------------------------------------------------------------------------------------------------------- for jobs


class SharedEngine:
    """The engine of the run's host, asked as an own one; no torch or transformers in this process. `expected` are the
    adapter_rank and longest of `engine_for`."""

    name = RemoteEngine.name

    def __init__(self, run: str, policy: Policy, settings: EngineSettings, *expected: int | None) -> None:
        self._run, self._keep_alive = run, settings.keep_alive
        self._opened = policy, settings, *expected
        self._turn: Turn | None = None

    def render(self, shown: Messages | str) -> str:
        """As `Engine`."""
        return str(self._ask("render", shown))

    def request(self, problem_id: str, shown: Messages | str) -> Request:
        """As `Engine`."""
        made: Request = self._ask("request", problem_id, shown)
        return made

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """As `Engine`; the job's turn ends."""
        answer: list[list[Completion]] = self._ask("generate", requests, decoding)
        return answer

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Ask in this job's turn, which ends with the answer, unless a request was made: a generation follows."""
        ends = True
        try:
            if self._turn is None:
                self._turn = Turn(self._run, self._keep_alive)
                self._turn.ask("open", *self._opened, int(os.environ.get("OMP_NUM_THREADS", "0")))
            answer = self._turn.ask(method, *arguments)
            ends = method != "request"
            return answer
        finally:
            if ends and self._turn is not None:
                self._turn.connection.close()
                self._turn = None


class Turn(RemoteEngine):
    """A connection to the host of a run, made when its turn has come; a host is started where there is none, or a
    RuntimeError says that it could not be."""

    def __init__(self, run: str, keep_alive: int) -> None:
        # What the host prints goes where this job prints.
        connection, (self.host, log) = connect(__name__, socket_of(run), run, keep_alive)
        died = f"the shared engine (process {self.host}) died, its output is in {log}: "
        super().__init__(connection, died + "run again, which starts another, or set engine.keep_alive: 0")


# ----------------------------------------------------------------------------------------------------------- the host


class Host(Holder):
    """The process that holds the engine, for one job after another."""

    engine: VllmEngine | None

    def __init__(self, socket: Path, keep_alive: int, lock: IO[str]) -> None:
        super().__init__()
        self._socket = socket
        self._keep_alive = keep_alive
        self._lock = lock
        self._scratch = tempfile.TemporaryDirectory(prefix="g2d-engine-", ignore_cleanup_errors=True)  # merged weights
        name_scratch(lock, self._scratch.name)
        tempfile.tempdir = self._scratch.name
        self._listener = listen(socket)
        self._guard = threading.Lock()  # between the end of idleness and the end of the process
        self._idle_since: float | None = time.monotonic()
        self._holds: object = None

    def serve(self) -> NoReturn:
        """One job after another, until `leave`."""
        signal.signal(signal.SIGTERM, lambda *_: self.leave())
        threading.Thread(target=self._end_when_idle, daemon=True).start()
        while True:
            if (connection := accept(self._listener)) is None:
                continue
            with self._guard:
                self._idle_since = None
            with suppress(EOFError, ConnectionError), connection:  # the job has what it wanted, or died
                connection.send((os.getpid(), str(Path("/proc/self/fd/2").readlink())))
                self.answer(connection)
                self.leave()  # a retry starts afresh
            self._idle_since = time.monotonic()

    def open(
        self, policy: Policy, settings: EngineSettings, adapter_rank: int | None, longest: int, threads: int
    ) -> None:
        """Hold a policy, in the running engine if that can have it."""
        from g2d.rollouts.vllm_engine import VllmEngine, merges_adapters

        self._keep_alive = settings.keep_alive
        if threads:
            import torch

            torch.set_num_threads(threads)
        merges = merges_adapters(settings)
        wanted = VllmEngine(policy, settings, adapter_rank=None if merges else adapter_rank, longest_completion=longest)
        merged = policy.adapter if merges else None
        needs = (
            [fingerprint(folder) for folder in (policy.model_folder, merged) if folder is not None],
            wanted.max_lora_rank,
            settings.model_dump(exclude={"keep_alive", "shards"}),
        )
        if self.engine is None or needs != self._holds:
            self.engine, self._holds = wanted, needs  # the start of the new one closes the old one
        else:  # the weights are the same; the chat template need not be
            self.engine.tokenizer, self.engine.end_ids = wanted.tokenizer, wanted.end_ids
            if merged is None:
                self.engine.use_adapter(policy.adapter)
        self.engine.forget_prompts()

    def leave(self) -> NoReturn:
        """End now, from whichever thread, with nothing left behind."""
        self._socket.unlink(missing_ok=True)
        self._scratch.cleanup()
        Path(self._lock.name).unlink(missing_ok=True)  # last: from here on another may be the host
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _end_when_idle(self) -> NoReturn:
        while True:
            time.sleep(min(1, self._keep_alive))
            with self._guard:
                if self._idle_since is not None and time.monotonic() - self._idle_since > self._keep_alive:
                    self.leave()


def fingerprint(folder: str | Path) -> tuple[object, ...]:
    """What tells the weights in a folder from others without reading them.

    Among it is the time of the last change, which `cp -p` and `touch` cannot set.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    return str(Path(folder).resolve()), *((file.name, *identity(file)) for file in files)


def main(socket: Path, run: str, keep_alive: int) -> None:
    """Be the host, unless there is one."""
    os.environ.pop(RUN, None)  # in here nobody shares, and nobody asks for a release
    if (lock := only_one(socket.with_suffix(".lock"))) is not None:
        host = Host(socket, keep_alive, lock)
        when_ends(run, host.leave)
        host.serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
