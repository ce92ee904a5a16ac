"""Trainings in two processes, compared with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from g2d.jobs.cost import Meter
from g2d.policies import PolicyRecord
from g2d.policies.model_keys import Lora
from g2d.regimes.distributed.launch import launched
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.run.processes import Processes
from g2d.regimes.run.regime import TrainingJob
from tests.regimes.trainings import pairs, saving, steps_of

TWO = Processes(processes=2)


def meter(job: str = "job") -> Meter:
    return Meter(job, "train")


def in_two(function: Callable[..., Any], folder: Path, /, *arguments: Any, job_meter: Meter | None = None) -> Any:
    folder.mkdir(exist_ok=True)
    log = folder / "job.log"
    return launched(function, arguments, training=TWO, work=folder, log=log, meter=job_meter or meter())


BY_ROWS = {"num_tokens", "rewards/margins", "logps/chosen", "reward"}


def assert_alike(log: list[dict[str, Any]], other: list[dict[str, Any]], logged: set[str] = BY_ROWS) -> None:
    rows, others = steps_of(log), steps_of(other)
    assert len(rows) == len(others) > 1
    assert any(row["grad_norm"] for row in rows)
    for row, same in zip(rows, others, strict=True):
        assert row["loss"] == pytest.approx(same["loss"], abs=1e-5)
        assert row["grad_norm"] == pytest.approx(same["grad_norm"], rel=1e-3, abs=1e-5)
        for name in {"learning_rate", "step", *logged} & {*row}:
            assert row[name] == pytest.approx(same[name], abs=1e-4), name


NO_DROPOUT = Lora(dropout=0.0)  # dropout depends on the batch of a process


DPO = Dpo(epochs=12, per_device_batch_size=4, gradient_accumulation_steps=2, learning_rate=2e-3)  # 24 steps


def dpo(work: Path, base: PolicyRecord, settings: Dpo = DPO, n: int = 16, **changes: Any) -> TrainingJob:
    values: dict[str, Any] = {"lora": NO_DROPOUT, "checkpointing": saving(work)}
    return TrainingJob(base, pairs(n, base), settings, seed=0, work=work, **values | changes)
