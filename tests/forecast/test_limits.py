"""Time limits follow the forecast, the attempt and the longest time of a partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from g2d.forecast.hours import GpuJob, Measured
from g2d.forecast.limits import LEAST, LONGEST, run_minutes
from g2d.jobs.cost import Cost

TRAINING = GpuJob("train_grpo", "mine", 1000.0, guess=0.002)  # two hours


def test_a_limit_is_three_times_the_guess_and_grows_with_the_attempt() -> None:
    assert run_minutes(TRAINING, {}, 1) == 360
    assert run_minutes(TRAINING, {}, 2) == 720
    assert run_minutes(TRAINING, {}, 3) == 1080


def test_measured_hours_are_preferred() -> None:
    four_hours = Measured(Cost("job", "train_grpo", 14400.0, 1.0, 1, "NVIDIA H100", 14400.0, 0, 0), 1000.0, 100)
    finished = {("train_grpo", "mine"): [four_hours], ("train_grpo", "other"): [replace(four_hours, units=1.0)]}
    assert run_minutes(TRAINING, finished, 1) == 720


@pytest.mark.parametrize("work", [GpuJob("evaluate", "mine", 2.0, guess=0.01), GpuJob("evaluate", "mine", 0.0)])
def test_a_short_job_has_time_to_start(work: GpuJob) -> None:
    assert run_minutes(work, {}, 1) == LEAST
    assert run_minutes(work, {}, 2) == 2 * LEAST


def test_no_limit_is_longer_than_the_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LONGEST, "400")
    assert [run_minutes(TRAINING, {}, attempt) for attempt in (1, 2)] == [360, 400]
