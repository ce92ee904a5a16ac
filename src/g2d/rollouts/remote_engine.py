"""An engine in another process: requests and answers over a connection, and accounting of what each answer cost."""

from __future__ import annotations

import traceback
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from g2d.jobs.usage import Elsewhere, charge, this_process

OWN = ("open", "leave")  # methods of the process that holds the engine; all others are methods of the engine


class RemoteEngine:
    """Client of an engine in another process; `died` is the error message if that process exits."""

    name = "vllm"

    def __init__(self, connection: Connection, died: str) -> None:
        self.connection = connection
        self._died = died

    def render(self, shown: Any) -> str:
        """See `Engine`."""
        return str(self.ask("render", shown))

    def request(self, problem_id: str, shown: Any) -> Any:
        """See `Engine`."""
        return self.ask("request", problem_id, shown)

    def generate(self, requests: Any, decoding: Any) -> Any:
        """See `Engine`."""
        return self.ask("generate", requests, decoding)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Run a method in the other process and return its result.

        Raises:
            ValueError: raised by the method.
            RuntimeError: the method failed otherwise, or the process died.
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
        """Record the resources that a call used."""
        charge(spent)


class EngineServer:
    """Server that opens an `engine` and runs requests; `name` is the prefix of failure messages."""

    def __init__(self, name: str = "") -> None:
        self.engine: Any = None
        self._name = name
        self._billed = 0.0  # CPU seconds already reported

    def answer(self, connection: Connection) -> None:
        """Answer requests until the engine fails, since the state of vLLM is then unknown.

        Raises an EOFError or OSError if the client has closed the connection or died.
        """
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
