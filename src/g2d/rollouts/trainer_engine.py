"""vLLM in a process of its own, beside each of several processes that train: vLLM begins a process group, and a process
that trains with others is in one already.

    python -m g2d.rollouts.trainer_engine TRAINER SOCKET       started by each of these

It sees its trainer's GPU alone, reads adapters from folders, and ends with its trainer.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from g2d.jobs.launchers import of_a_launcher
from g2d.jobs.orphans import name_of, when_ends
from g2d.jobs.usage import Elsewhere, charge
from g2d.policies.policy import Policy
from g2d.rollouts.remote_engine import Holder, RemoteEngine
from g2d.rollouts.settings import EngineSettings
from g2d.rollouts.vllm_engine import VllmEngine


class EngineAside(RemoteEngine):
    """A `VllmEngine` in a process of its own."""

    def __init__(self, policy: Policy, settings: EngineSettings, **keywords: Any) -> None:
        self._charged = 0.0  # CPU seconds
        ours, its = socket.socketpair()
        command = [sys.executable, "-m", __name__, name_of(os.getpid()), str(its.fileno())]
        self._process = subprocess.Popen(command, env=_environment(), pass_fds=[its.fileno()])
        its.close()
        self.process = self._process.pid
        died = f"vLLM beside the trainer (process {self.process}) died: see this log"
        super().__init__(Connection(ours.detach()), died)
        self.ask("open", policy, settings, keywords)

    def start_for(self, prompt_texts: Iterable[str], max_completion_length: int) -> None:
        """As `VllmEngine`."""
        self.ask("start_for", prompt_texts, max_completion_length)

    def use_adapter(self, folder: str | Path | None) -> None:
        """As `VllmEngine`."""
        self.ask("use_adapter", folder)

    def draw(self, *arguments: Any) -> Any:
        """As `VllmEngine`."""
        return self.ask("draw", *arguments)

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        self._process.wait()
        charge(Elsewhere(-self._charged, 0))  # which the wait has put on the bill

    def pay(self, spent: Elsewhere) -> None:
        """Charge the CPU seconds: the trainer has its GPU on the bill."""
        charge(Elsewhere(spent.cpu_s, 0))
        self._charged += spent.cpu_s


def _environment() -> dict[str, str]:
    """This process's, with its own GPU as the only one and without what makes it one of several."""
    foreign = of_a_launcher()
    own = {name: value for name, value in os.environ.items() if name not in foreign}
    number = int(os.environ.get("LOCAL_RANK", "0"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return own | {"CUDA_VISIBLE_DEVICES": visible.split(",")[number] if visible else str(number)}


class Aside(Holder):
    """The process beside the trainer."""

    def open(self, policy: Policy, settings: EngineSettings, keywords: dict[str, Any]) -> None:
        """Hold the engine."""
        self.engine = VllmEngine(policy, settings, **keywords)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # the trainer has them too, and finishes its step
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        # Its end of the sockets alone would not do: what the trainer has forked may hold it.
        when_ends(sys.argv[1], lambda: os._exit(0))
        Aside("vLLM beside the trainer: ").answer(Connection(int(sys.argv[2])))
    sys.stdout.flush()
    os._exit(0)
