"""vLLM in a subprocess of each process of a distributed training, which already is in a process group.

    python -m g2d.rollouts.trainer_engine TRAINER SOCKET       started by each training process

The subprocess sees only its trainer's GPU, and exits with its trainer.
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
from g2d.rollouts.remote_engine import EngineServer, RemoteEngine
from g2d.rollouts.settings import EngineSettings
from g2d.rollouts.weights_check import Reference


class SubprocessEngine(RemoteEngine):
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
        self.ask("start_for", prompt_texts, max_completion_length)

    def serve(self, policy: Policy) -> None:
        self.ask("serve", policy)

    def use_adapter(self, folder: str | Path | None) -> None:
        self.ask("use_adapter", folder)

    def compare(self, name: str, reference: Reference) -> None:
        self.ask("compare", name, reference)

    def draw(self, *arguments: Any) -> Any:
        return self.ask("draw", *arguments)

    def close(self) -> None:
        super().close()
        self._process.wait()
        charge(Elsewhere(-self._charged, 0))  # `wait` has counted them again

    def pay(self, spent: Elsewhere) -> None:
        """Record only CPU seconds: the trainer counts the GPU."""
        charge(Elsewhere(spent.cpu_s, 0))
        self._charged += spent.cpu_s


def _environment() -> dict[str, str]:
    """Copy the environment with only this process's GPU, and without variables of a distributed launch."""
    foreign = of_a_launcher()
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    number = int(os.environ.get("LOCAL_RANK", "0"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return environment | {"CUDA_VISIBLE_DEVICES": visible.split(",")[number] if visible else str(number)}


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # the trainer gets them too, and finishes its step
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        # Children of the trainer may hold the socket open.
        when_ends(sys.argv[1], lambda: os._exit(0))
        EngineServer("vLLM beside the trainer: ").answer(Connection(int(sys.argv[2])))
    sys.stdout.flush()
    os._exit(0)
