"""A pool of worker processes. A call that exceeds a limit ends its worker, and a new one continues the batch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import NamedTuple

Arguments = tuple[object, ...]  # arguments of a call, as JSON

START_S = 120.0  # importing sympy from a cold network file system takes long
REAP_S = 5.0  # until a worker exits after its pipe is closed
STOP_S = 20.0  # until running calls end after a request to stop
CHUNK = 32
PACKAGE_ROOT = Path(__file__).parents[2]
MIB = 2**20
_BRACKET = re.compile(r"[{(\[]|[)\]}]")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits per pair; answers of MATH, MATH-500 and GSM8K are far below the defaults."""

    deadline_s: float = 5.0  # CPU seconds, so that the load does not change verdicts
    wall_s: float = 60.0  # ends a worker that hangs without using CPU
    memory_bytes: int = 1024 * MIB  # resident memory of a worker; an idle one holds 80 MiB
    max_completion_chars: int = 4_000_000
    max_answer_chars: int = 2_000
    max_nesting: int = 16

    def allow(self, answer: str) -> bool:
        return len(answer) <= self.max_answer_chars and _nesting(answer) <= self.max_nesting


def _nesting(text: str) -> int:
    """Return the depth of brackets of any kind; `[1,2)` is balanced."""
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        depth = depth + 1 if match.group() in "{([" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


class VerifierError(RuntimeError):
    """A worker could not start; the message has its output."""


class Reply(NamedTuple):
    """Reply to a call; a worker sends it as JSON."""

    status: str  # a verdict, or "judged" by a reward
    why: str = ""  # why the user's function failed
    numbers: Sequence[float | None] = ()  # rewards


class StopRequest:
    """A request that ends this process's calls: a user's function may run for minutes, or hang."""

    time: float | None = None

    @classmethod
    def make(cls) -> None:
        cls.time = time.monotonic()

    @classmethod
    def forget(cls) -> None:
        cls.time = None

    @classmethod
    def overdue(cls, begun: float) -> bool:
        return cls.time is not None and time.monotonic() > max(cls.time, begun) + STOP_S


class Pool:
    """Calls a function in `size` worker processes; thread-safe.

    Args:
        function: kind of function, and what it needs (`g2d.verifier.worker`).
        replied: called with each call and its reply as soon as there is one, in several threads.
    """

    def __init__(
        self,
        size: int,
        limits: Limits,
        function: Sequence[str] = ("math_verify",),
        replied: Callable[[Arguments, Reply], None] = lambda call, reply: None,
    ) -> None:
        if size < 1:
            raise ValueError(f"workers={size}: a verifier needs at least one worker")
        self.size = size
        self.limits = limits
        self.function = function
        self.replied = replied
        self.workers: list[_Worker] = []
        self.lock = threading.RLock()
        _pools.add(self)

    def replies(self, calls: Sequence[Arguments]) -> list[Reply]:
        """Return replies in order, `timeout` or `limit` if there is none; a VerifierError if no worker can start."""
        with self.lock:
            return self._replies(calls)

    def start(self) -> None:
        """Start a worker; a VerifierError if the user's file cannot be loaded."""
        with self.lock:
            _Batch(self, []).hire()

    def _replies(self, calls: Sequence[Arguments]) -> list[Reply]:
        batch = _Batch(self, calls)
        begun = time.monotonic()
        threads = ThreadPoolExecutor(self.size)
        serving = [*self.workers, *[None] * self.size][: min(self.size, len(calls))]
        try:
            working = [threads.submit(batch.work, worker) for worker in serving]
            while wait(working, timeout=1, return_when=FIRST_EXCEPTION).not_done:
                if any(one.done() and one.exception() for one in working):
                    break
                if StopRequest.overdue(begun):
                    raise VerifierError(
                        f"{self.function[0]}: no answer {STOP_S:g} s after the request to stop: the step is lost, "
                        "the checkpoint before it is kept"
                    )
            for one in working:
                one.result()
        except BaseException:
            # After Ctrl-C in a batch, the next batch must not read late replies.
            batch.given_up = True
            for worker in [*self.workers]:
                worker.process.kill()
            threads.shutdown()
            self.close()
            raise
        threads.shutdown()
        return [batch.replies[i] for i in range(len(calls))]

    def close(self) -> None:
        with self.lock:
            while self.workers:
                self.workers.pop().end()

    def after_fork(self) -> None:
        """Drop the parent's workers without stopping them, and the lock: another thread may have held it."""
        self.lock = threading.RLock()
        while self.workers:
            self.workers.pop().abandon()


def _after_fork() -> None:
    for pool in _pools:
        pool.after_fork()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)


def default_workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# A batch is a queue of calls. A thread per worker takes a chunk from it, sends the chunk, and reads replies in order.
# So if a worker hangs or dies, it was at the first call without a reply. That call is blamed; the rest of the chunk
# goes back to the queue, for a new worker. An earlier call may also have filled the worker's memory, so the blamed call
# is tried once more in a fresh worker before it gets the verdict `limit`. Verdicts then do not depend on neighbours or
# on the number of workers.


