"""Adapters on bfloat16 weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from g2d.policies.record import apply_adapter, load_base
from tests.models import adapted, tiny_policy


def test_autocast_changes_less_than_bfloat16_does(tmp_path: Path) -> None:
    """A trainer on a GPU multiplies with A and B in bfloat16, an engine in float32."""
    policy = adapted(tiny_policy(), tmp_path, std=1e-2)
    tokens = torch.randint(5, 200, (16, 32), generator=torch.Generator().manual_seed(0))

    def log_probs(model: Any) -> torch.Tensor:
        with torch.no_grad():
            return model.eval()(tokens).logits.float().log_softmax(-1)

    served, trained = (apply_adapter(load_base(policy).bfloat16(), tmp_path) for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16):
        of_trainer = log_probs(trained)
    exact = log_probs(apply_adapter(load_base(policy), tmp_path))
    own_error = (log_probs(served) - exact).abs().mean()
    assert (of_trainer - log_probs(served)).abs().mean() < 2 * own_error
