"""Rollouts of a process of its own are those of this one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from g2d.problems.prompts import Prompt
from g2d.problems.synthetic import generate
from g2d.rollouts.engine import Decoding
from g2d.rollouts.own_process import SamplingJob, sample, sample_in_own_process
from g2d.rollouts.rollout_keys import EngineSettings
from tests.models import tiny_policy

DECODING = Decoding(samples_per_prompt=2, temperature=1.0, top_p=1.0, max_completion_length=4, batch_size=4, seed=0)


@pytest.fixture
def draw() -> SamplingJob:
    problems = generate("arithmetic", "train", 3, seed=0)
    return SamplingJob(tiny_policy(), problems, Prompt(), DECODING, EngineSettings(), None, workers=1)


def test_another_process_samples_the_same(draw: SamplingJob) -> None:
    assert sample_in_own_process(draw) == sample(draw)


def test_its_failure_stops_this_process_too(draw: SamplingJob, capfd: pytest.CaptureFixture[str]) -> None:
    too_long = replace(draw, decoding=replace(DECODING, max_completion_length=10_000))
    with pytest.raises(RuntimeError, match=r"in a process of its own \(status 1\)"):
        sample_in_own_process(too_long)
    assert "max_completion_length=10000" in capfd.readouterr().err
