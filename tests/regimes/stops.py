"""Trainings that are stopped and resumed, and their costs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.cost import Cost, Meter
from g2d.regimes.common.checkpoints import Checkpoints, TrainingStoppedError
from tests.regimes.trainings import adapter_digest, rows_of


@contextmanager
def terminated_after(last: int, by: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    """This process receives a signal right after the checkpoint of a step; the step that follows is then the last."""
    add = Checkpoints.add

    def add_and_signal(self: Checkpoints, draft: Path, step: int) -> None:
        add(self, draft, step)
        if step == last:
            signal.raise_signal(by)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "add", add_and_signal)
        yield


def assert_resumes(
    train: Callable[[Path], list[dict[str, Any]]], folder: Path, *steps: int, after: int | None = None
) -> list[dict[str, Any]]:
    """Compare a run that is stopped at each of these steps with an uninterrupted one, and return its log.

    The signal comes `after` a step; without it, in the step before.
    """
    straight = train(folder / "straight")
    for step in steps:
        with terminated_after(after or step - 1), pytest.raises(TrainingStoppedError, match=f"at step {step} of"):
            train(folder / "stopped")
    assert train(folder / "stopped") == straight
    assert adapter_digest(folder / "stopped") == adapter_digest(folder / "straight")
    if (folder / "straight/rollouts.parquet").exists():
        pd.testing.assert_frame_equal(rows_of(folder / "straight"), rows_of(folder / "stopped"))
    return straight


class Clock:
    """A clock that tests advance by hand, and an attempt measured with it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        patch.setattr("g2d.jobs.cost.time", SimpleNamespace(perf_counter=lambda: self.now))
        patch.setattr("g2d.jobs.cost.cpu_seconds", lambda: 2 * self.now)
        add = Checkpoints.add

        def add_after_a_step(checkpoints: Checkpoints, draft: Path, step: int) -> None:
            self.now += STEP_S
            add(checkpoints, draft, step)

        patch.setattr(Checkpoints, "add", add_after_a_step)

    def attempt(self) -> Meter:
        return Meter("job", "stage", began=self.now, cpu_before=2 * self.now)


STEP_S = 10
START_S = 3
LOST_S = 1


BILLED = ("wall_s", "cpu_s", "device_s", "tokens_generated")


def interrupted(clock: Clock, train: Callable[[Meter], Any], last: int) -> tuple[Cost, Cost, Cost]:
    """Return the costs of an attempt stopped after `last` + 1 steps and of the resumed one, and their sum."""
    first = clock.attempt()
    clock.now += START_S
    with terminated_after(last), pytest.raises(TrainingStoppedError):
        train(first)
    clock.now += LOST_S  # after the last checkpoint
    lost = first.end()
    second = clock.attempt()
    clock.now += START_S
    train(second)
    kept = second.end()
    bill = second.spent()
    assert second.carried is not None
    for name in BILLED:
        assert getattr(bill, name) == getattr(second.carried, name) + getattr(kept, name), name
    assert lost.wall_s - second.carried.wall_s == LOST_S
    assert lost.tokens_generated == second.carried.tokens_generated
    return lost, kept, bill
