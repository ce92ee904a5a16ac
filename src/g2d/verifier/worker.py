"""A verifier worker: `python -m g2d.verifier.worker DEADLINE_S MEMORY_BYTES`, with lines of JSON over its pipes.

The parent sends lists of [reference, answer], and the worker one line for each pair, in order. It is a fresh
interpreter, so it inherits no torch, CUDA or threads.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from g2d.verifier.verdict import Verdict

READY = "ready"


def main() -> None:
    """Serve until the parent closes the pipe, or until a pair has exceeded the memory limit."""
    deadline_s, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    # The parent handles Ctrl-C and SIGTERM, which a scheduler sends to every process of a job: a training needs
    # the worker until its step is finished. SIGPROF must kill, even if the parent ignores it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)

    from g2d.verifier.symbolic import judge, parse_in_two_stages

    parse_in_two_stages()

    # Math-Verify takes a failed allocation for a failed comparison, so the limit is on the peak; the address space
    # bounds single allocations far beyond it.
    _restrict(resource.RLIMIT_AS, 2 * memory_bytes)
    _restrict(resource.RLIMIT_CORE, 0)
    send(replies, READY)
    # From here on stdout and stderr are closed, so that nothing writes between the lines.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    serve(requests, replies, judge, deadline_s, memory_bytes)


def serve(
    requests: BinaryIO, replies: Any, judge: Callable[[str, str], Verdict], deadline_s: float, memory_bytes: int
) -> None:
    """Answer pairs until there are no more."""

    def bounded(reference: str, answer: str) -> Verdict:
        # The kernel ends this process when the pair has used up its CPU time, also in C code.
        signal.setitimer(signal.ITIMER_PROF, deadline_s)
        try:
            return judge(reference, answer)
        except (MemoryError, RecursionError):
            return "limit"
        except Exception:  # Math-Verify and sympy raise many types on text that is no mathematics
            return "parse_error"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    for line in requests:
        for reference, answer in json.loads(line):
            verdict = bounded(reference, answer)
            exceeded = peak_memory() > memory_bytes
            send(replies, "limit" if exceeded else verdict)
            if exceeded:
                return


def send(replies: Any, message: str) -> None:
    """One message to the parent."""
    replies.write(json.dumps(message).encode() + b"\n")


def peak_memory() -> int:
    """Largest resident size of this program so far, in bytes; `ru_maxrss` would include the parent's on Linux."""
    try:
        with open("/proc/self/status", "rb") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith(b"VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def _restrict(kind: int, value: int) -> None:
    """Lower a limit of this process."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


if __name__ == "__main__":
    main()