class _Batch:
    def __init__(self, pool: Pool, calls: Sequence[Arguments]) -> None:
        self.pool = pool
        self.calls = calls
        self.waiting = deque(range(len(calls)))
        self.replies: dict[int, Reply] = {}
        self.suspects: set[int] = set()
        self.given_up = False

    def work(self, worker: _Worker | None) -> None:
        while not self.given_up:
            chunk = self._take()
            if not chunk:
                return
            worker = worker or self.hire()
            worker.ask([self.calls[i] for i in chunk])
            n = len(chunk)
            while chunk:
                reply = worker.reply(worker.wall_s)
                if reply is None:
                    break
                self._keep(chunk.popleft(), reply)
            if chunk:
                self.pool.workers.remove(worker)
                worker.end()
                self._blame(chunk, worker, has_replied=len(chunk) < n)
                self.waiting.extendleft(reversed(chunk))
                worker = None

    def _keep(self, number: int, reply: Reply) -> None:
        self.replies[number] = reply
        self.pool.replied(self.calls[number], reply)

    def _take(self) -> deque[int]:
        """Take the next calls, fewer towards the end so that workers finish together."""
        chunk: deque[int] = deque()
        with suppress(IndexError):
            for _ in range(max(1, min(CHUNK, len(self.waiting) // (2 * self.pool.size)))):
                chunk.append(self.waiting.popleft())
        return chunk

    def hire(self) -> _Worker:
        worker = _Worker(self.pool.limits, self.pool.function)
        self.pool.workers.append(worker)
        ready = worker.reply(START_S)
        if ready is None or ready.why:
            self.pool.workers.remove(worker)
            name = " ".join(self.pool.function[:2])
            output = worker.end()
            reason = ready.why if ready else output or f"no answer in {START_S:g} s"
            raise VerifierError(f"{name}: a worker did not start (exit {worker.process.returncode}): {reason}")
        return worker

    def _blame(self, chunk: deque[int], worker: _Worker, *, has_replied: bool) -> None:
        """Decide the call that ended a worker, or have it tried again."""
        code = worker.process.returncode
        if code == 0 and has_replied:  # probably exited because of its memory
            return
        limits = self.pool.limits
        if not worker.hung_up:
            self._keep(chunk.popleft(), Reply("timeout", f"it took more than {limits.wall_s:g} s"))
        elif code == -signal.SIGPROF:
            self._keep(chunk.popleft(), Reply("timeout", f"it took more than {limits.deadline_s:g} s of CPU time"))
        elif chunk[0] in self.suspects:
            self._keep(chunk.popleft(), Reply("limit"))
        else:  # an earlier call may have filled the memory
            self.suspects.add(chunk[0])


class _Worker:
    """A process; its replies are lines with a token, since the user's function may write to its connection."""

    def __init__(self, limits: Limits, function: Sequence[str]) -> None:
        command = [sys.executable, "-P", "-W", "ignore", "-m", "g2d.verifier.worker"]
        paths = [str(PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.wall_s = limits.wall_s
        self.token = os.urandom(16).hex().encode()
        self.lines: deque[bytes] = deque()  # replies
        self.begun = b""  # line that has not ended
        self.connection, theirs = Pipe()
        pipe, self.lifeline = os.pipe()  # closed by the kernel if this process is killed
        with theirs, open(pipe, "rb"):
            self.process = subprocess.Popen(
                [*command, str(limits.deadline_s), str(limits.memory_bytes), str(pipe), self.token.decode(), *function],
                pass_fds=[pipe],
                start_new_session=True,  # a process group, also of processes that the user's function starts
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join(paths),
                    "PYTHONHASHSEED": "0",  # keeps the order of sets of symbols
                    "CUDA_VISIBLE_DEVICES": "",  # the user's code takes no memory from the trainer
                },
            )
        self.hung_up = False

    def ask(self, calls: list[Arguments]) -> None:
        with suppress(OSError):  # the worker exited: `reply` reports it
            self.connection.send_bytes(json.dumps(calls).encode())

    def reply(self, patience_s: float) -> Reply | None:
        deadline = time.monotonic() + patience_s
        try:
            while not self.lines:
                left_s = deadline - time.monotonic()
                if left_s < 0 or not self.connection.poll(left_s):
                    return None
                received = os.read(self.connection.fileno(), 2**16)
                if not received:
                    raise EOFError
                *lines, self.begun = (self.begun + received).split(b"\n")
                self.lines += [line.removeprefix(self.token) for line in lines if line.startswith(self.token)]
                if not (self.begun.startswith(self.token) or self.token.startswith(self.begun)):
                    self.begun = b""  # a flood without line breaks takes no memory; a reply begins on a new line
        except (EOFError, OSError):
            self.hung_up = True
            return None
        return Reply(*json.loads(self.lines.popleft()))

    def end(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=REAP_S if self.hung_up else 0)
        self.process.kill()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        os.close(self.lifeline)
        stderr = self.process.communicate()[1].decode(errors="replace")
        self.connection.close()
        return stderr.strip()[-2000:]

    def abandon(self) -> None:
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.connection.close()
        os.close(self.lifeline)
        self.process.returncode = 0  # else `subprocess` waits for it
