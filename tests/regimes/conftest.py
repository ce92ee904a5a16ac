"""Fixtures that several tests of trainings share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.regimes.stops import Clock

Seen = Callable[[Any, Any, dict[str, Any], torch.Tensor], None]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Seen], None]:
    """Call a function with GRPO's trainer, its model, every micro-batch and its loss."""
    from trl import GRPOTrainer

    from g2d.regimes.grpo.trainer import Grpo

    def install(seen: Seen) -> None:
        def compute_loss(self: Grpo, model: Any, inputs: dict[str, Any], **keywords: Any) -> torch.Tensor:
            loss = GRPOTrainer.compute_loss(self, model, inputs, **keywords)
            seen(self, model, inputs, loss)
            return loss

        monkeypatch.setattr(Grpo, "compute_loss", compute_loss)

    return install


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)
