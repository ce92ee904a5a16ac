"""Guards around foreign code in this process: a deadline by SIGALRM, and no exit.

The deadline does not interrupt a loop in a C extension or code outside the main thread.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 1.0  # seconds between signals, for code that swallows the first


class LateError(BaseException):
    """Deadline of a call. A BaseException, so that the called code's `except Exception` does not catch it."""


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raise a LateError after `seconds`."""
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
    finally:  # also if the signal arrives in the line before
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def contained() -> Iterator[None]:
    """Turn `sys.exit` and `os._exit` into a RuntimeError; child processes may still exit."""

    def leave(status: int) -> None:
        if os.getpid() != pid:
            leave_at_once(status)
        raise RuntimeError(f"it called os._exit({status})")

    pid, leave_at_once = os.getpid(), os._exit
    os._exit = leave  # type: ignore[assignment]
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"it called sys.exit({error.code!r})") from None
    finally:
        os._exit = leave_at_once
