"""An engine in another process: one request and one answer at a time over a connection, and who pays for the answer."""

from __future__ import annotations

import traceback
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from g2d.jobs.usage import Elsewhere, charge, this_process

OWN = ("open", "leave")  # requests to whoever holds the engine; every other is a method of the engine


class RemoteEngine:
    """The asking end, of which the methods of an engine are made; `died` is the error if the other process has died."""

    name = "vllm"

    def __init__(self, connection: Connection, died: str) -> None:
        self.connection = connection
        self._died = died

    def render(self, shown: Any) -> str:
        """As `Engine`."""
        return str(self.ask("render", shown))

    def request(self, problem_id: str, shown: Any) -> Any:
        """As `Engine`."""
        return self.ask("request", problem_id, shown)

    def generate(self, requests: Any, decoding: Any) -> Any:
        """As `Engine`."""
        return self.ask("generate", requests, decoding)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Have the other process run a method.

        Raises:
            ValueError: what the method raised.
            RuntimeError: it failed otherwise, or its process died.
        """
        try:
            self.connection.send((method, arguments))
            failed, answer, spent = self.connection.recv()
        except (EOFError, OSError):
            raise RuntimeError(self._died) from None
        self.pay(spent)
        if failed:
            raise answer
        return answer

    def pay(self, spent: Elsewhere) -> None:
        """Put what an answer has cost on the bill."""
        charge(spent)


class Holder:
    """The answering process: it opens an `engine` and runs what it is asked; `name` begins the message of a failure."""

    def __init__(self, name: str = "") -> None:
        self.engine: Any = None
        self._name = name
        self._billed = 0.0  # CPU seconds

    def answer(self, connection: Connection) -> None:
        """Answer until the engine has failed (nobody knows what state vLLM is in then); an EOFError or OSError if
        whoever asks has closed the connection or died."""
        failed: Exception | None = None
        while not isinstance(failed, RuntimeError):
            method, arguments = connection.recv()
            answer, failed = None, None
            try:
                answer = getattr(self if method in OWN else self.engine, method)(*arguments)
            except ValueError as error:
                failed = ValueError(str(error))
            except Exception as error:
                traceback.print_exc()
                failed = RuntimeError(f"{self._name}{type(error).__name__}: {error}")
            now = this_process()
            spent, self._billed = replace(now, cpu_s=now.cpu_s - self._billed), now.cpu_s
            connection.send((failed is not None, failed or answer, spent))
