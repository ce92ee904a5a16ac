"""A pool of worker processes that judge pairs of answers within limits.

A pair that exceeds its deadline or its memory ends its worker; another takes its place and the batch goes on. Workers
start at the first batch. A pool is for one thread at a time and for the process that started it (`Verifier`).
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from g2d.verifier.limits import Limits
from g2d.verifier.verdict import Verdict

Pair = tuple[str, str]  # reference answer, answer

START_S = 120.0  # for importing sympy, from a cold network file system
REAP_S = 5.0  # for the exit of a process that has closed its pipe
CHUNK = 32  # pairs per message; the next is sent at half, so that no worker waits
COALESCE_S = 0.003  # to collect replies in a long batch instead of waking for each
PACKAGE_ROOT = Path(__file__).parents[2]


class VerifierError(RuntimeError):
    """A worker could not be started; the message has its output."""


class Pool:
    """Up to `size` workers that share a batch."""

    def __init__(self, size: int, limits: Limits) -> None:
        if size < 1:
            raise ValueError(f"workers={size}: a verifier needs at least one worker")
        self.size = size
        self.limits = limits
        self.workers: list[_Worker] = []

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Verdicts in the order of the pairs.

        Raises:
            VerifierError: no worker can be started.
        """
        try:
            return _Batch(self, pairs).run()
        except BaseException:
            # After Ctrl-C within a batch, late replies must not be read by the next batch.
            self.close()
            raise

    def close(self) -> None:
        """End the workers. The next batch would start new ones."""
        while self.workers:
            self.workers.pop().end()

    def abandon(self) -> None:
        """Leave the workers to the parent process, in the child of a fork."""
        while self.workers:
            self.workers.pop().abandon()


