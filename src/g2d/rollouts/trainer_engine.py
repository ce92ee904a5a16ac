"""vLLM beside a trainer: in the trainer's process, or in a process of its own beside each of several that train.

vLLM's engine begins a process group, and a process that trains with others is in one already. So each of these starts

    python -m g2d.rollouts.trainer_engine TRAINER SOCKET       what a training's process starts; nobody types it

with its own GPU as the only one, and asks it over a pair of sockets. It is the same `TrainerEngine`, adapters travel as
folders, and it ends with whoever started it, however that ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from g2d.jobs.launchers import of_a_launcher
from g2d.jobs.orphans import name_of, watched, when_ends
from g2d.jobs.usage import Elsewhere, charge, this_process, visible_devices
from g2d.policies.policy import Policy, load_tokenizer
from g2d.problems.prompts import Messages, render
from g2d.rollouts.engine import Completion, Decoding, Request
from g2d.rollouts.settings import EngineSettings
from g2d.rollouts.vllm_engine import VllmEngine


class TrainerEngine(VllmEngine):
    """An engine that a trainer asks for tokens."""

    def draw(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], decoding: Decoding
    ) -> tuple[list[list[int]], list[list[float]]]:
        """A completion of every tokenized prompt: its tokens, the end of the turn included, and the log-probability of
        each under the distribution that it was drawn from."""
        outputs = self.complete(prompts, seeds, decoding, log_probabilities=True)
        drawn = [output.outputs[0] for output in outputs]
        log_probabilities = [
            [entry[token].logprob for token, entry in zip(sample.token_ids, sample.logprobs, strict=True)]
            for sample in drawn
        ]
        return [list(sample.token_ids) for sample in drawn], log_probabilities


class EngineAside:
    """A `TrainerEngine` in a process of its own, with the methods that a training calls.

    Args:
        policy: M0.
        settings: as for `TrainerEngine`, whose other arguments are `keywords`.

    Raises:
        ValueError: (by its methods) what `TrainerEngine` would raise.
        RuntimeError: (by its methods) the engine failed, or its process died; its output is in the log.
    """

    name = "vllm"

    def __init__(self, policy: Policy, settings: EngineSettings, **keywords: Any) -> None:
        self.tokenizer = load_tokenizer(policy)
        self._charged = 0.0  # CPU seconds
        ours, its = socket.socketpair()
        command = [sys.executable, "-m", __name__, name_of(os.getpid()), str(its.fileno())]
        self._process = subprocess.Popen(command, env=_environment(), pass_fds=[its.fileno()])
        its.close()
        self._connection = Connection(ours.detach())
        self._ask("open", policy, settings, keywords)

    @property
    def process(self) -> int:
        """Its process."""
        return self._process.pid

    def render(self, messages: Messages) -> str:
        """The conversation in the model's chat template, ready for the assistant's turn."""
        return render(self.tokenizer, messages)

    def start_for(self, prompt_texts: Iterable[str], max_completion_length: int) -> None:
        """See `VllmEngine`."""
        self._ask("start_for", list(prompt_texts), max_completion_length)

    def use_adapter(self, folder: str | Path) -> None:
        """See `VllmEngine`."""
        self._ask("use_adapter", str(folder))

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """See `VllmEngine`."""
        completions: list[list[Completion]] = self._ask("generate", list(requests), decoding)
        return completions

    def draw(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], decoding: Decoding
    ) -> tuple[list[list[int]], list[list[float]]]:
        """See `TrainerEngine`."""
        drawn: tuple[list[list[int]], list[list[float]]] = self._ask("draw", prompts, seeds, decoding)
        return drawn

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.wait()
        self._charge(-self._charged)  # which the wait has put on the bill

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            self._connection.send((method, arguments))
            failed, answer, cpu_s = self._connection.recv()
        except (EOFError, OSError):
            raise RuntimeError(f"vLLM beside the trainer (process {self.process}) died: see this log") from None
        self._charge(cpu_s - self._charged)
        if failed:
            raise answer
        return answer

    def _charge(self, cpu_s: float) -> None:
        device, devices = visible_devices()
        charge(Elsewhere(cpu_s, 0, device, devices))
        self._charged += cpu_s


def _environment() -> dict[str, str]:
    """This process's, with its own GPU as the only one and without what makes it one of several."""
    own = {name: value for name, value in os.environ.items() if name not in of_a_launcher(os.environ)}
    number = int(os.environ.get("LOCAL_RANK", "0"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return own | {"CUDA_VISIBLE_DEVICES": visible.split(",")[number] if visible else str(number)}


def _serve(connection: Connection) -> None:
    """Do what is asked until whoever asks is gone."""
    engine: Any = None
    while True:
        method, arguments = connection.recv()
        answer: Any = None
        failed = False
        try:
            if method == "open":
                policy, settings, keywords = arguments
                engine = TrainerEngine(policy, settings, **keywords)
            else:
                answer = getattr(engine, method)(*arguments)
        except ValueError as error:
            failed, answer = True, ValueError(str(error))
        except Exception as error:
            traceback.print_exc()
            failed, answer = True, RuntimeError(f"vLLM beside the trainer: {type(error).__name__}: {error}")
        connection.send((failed, answer, this_process().cpu_s))


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # the trainer has them too, and finishes its step
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, OSError):
        # Its end of the sockets alone would not do: what the trainer has forked may hold it.
        if (trainer := watched(sys.argv[1])) is not None:
            when_ends(trainer, lambda: os._exit(0))
        _serve(Connection(int(sys.argv[2])))
    sys.stdout.flush()
    os._exit(0)
