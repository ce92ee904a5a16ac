"""A verifier worker: `python -m g2d.verifier.worker DEADLINE_S MEMORY_BYTES`, with a `Connection` as standard input.

The parent sends lists of [reference, answer] as JSON; the worker sends one message per pair. It is
a fresh interpreter, so without torch, CUDA or threads.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

from g2d.verifier.verdict import Verdict


def main() -> None:
    deadline_s, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    # A scheduler sends SIGTERM to every process, but a training needs this worker until its step is finished. SIGPROF
    # must kill, even if the parent ignores it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)

    from g2d.verifier.symbolic import judge, parse_in_two_stages

    parse_in_two_stages()

    # Math-Verify treats a failed allocation as a failed comparison, so the peak is checked; this limit only stops huge
    # allocations.
    _restrict(resource.RLIMIT_AS, 2 * memory_bytes)
    _restrict(resource.RLIMIT_CORE, 0)

    def bounded(judge: Callable[[str, str], Verdict], reference: str, answer: str) -> Verdict:
        # The kernel kills this process, even inside C code.
        signal.setitimer(signal.ITIMER_PROF, deadline_s)
        try:
            return judge(reference, answer)
        except (MemoryError, RecursionError):
            return "limit"
        except Exception:  # Math-Verify and sympy raise many types
            return "parse_error"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def send(message: str) -> None:
        parent.send_bytes(json.dumps(message).encode())

    parent = Connection(os.dup(0))
    send("ready")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the parent reads stderr only at the start
    while True:
        try:
            pairs = json.loads(parent.recv_bytes())
        except EOFError:
            return
        for reference, answer in pairs:
            verdict = bounded(judge, reference, answer)
            exceeded = peak_memory() > memory_bytes
            send("limit" if exceeded else verdict)
            if exceeded:
                return


def peak_memory() -> int:
    """Return the largest resident size in bytes; `ru_maxrss` would include the parent's on Linux."""
    try:
        with open("/proc/self/status", "rb") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith(b"VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def _restrict(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


if __name__ == "__main__":
    main()