def default_workers() -> int:
    """Cores of this process, divided by the ranks of a distributed run on this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


class _Batch:
    """One run over a list of pairs."""

    def __init__(self, pool: Pool, pairs: Sequence[Pair]) -> None:
        self.pool = pool
        self.pairs = pairs
        self.verdicts: list[Verdict | None] = [None] * len(pairs)
        self.waiting = deque(range(len(pairs)))
        self.unsettled = len(pairs)
        self.suspects: set[int] = set()
        self.selector = selectors.DefaultSelector()

    def run(self) -> list[Verdict]:
        with self.selector:
            for worker in self.pool.workers:
                self._watch(worker)
            while self.unsettled:
                self._staff()
                self._hand_out()
                self._listen()
        return self.verdicts  # type: ignore[return-value]  # none is left open

    def _staff(self) -> None:
        """Start as many workers as there is work for."""
        while len(self.pool.workers) < min(self.pool.size, self.unsettled):
            worker = _Worker(self.pool.limits)
            self.pool.workers.append(worker)
            self._watch(worker)

    def _watch(self, worker: _Worker) -> None:
        self.selector.register(worker.replies, selectors.EVENT_READ, worker)

    def _hand_out(self) -> None:
        for worker in self.pool.workers:
            if self.waiting and worker.ready and not worker.sending and len(worker.assigned) <= CHUNK // 2:
                fair = len(self.waiting) // (2 * self.pool.size)
                chunk = [self.waiting.popleft() for _ in range(max(1, min(CHUNK, fair)))]
                worker.assign(chunk, [self.pairs[i] for i in chunk])
                self.selector.register(worker.requests, selectors.EVENT_WRITE, worker)

    def _listen(self) -> None:
        busy = [worker for worker in self.pool.workers if worker.assigned or not worker.ready]
        if self.waiting and all(worker.assigned for worker in busy):
            time.sleep(COALESCE_S)
        patience = min(worker.expires for worker in busy) - time.monotonic()
        for key, _ in self.selector.select(max(patience, 0.0)):
            worker = key.data
            if worker.ended:  # at the event of its other pipe
                continue
            if key.fileobj is worker.requests:
                if worker.flush():
                    self.selector.unregister(worker.requests)
                continue
            for message in worker.receive():
                if not worker.ready:
                    worker.ready = True
                else:
                    self._settle(worker.assigned.popleft(), message)
                worker.expires = time.monotonic() + self.pool.limits.wall_s
            if worker.hung_up:
                self._bury(worker)
        now = time.monotonic()
        for worker in busy:
            if not worker.ended and worker.expires <= now and (worker.assigned or not worker.ready):
                self._bury(worker, overdue=True)

    def _settle(self, index: int, verdict: Verdict) -> None:
        self.verdicts[index] = verdict
        self.unsettled -= 1

    def _bury(self, worker: _Worker, overdue: bool = False) -> None:
        """Remove a worker, settle or retry the pair that it ended on, and queue the others again."""
        for pipe in (worker.replies, worker.requests):
            if pipe in self.selector.get_map():
                self.selector.unregister(pipe)
        self.pool.workers.remove(worker)
        code, last_words = worker.end()
        if not worker.ready:
            raise VerifierError(f"a verifier worker did not start (exit {code}): {last_words or 'no output'}")
        if worker.assigned and code != 0:  # 0: it ended after a pair that exceeded the memory limit
            victim = worker.assigned.popleft()
            if overdue or code == -signal.SIGPROF:
                self._settle(victim, "timeout")
            elif victim in self.suspects:
                self._settle(victim, "limit")
            else:
                # An earlier pair may have filled the memory, so the pair is tried once more.
                self.suspects.add(victim)
                worker.assigned.appendleft(victim)
        self.waiting.extendleft(reversed(worker.assigned))


class _Worker:
    """A child process, its pipes, and its pairs without an answer."""

    def __init__(self, limits: Limits) -> None:
        command = [sys.executable, "-P", "-W", "ignore", "-m", "g2d.verifier.worker"]
        paths = [str(PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [*command, str(limits.deadline_s), str(limits.memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            # The order of a set of symbols must not differ from run to run.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.replies = self.process.stdin, self.process.stdout
        os.set_blocking(self.requests.fileno(), False)
        os.set_blocking(self.replies.fileno(), False)
        self.ready = self.hung_up = self.ended = False
        self.assigned: deque[int] = deque()
        self.expires = time.monotonic() + START_S
        self._outgoing = b""
        self._incoming = b""
        self._limits = limits

    def assign(self, indices: list[int], pairs: list[Pair]) -> None:
        """Queue a message with pairs; `flush` sends it."""
        if not self.assigned:
            self.expires = time.monotonic() + self._limits.wall_s
        self.assigned.extend(indices)
        self._outgoing = json.dumps(pairs).encode() + b"\n"

    @property
    def sending(self) -> bool:
        """Whether part of a message is still to be written."""
        return bool(self._outgoing)

    def flush(self) -> bool:
        """Write as much as fits into the pipe; True once everything is written."""
        try:
            sent = os.write(self.requests.fileno(), self._outgoing)
        except BlockingIOError:
            return False
        except BrokenPipeError:  # the worker ended, which the other pipe reports
            sent = len(self._outgoing)
        self._outgoing = self._outgoing[sent:]
        return not self._outgoing

    def receive(self) -> list[Any]:
        """The messages that have arrived; `hung_up` turns True at the end of the stream."""
        try:
            read = os.read(self.replies.fileno(), 65536)
        except BlockingIOError:
            return []
        self.hung_up = not read
        *messages, self._incoming = (self._incoming + read).split(b"\n")
        return [json.loads(message) for message in messages]

    def end(self) -> tuple[int, str]:
        """End the process; its exit code and the end of its stderr."""
        self.ended = True
        try:
            self.process.wait(timeout=REAP_S if self.hung_up else 0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stderr is not None
        said = self.process.stderr.read().decode(errors="replace").strip()
        self._close_pipes()
        return self.process.returncode, said[-2000:]

    def abandon(self) -> None:
        """Leave the child to the parent process."""
        self._close_pipes()
        self.process.returncode = 0  # so that it is not waited for

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
