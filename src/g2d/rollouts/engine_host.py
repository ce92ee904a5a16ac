"""A process with a vLLM engine that the jobs of a Snakemake run use one after another (`engine.keep_alive`).

    python -m g2d.rollouts.engine_host SOCKET RUN KEEP_ALIVE       started by the first job that generates

It exits after `keep_alive` seconds without a job, when its Snakemake ends, or when a job needs the GPU for something
else (`run_process.release`).
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from g2d.jobs.digests import identity
from g2d.jobs.orphans import RUN, when_ends
from g2d.jobs.run_process import accept, connect, listen, name_scratch, only_one, socket_of
from g2d.policies.policy import Policy
from g2d.rollouts.remote_engine import EngineServer, RemoteEngine
from g2d.rollouts.settings import EngineSettings


class SharedEngine(RemoteEngine):
    """Client of the run's shared engine; starts it if needed. `expected` are keywords of `VllmEngine`.

    A connection lasts for a request and its generation. Connecting waits until no other job is connected.
    """

    def __init__(self, run: str, policy: Policy, settings: EngineSettings, **expected: int | None) -> None:
        super().__init__(None, "")
        self._run, self._policy, self._settings, self._expected = run, policy, settings, expected

    def connect(self) -> None:
        """Wait for a connection; raises a RuntimeError if the process cannot be started."""
        connected = connect(__name__, socket_of(self._run), self._run, self._settings.keep_alive)
        self.connection, (self.host, log) = connected
        self.died = (
            f"the shared engine (process {self.host}) died, its output is in {log}: run again, which starts another, "
            "or set engine.keep_alive: 0"
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        """See `RemoteEngine`; also opens the policy on a new connection."""
        ends = True
        try:
            if self.connection is None:
                self.connect()
                threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
                super().ask("open", self._policy, self._settings, {**self._expected, "threads": threads})
            answer = super().ask(method, *arguments)
            ends = method != "request"  # a generation follows
            return answer
        finally:
            if ends:
                self.close()


class SharedEngineServer(EngineServer):
    def __init__(self, socket: Path, keep_alive: int, lock: IO[str]) -> None:
        super().__init__()
        self._socket = socket
        self._keep_alive = keep_alive
        self._lock = lock
        self._scratch = tempfile.TemporaryDirectory(prefix="g2d-engine-", ignore_cleanup_errors=True)  # merged weights
        name_scratch(lock, self._scratch.name)
        tempfile.tempdir = self._scratch.name
        self._listener = listen(socket)
        self._guard = threading.Lock()  # makes leaving idleness and exiting exclusive
        self._idle_since: float | None = time.monotonic()
        self._holds: object = None

    def serve(self) -> NoReturn:
        signal.signal(signal.SIGTERM, lambda *_: self.leave())
        threading.Thread(target=self._end_when_idle, daemon=True).start()
        while True:
            if (connection := accept(self._listener)) is None:
                continue
            with self._guard:
                self._idle_since = None
            with suppress(EOFError, ConnectionError), connection:  # the job has finished or died
                connection.send((os.getpid(), str(Path("/proc/self/fd/2").readlink())))
                self.answer(connection)
                self.leave()  # a retry starts a new process
            self._idle_since = time.monotonic()

    def open(self, policy: Policy, settings: EngineSettings, keywords: dict[str, Any]) -> None:
        """Load a policy, in the running engine if possible; `keywords` also has the number of `threads`."""
        from g2d.rollouts.vllm_engine import VllmEngine, merges_adapters

        self._keep_alive = settings.keep_alive
        if threads := keywords.pop("threads"):
            import torch

            torch.set_num_threads(threads)
        merges = merges_adapters(settings)
        wanted = VllmEngine(policy, settings, **keywords | ({"adapter_rank": None} if merges else {}))
        merged = policy.adapter if merges else None
        needs = (
            [fingerprint(folder) for folder in (policy.model_folder, merged) if folder is not None],
            wanted.max_lora_rank,
            settings.model_dump(exclude={"keep_alive", "shards"}),
        )
        if self.engine is None or needs != self._holds:
            self.engine, self._holds = wanted, needs  # starting the new engine closes the old one
        else:  # same weights, but perhaps another chat template
            self.engine.tokenizer, self.engine.end_ids = wanted.tokenizer, wanted.end_ids
            if merged is None:
                self.engine.serve(policy)
        self.engine.forget_prompts()

    def leave(self) -> NoReturn:
        self._socket.unlink(missing_ok=True)
        self._scratch.cleanup()
        Path(self._lock.name).unlink(missing_ok=True)  # last: a new engine process can start from here on
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
    """Identify the weights in a folder without reading them, also by ctime, which `cp -p` and `touch` cannot set."""
    files = sorted(Path(folder).glob("*.safetensors"))
    return str(Path(folder).resolve()), *((file.name, *identity(file)) for file in files)


def main(socket: Path, run: str, keep_alive: int) -> None:
    os.environ.pop(RUN, None)  # this process neither shares nor releases an engine
    if (lock := only_one(socket.with_suffix(".lock"))) is not None:
        server = SharedEngineServer(socket, keep_alive, lock)
        when_ends(run, server.leave)
        server.serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
