"""A pool of worker processes. A pair that exceeds a limit ends its worker, and a new one continues the batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from g2d.verifier.limits import Limits
from g2d.verifier.verdict import Verdict

Pair = tuple[str, str]  # reference, answer

START_S = 120.0  # to import sympy from a cold network file system
REAP_S = 5.0  # to exit after closing the pipe
CHUNK = 32
PACKAGE_ROOT = Path(__file__).parents[2]


class VerifierError(RuntimeError):
    """A worker could not start; the message has its output."""


class Pool:
    def __init__(self, size: int, limits: Limits) -> None:
        if size < 1:
            raise ValueError(f"workers={size}: a verifier needs at least one worker")
        self.size = size
        self.limits = limits
        self.workers: list[_Worker] = []

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Return verdicts in order; a VerifierError if no worker can be started."""
        batch = _Batch(self, pairs)
        threads = ThreadPoolExecutor(self.size)
        serving = [*self.workers, *[None] * self.size][: min(self.size, len(pairs))]
        try:
            for done in [threads.submit(batch.work, worker) for worker in serving]:
                done.result()
        except BaseException:
            # After Ctrl-C in a batch, the next batch must not read late replies.
            batch.given_up = True
            for worker in [*self.workers]:
                worker.process.kill()
            threads.shutdown()
            self.close()
            raise
        threads.shutdown()
        return [batch.verdicts[i] for i in range(len(pairs))]

    def close(self) -> None:
        while self.workers:
            self.workers.pop().end()

    def abandon(self) -> None:
        """Drop the workers without stopping them: after a fork they are the parent's."""
        while self.workers:
            self.workers.pop().abandon()


def default_workers() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


class _Batch:
    def __init__(self, pool: Pool, pairs: Sequence[Pair]) -> None:
        self.pool, self.pairs = pool, pairs
        self.waiting = deque(range(len(pairs)))
        self.verdicts: dict[int, Verdict] = {}
        self.suspects: set[int] = set()
        self.given_up = False

    def work(self, worker: _Worker | None) -> None:
        while not self.given_up and (chunk := self._take()):
            worker = worker or self._hire()
            worker.ask([self.pairs[i] for i in chunk])
            while chunk and (verdict := worker.reply(worker.wall_s)):
                self.verdicts[chunk.popleft()] = verdict
            if chunk:
                self.pool.workers.remove(worker)
                worker.end()
                self._blame(chunk, worker)
                self.waiting.extendleft(reversed(chunk))
                worker = None

    def _take(self) -> deque[int]:
        """Take the next pairs, fewer towards the end so that workers finish together."""
        chunk: deque[int] = deque()
        with suppress(IndexError):
            for _ in range(max(1, min(CHUNK, len(self.waiting) // (2 * self.pool.size)))):
                chunk.append(self.waiting.popleft())
        return chunk

    def _hire(self) -> _Worker:
        worker = _Worker(self.pool.limits)
        self.pool.workers.append(worker)
        if not worker.reply(START_S):
            self.pool.workers.remove(worker)
            stderr = worker.end() or "no output"
            raise VerifierError(f"a verifier worker did not start (exit {worker.process.returncode}): {stderr}")
        return worker

    def _blame(self, chunk: deque[int], worker: _Worker) -> None:
        """Decide the pair that ended a worker, or have it tried again."""
        code = worker.process.returncode
        if code == 0:  # it has sent a verdict, and exited because of its memory
            return
        if not worker.hung_up or code == -signal.SIGPROF:
            self.verdicts[chunk.popleft()] = "timeout"
        elif chunk[0] in self.suspects:
            self.verdicts[chunk.popleft()] = "limit"
        else:  # an earlier pair may have filled the memory
            self.suspects.add(chunk[0])


class _Worker:
    def __init__(self, limits: Limits) -> None:
        command = [sys.executable, "-P", "-W", "ignore", "-m", "g2d.verifier.worker"]
        paths = [str(PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.wall_s = limits.wall_s
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(limits.deadline_s), str(limits.memory_bytes)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                bufsize=0,
                # Keeps the order of sets of symbols.
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"},
            )
        self.hung_up = False

    def ask(self, pairs: list[Pair]) -> None:
        with suppress(OSError):  # the worker exited: `reply` reports it
            self.connection.send_bytes(json.dumps(pairs).encode())

    def reply(self, patience_s: float) -> Any:
        try:
            return json.loads(self.connection.recv_bytes()) if self.connection.poll(patience_s) else None
        except (EOFError, OSError):
            self.hung_up = True
            return None

    def end(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=REAP_S if self.hung_up else 0)
        self.process.kill()
        stderr = self.process.communicate()[1].decode(errors="replace")
        self.connection.close()
        return stderr.strip()[-2000:]

    def abandon(self) -> None:
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.connection.close()
        self.process.returncode = 0  # else `subprocess` waits for it
