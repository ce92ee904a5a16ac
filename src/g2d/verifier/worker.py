"""A verifier worker: `python -m g2d.verifier.worker DEADLINE_S MEMORY_BYTES`, spoken to in frames over its pipes.

The parent sends lists of [reference, answer]. One frame answers each pair, in order, so that the parent always knows
which pair a silence belongs to. A fresh interpreter, so that it never inherits torch, CUDA or threads.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from g2d.verifier.frames import encode, receive
from g2d.verifier.verdict import Verdict

READY = "ready"


def main() -> None:
    """Serve until the parent closes the pipe, or until a pair has exceeded the memory limit."""
    deadline_s, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    # The parent handles Ctrl-C and SIGTERM, which a scheduler sends to every process of a job: a training finishes its
    # step, and a worker that died would cost a rollout its verdict. SIGPROF must kill, and ignoring is inherited.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)

    from g2d.verifier import fast_parsing
    from g2d.verifier.symbolic import judge

    fast_parsing.install()

    # Math-Verify takes a failed allocation for a failed comparison, so growth is judged by its peak, and the address
    # space ends where one allocation would go far beyond.
    _restrict(resource.RLIMIT_AS, 2 * memory_bytes)
    _restrict(resource.RLIMIT_CORE, 0)
    replies.write(encode(READY))
    # From here on nothing may write into the frames, and nobody reads what would go to stderr.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    serve(requests, replies, judge, deadline_s, memory_bytes)


def serve(
    requests: BinaryIO, replies: Any, judge: Callable[[str, str], Verdict], deadline_s: float, memory_bytes: int
) -> None:
    """Answer pairs until there are no more."""

    def bounded(reference: str, answer: str) -> Verdict:
        # The kernel ends this process when the pair has used up its CPU time, wherever it is, C code included.
        signal.setitimer(signal.ITIMER_PROF, deadline_s)
        try:
            return judge(reference, answer)
        except (MemoryError, RecursionError):
            return "limit"
        except Exception:  # whatever else Math-Verify or sympy raise on text that is no mathematics
            return "parse_error"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    while (pairs := receive(requests)) is not None:
        for reference, answer in pairs:
            verdict = bounded(reference, answer)
            exceeded = peak_memory() > memory_bytes
            replies.write(encode("limit" if exceeded else verdict))
            if exceeded:
                return


def peak_memory() -> int:
    """Largest resident size of this program so far, in bytes.

    Not `ru_maxrss`, where Linux has better: that survives exec, so a worker would answer for its parent's memory.
    """
    try:
        with open("/proc/self/status", "rb") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith(b"VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def _restrict(kind: int, value: int) -> None:
    """Lower a limit of this process; one that is lower already stays."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


if __name__ == "__main__":
    main()
