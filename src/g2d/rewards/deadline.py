"""A deadline for code that is not ours, in this process: what hangs in Python or waits for something is ended.

Not reached: a loop inside a C extension, which no signal interrupts, and threads other than the first, to which Python
hands no signals. There the time limit of the job is what ends it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 1.0  # what swallowed the first word gets another


class LateError(BaseException):
    """Time is up. No `Exception`, so code that tries again whatever happens does not catch it."""


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Have what runs inside end after so many seconds; None: never.

    Raises:
        LateError: it was not done by then.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        if ringing:
            raise LateError

    ringing = True
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        try:
            yield
        finally:
            ringing = False
    finally:  # also where it rings in the line before
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
