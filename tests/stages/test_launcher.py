"""Variables of torchrun and accelerate in a user's shell, with which a training would wait for other processes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from g2d.jobs.environment import forget_launcher
from g2d.policies.model_keys import Lora
from g2d.policies.record import PolicyRecord
from g2d.regimes.common.regime import Trained, TrainingJob
from g2d.regimes.offline.dpo import DPO, Dpo
from g2d.stages.train_policy import GridTraining

FOREIGN = {"WORLD_SIZE": "4", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "there", "ACCELERATE_USE_CPU": "true"}


@pytest.fixture(autouse=True)
def launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (FOREIGN | {"LOCAL_SCRATCH": "here"}).items():
        monkeypatch.setenv(name, value)


def test_they_are_deleted_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    forget_launcher()
    assert not FOREIGN.keys() & os.environ.keys()
    assert os.environ["LOCAL_SCRATCH"] == "here"
    assert capsys.readouterr().out.startswith("WORLD_SIZE=4 is ignored: ")
    forget_launcher()
    assert capsys.readouterr().out == ""


def test_a_training_does_not_see_them(tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    def train(job: TrainingJob) -> Trained:
        seen.update(os.environ)
        return Trained([])

    regime = replace(DPO, read=lambda job, inputs: [], train=train)
    job = TrainingJob(PolicyRecord("m/base", "m", "base", base="m"), None, Dpo(), lora=Lora(), seed=0, work=tmp_path)
    GridTraining(SimpleNamespace(input=[]), regime, job).train()
    assert seen["LOCAL_SCRATCH"] == "here"
    assert not FOREIGN.keys() & seen.keys()
