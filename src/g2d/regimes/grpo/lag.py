"""A constant lag: before update t, the generator has the weights after update max(0, t - 1 - v)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from g2d.jobs.cost import Meter
from g2d.jobs.files import DiskError, copy_folder, disk_errors
from g2d.plain import say
from g2d.regimes.run.checkpoints import KEPT
from g2d.regimes.run.weights import load_weights, save_trained

ADAPTERS = "earlier"  # folder of earlier policies, by their number of updates


class Lag:
    """Weights after each of the last updates, in v + 1 folders, and the times of the updates."""

    def __init__(self, updates: int, steps: int, work: Path, meter: Meter) -> None:
        self.updates, self.meter = updates, meter
        self._work, self._most = work, min(updates, steps)
        self.generation: list[float] = []  # seconds per update
        self.training: list[float] = []
        self._began = self._drawn = 0.0
        self._folder = work / ADAPTERS
        self.close()

    @contextmanager
    def generator(self, model: Any, step: int) -> Iterator[None]:
        current = self._folder / str(step)
        if not current.is_dir():
            self._end_training()
            self._began = time.perf_counter()
            self.generation.append(0.0)
            with disk_errors(self._folder):
                save_trained(model, current)
            if len(self.generation) == 1:
                self._require_room(sum(file.stat().st_size for file in current.iterdir()))
            for old in self._kept()[: -self.updates - 1]:
                shutil.rmtree(old)
        load_weights(model, self._folder / str(max(0, step - self.updates)), "default")
        try:
            yield
        finally:
            load_weights(model, current, "default")
            self._drawn = time.perf_counter()
            self.generation[-1] = self._drawn - self._began

    def _require_room(self, size: int) -> None:
        """Log the disk space that policies of `size` bytes need; raise a DiskError if it is not free."""
        say(f"lag: every checkpoint has up to {self._most} earlier policies, {self._most * size / 1e9:.2g} GB")
        existing = len([*self._work.glob(f"**/{ADAPTERS}/*")])
        missing = ((KEPT + 2) * self._most + 1 - existing) * size  # v + 1 here, v in each checkpoint and in a new one
        if (free := shutil.disk_usage(self._work).free) < missing:
            raise DiskError(
                f"{self._work}: warmup.lag={self.updates} needs {missing / 1e9:.3g} GB for earlier policies, and "
                f"{free / 1e9:.3g} GB are free: make room, or lower warmup.lag, then run the same command again"
            )

    def _end_training(self) -> None:
        if len(self.generation) > len(self.training):
            self.training.append(time.perf_counter() - self._drawn)

    def _kept(self) -> list[Path]:
        return sorted(self._folder.iterdir(), key=lambda folder: int(folder.name))

    def save(self, checkpoint: Path) -> None:
        for folder in self._kept()[-self.updates :]:
            copy_folder(folder, checkpoint / ADAPTERS / folder.name)
        self._end_training()
        self.meter.overlap_s = overlap_s(self.generation, self.training, self.updates)

    def restore(self, checkpoint: Path) -> None:
        self.close()
        copy_folder(checkpoint / ADAPTERS, self._folder)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def overlap_s(generation: Sequence[float], training: Sequence[float], lag: int) -> float:
    """Return seconds that a second device for generation would save; arguments are seconds per update.

    A generation waits for the previous one and its weights, an update for its rollouts and the previous update.
    """
    generated, ends = 0.0, [0.0]  # ends[t]: after update t
    for step, (draw, update) in enumerate(zip(generation, training, strict=True)):
        generated = max(generated, ends[max(0, step - lag)]) + draw
        ends.append(max(generated, ends[step]) + update)
    return sum(generation) + sum(training) - ends[-1]
