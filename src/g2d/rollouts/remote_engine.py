"""An engine in another process, which answers with its costs over a connection."""

from __future__ import annotations

import traceback
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from g2d.jobs.usage import Elsewhere, charge, this_process

if TYPE_CHECKING:
    from g2d.policies.policy import Policy
    from g2d.rollouts.settings import EngineSettings
    from g2d.rollouts.vllm_engine import VllmEngine

OWN = ("open", "leave")  # methods of the process; all others are the engine's


class RemoteEngine:
    """Client with the interface of `Engine`, without torch. `died` is the error if the other process exits."""

    name = "vllm"

    def __init__(self, connection: Connection | None, died: str) -> None:
        self.connection = connection
        self.died = died

    def render(self, shown: Any) -> str:
        return str(self.ask("render", shown))

    def request(self, problem_id: str, shown: Any) -> Any:
        return self.ask("request", problem_id, shown)

    def generate(self, requests: Any, decoding: Any) -> Any:
        return self.ask("generate", requests, decoding)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Run a method in the other process; ValueErrors are its own, a RuntimeError is any other failure."""
        assert self.connection is not None
        try:
            self.connection.send((method, arguments))
            failed, answer, spent = self.connection.recv()
        except (EOFError, OSError):
            raise RuntimeError(self.died) from None
        self.pay(spent)
        if failed:
            raise answer
        return answer

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def pay(self, spent: Elsewhere) -> None:
        charge(spent)


class EngineServer:
    """Server that opens an engine and runs requests; `name` is the prefix of failure messages."""

    def __init__(self, name: str = "") -> None:
        self.engine: VllmEngine | None = None
        self._name = name
        self._billed = 0.0  # CPU seconds already reported

    def open(self, policy: Policy, settings: EngineSettings, keywords: dict[str, Any]) -> None:
        from g2d.rollouts.vllm_engine import VllmEngine

        self.engine = VllmEngine(policy, settings, **keywords)

    def answer(self, connection: Connection) -> None:
        """Answer requests until the engine fails; an EOFError or OSError if the client has gone."""
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
