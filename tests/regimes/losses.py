"""Trainings of the tiny model, for tests of several regimes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from g2d.policies import PolicyRecord
from g2d.policies.model_keys import Lora
from g2d.regimes.run.job import Trained, TrainingJob
from tests.models import tiny_policy
from tests.regimes.test_resume import saving
from tests.regimes.test_training import steps_of


def losses(
    train: Callable[[TrainingJob], Trained],
    data: Any,
    settings: Any,
    work: Path,
    *,
    base: PolicyRecord | None = None,
    lora: Lora | None = None,
    **job: Any,
) -> list[dict[str, Any]]:
    """Train and return the rows of the log that have a loss."""
    job = {"seed": 0, "lora": lora or Lora(), "checkpointing": saving(work)} | job
    return steps_of(train(TrainingJob(base or tiny_policy(), data, settings, work=work, **job)).log)
