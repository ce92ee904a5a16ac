"""A worker process: `python -m g2d.verifier.worker DEADLINE_S MEMORY_BYTES PIPE TOKEN KIND ...`.

Standard input is a `Connection`. The parent sends lists of arguments as JSON; the worker calls the function of `KINDS`
with each and sends one line per call, TOKEN and the reply as JSON. It is a fresh interpreter, so without torch, CUDA or
threads. The parent has the other end of the file descriptor PIPE; the worker's process group ends with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import reprlib
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from g2d.verifier.pool import Reply
from g2d.verifier.user_code import UserCodeError, first_words, load_function

Call = Callable[..., Reply]


def math_verify() -> Call:
    from g2d.verifier.symbolic import judge, parse_in_two_stages

    parse_in_two_stages()

    def call(reference: str, answer: str) -> Reply:
        try:
            return Reply(judge(reference, answer))
        except (MemoryError, RecursionError):
            raise
        except Exception:  # Math-Verify and sympy raise many types
            return Reply("parse_error")

    return call


def verifier(*file: str) -> Call:
    judge = load_function(*file)

    def call(problem: dict[str, object], completion: str) -> Reply:
        right = judge(problem, completion)
        if not isinstance(right, bool):
            return Reply("not_bool", f"judge returned {reprlib.repr(right)}")
        return Reply("correct" if right else "incorrect")

    return call


def reward(*file: str) -> Call:
    function = load_function(*file)

    def call(given: dict[str, list[object]]) -> Reply:
        numbers = function(**given)
        if isinstance(numbers, str | bytes | dict | set):
            kind = type(numbers).__name__
            return Reply("error", f"a {kind} is no list of numbers: return one number for each completion")
        return Reply("judged", numbers=[_number(item) for item in numbers])

    return call


def chat_template() -> Call:
    from transformers.utils.chat_template_utils import render_jinja_template

    def call(
        template: str,
        variables: dict[str, object],
        conversation: list[dict[str, str]],
        longest: int,
        add_generation_prompt: bool,
    ) -> Reply:
        [text], _ = render_jinja_template(
            [conversation], chat_template=template, add_generation_prompt=add_generation_prompt, **variables
        )
        return Reply("rendered" if len(text) <= longest else "limit")

    return call


KINDS: dict[str, Callable[..., Call]] = {
    "math_verify": math_verify,
    "verifier": verifier,
    "reward": reward,
    "chat_template": chat_template,
}


def main() -> None:
    deadline_s, memory_bytes, pipe, token, kind, *file = sys.argv[1:]
    end_with_parent(int(pipe))
    own_pid = os.getpid()
    # A scheduler sends SIGTERM to every process, but a training needs this worker until its step is finished. SIGPROF
    # must kill, even if the parent ignores it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    parent = Connection(os.dup(0))
    # A user's function may read standard input, and fill the pipe of standard error.
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 2)

    def send(reply: Reply) -> None:
        line = f"\n{token}{json.dumps(reply)}\n".encode()  # also behind what the function has written
        while line:
            line = line[os.write(parent.fileno(), line) :]

    try:
        call = KINDS[kind](*file)
    except Exception as error:
        send(Reply("failed", str(error) if isinstance(error, UserCodeError) else first_words(error)))
        return
    # Math-Verify treats a failed allocation as a failed comparison, so the peak is checked; this limit only stops huge
    # allocations.
    imported = 0
    if file:
        imported = _size_of("VmSize") or 0
    _restrict(resource.RLIMIT_AS, imported + 2 * int(memory_bytes))
    _restrict(resource.RLIMIT_CORE, 0)

    def bounded(arguments: list[object]) -> Reply:
        # The kernel kills this process, even inside C code.
        signal.setitimer(signal.ITIMER_PROF, float(deadline_s))
        try:
            return call(*arguments)
        except (MemoryError, RecursionError):
            return Reply("limit")
        except BaseException as error:  # also `sys.exit`
            return Reply("error", first_words(error))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    send(Reply("ready"))
    while True:
        try:
            calls = json.loads(parent.recv_bytes())
        except EOFError:
            return
        for arguments in calls:
            reply = bounded(arguments)
            if os.getpid() != own_pid:  # a fork by the user's function must not answer too
                os._exit(0)
            exceeded = peak_memory() > int(memory_bytes)
            send(Reply("limit") if exceeded else reply)
            if exceeded:
                return


def end_with_parent(pipe: int) -> None:
    """Let the kernel kill this process group, even inside C code, when the parent closes the pipe or is killed."""
    if hasattr(fcntl, "F_SETSIG"):  # Linux
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


def _number(item: Any) -> float | None:
    if isinstance(item, str | bytes):
        return None
    try:
        return float(item)
    except (TypeError, ValueError, OverflowError):
        return None


def peak_memory() -> int:
    """Return the largest resident size in bytes; `ru_maxrss` would include the parent's on Linux."""
    return _size_of("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def _size_of(name: str) -> int | None:
    try:
        with open("/proc/self/status", encoding="utf-8") as status:
            lines = [line for line in status if line.startswith(f"{name}:")]
    except OSError:
        return None
    return int(lines[0].split()[1]) * 1024 if lines else None


def _restrict(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


if __name__ == "__main__":
    main()
