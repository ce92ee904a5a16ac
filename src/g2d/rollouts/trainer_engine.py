"""vLLM in a subprocess of each process of a distributed training: the process itself is in a process group already.

    python -m g2d.rollouts.trainer_engine TRAINER SOCKET       started by each training process

The subprocess sees only its trainer's GPU, and exits with its trainer.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g2d.jobs.cost import Elsewhere, charge, cpu_seconds
from g2d.jobs.environment import launcher_variables
from g2d.jobs.orphans import name_of, when_ends
from g2d.policies.record import PolicyRecord
from g2d.problems.prompts import Messages
from g2d.rollouts.engine import Completion, Decoding, Request
from g2d.rollouts.rollout_keys import EngineSettings
from g2d.rollouts.weights_check import Reference

if TYPE_CHECKING:
    from g2d.rollouts.vllm_engine import VllmEngine

Call = tuple[str, tuple[object, ...]]  # method of the engine, arguments
Answer = tuple[bool, Any, float]  # whether it failed, its result or error, CPU seconds of the subprocess so far


class SubprocessEngine:
    """A `VllmEngine` in a subprocess. Its errors are ValueErrors, or RuntimeErrors after which it has ended."""

    name = "vllm"

    def __init__(self, policy: PolicyRecord, settings: EngineSettings, **keywords: Any) -> None:
        self._charged = 0.0  # CPU seconds
        ours, its = socket.socketpair()
        command = [sys.executable, "-m", __name__, name_of(os.getpid()), str(its.fileno())]
        self._process = subprocess.Popen(command, env=_environment(), pass_fds=[its.fileno()])
        its.close()
        self.process = self._process.pid
        self._connection = Connection(ours.detach())
        self._ask("open", policy, settings, keywords)

    def request(self, problem_id: str, conversation: Messages) -> Request:
        request: Request = self._ask("request", problem_id, conversation)
        return request

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        completions: list[list[Completion]] = self._ask("generate", requests, decoding)
        return completions

    def start_for(self, requests: Sequence[Request], max_completion_length: int) -> None:
        self._ask("start_for", requests, max_completion_length)

    def serve(self, policy: PolicyRecord) -> None:
        self._ask("serve", policy)

    def use_adapter(self, folder: str | Path | None) -> None:
        self._ask("use_adapter", folder)

    def compare(self, name: str, reference: Reference) -> None:
        self._ask("compare", name, reference)

    def draw(
        self, prompts: Sequence[Sequence[int]], names: Sequence[str], decoding: Decoding
    ) -> tuple[list[list[int]], list[list[float]]]:
        drawn: tuple[list[list[int]], list[list[float]]] = self._ask("draw", prompts, names, decoding)
        return drawn

    def close(self) -> None:
        self._connection.close()
        self._process.wait()
        charge(Elsewhere(-self._charged, 0))  # `wait` has counted them again

    def _ask(self, method: str, *arguments: object) -> Any:
        call: Call = (method, arguments)
        try:
            self._connection.send(call)
            answer: Answer = self._connection.recv()
        except (EOFError, OSError):
            raise RuntimeError(f"vLLM beside the trainer (process {self.process}) died: see this log") from None
        failed, result, cpu_s = answer
        charge(Elsewhere(cpu_s - self._charged, 0))  # the trainer counts the GPU
        self._charged = cpu_s
        if failed:
            raise result
        return result


def _environment() -> dict[str, str]:
    """Copy the environment with only this process's GPU, and without variables of a distributed launch."""
    foreign = launcher_variables()
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    number = int(os.environ.get("LOCAL_RANK", "0"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[number]
    else:
        environment["CUDA_VISIBLE_DEVICES"] = str(number)
    return environment


def serve(connection: Connection) -> None:
    """Answer calls until the engine fails; an EOFError or OSError if the trainer has gone."""
    engine: VllmEngine | None = None
    failed: Exception | None = None
    while not isinstance(failed, RuntimeError):
        method, arguments = connection.recv()
        result = None
        failed = None
        try:
            if method == "open":
                engine = _opened(*arguments)
            else:
                result = getattr(engine, method)(*arguments)
        except ValueError as error:
            failed = ValueError(str(error))
        except Exception as error:
            traceback.print_exc()
            failed = RuntimeError(f"vLLM beside the trainer: {type(error).__name__}: {error}")
        answer: Answer = (failed is not None, failed or result, cpu_seconds())
        connection.send(answer)


def _opened(policy: PolicyRecord, settings: EngineSettings, keywords: dict[str, Any]) -> VllmEngine:
    from g2d.rollouts.vllm_engine import VllmEngine

    return VllmEngine(policy, settings, **keywords)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # the trainer gets them too, and finishes its step
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        # Children of the trainer may hold the socket open.
        when_ends(sys.argv[1], lambda: os._exit(0))
        serve(Connection(int(sys.argv[2])))
    sys.stdout.flush()
    os._exit(0)
