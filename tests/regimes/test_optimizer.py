"""The optimizer's keys reach the trainer, and without them everything is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from trl import DPOConfig

from g2d.regimes.common.trainers import OptimizerKeys, trainer_arguments
from g2d.regimes.grpo.keys import Warmup

NAMES = ("adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm")


def arguments(tmp_path: Path, keys: OptimizerKeys | None) -> list[float]:
    settings = None if keys is None else Warmup(**keys.params(), learning_rate=0.25, lr_schedule="linear")
    made = DPOConfig(**trainer_arguments(tmp_path, 0, settings=settings))
    assert settings is None or (made.learning_rate, made.lr_scheduler_type) == (0.25, "linear")
    assert made.optim == "adamw_torch"
    return [getattr(made, name) for name in NAMES]


def test_without_the_keys_the_trainer_has_its_own_defaults(tmp_path: Path) -> None:
    assert arguments(tmp_path, None) == arguments(tmp_path, OptimizerKeys()) == [0.9, 0.999, 1e-8, 0.0, 1.0]
    assert OptimizerKeys().params() == {}


def test_every_key_reaches_the_trainer(tmp_path: Path) -> None:
    keys = OptimizerKeys(adam_betas=(0.8, 0.95), adam_epsilon=1e-4, max_grad_norm=0.3)
    assert arguments(tmp_path, keys) == [0.8, 0.95, 1e-4, 0.0, 0.3]
    assert OptimizerKeys.model_validate(keys.params()) == keys


@pytest.mark.parametrize("betas", [(0.9, 1.0), (-0.1, 0.9)])
def test_a_decay_that_never_forgets_or_turns_around_is_refused(betas: tuple[float, float]) -> None:
    with pytest.raises(ValidationError, match="at least 0 and below 1"):
        OptimizerKeys(adam_betas=betas)
