"""Device of forecast hours: GPU-hours of a card, or core-hours on a machine without one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

from g2d.jobs.cost import Cost
from g2d.jobs.environment import visible_gpus

WIDTH = 1024
ROUNDS = 3


@dataclass(frozen=True)
class Device:
    is_card: bool
    unit: str
    caveat: str

    def hours(self, cost: Cost) -> float:
        """Return a job's hours on such a device; 0 if it ran on the other kind."""
        ran_on_card = cost.device != "cpu"
        if ran_on_card is not self.is_card:
            return 0.0
        if self.is_card:
            return cost.device_s / 3600
        return cost.cpu_s / 3600


CARD = Device(True, "GPU-hours", "a guess, from size and tokens, is for one H100 and within a factor of 3")
CORE = Device(False, "CPU hours", "core-hours on this machine, guessed from a matrix product")


def device_here(engine: str, *, elsewhere: bool = False) -> Device:
    if elsewhere or engine == "vllm" or visible_gpus():
        return CARD
    return CORE


@cache
def core_operations() -> float:
    import numpy as np

    matrix = np.ones((WIDTH, WIDTH), dtype=np.float32)
    spent = []
    for _ in range(ROUNDS):
        began = time.process_time()  # CPU time of all threads
        matrix @ matrix
        spent.append(time.process_time() - began)
    return float(2 * WIDTH**3 / max(min(spent), 1e-6))
