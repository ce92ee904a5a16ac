"""Logits of a whole pass give the values and gradients of TRL's tiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trl.trainer import utils

from g2d.regimes.common import shared_prompts
from g2d.regimes.common.shared_prompts import WholeLogits, whole_logits

OUTPUTS = ("log_probs", "entropy", "mean_logits", "is_top1")


def scored(weight: torch.Tensor, autocast: bool, outputs: tuple[str, ...]) -> tuple[list[Any], torch.Tensor]:
    """Return the outputs, and the gradient of a weighted sum of the differentiable ones."""
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(40, weight.shape[1], generator=generator, requires_grad=True)
    targets = torch.randint(len(weight), (40,), generator=generator)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        values = utils._ChunkedLogProbFunction.apply(states, weight, None, targets, 0.8, 64, None, 1.0, outputs)
    weights = torch.arange(40) % 7 - 3.0
    total = (values[0] * weights).sum() + (0.1 * values[1] * weights).sum() if "entropy" in outputs else values[0].sum()
    total.backward()
    assert states.grad is not None
    return [None if value is None else value.detach() for value in values], states.grad


@pytest.mark.parametrize("outputs", [OUTPUTS, ("log_probs",)])
@pytest.mark.parametrize(("autocast", "apart"), [(False, 1e-5), (True, 2e-2)])
def test_values_and_gradients_equal_tiles(autocast: bool, apart: float, outputs: tuple[str, ...]) -> None:
    weight = torch.randn(300, 32, generator=torch.Generator().manual_seed(0)) / 4
    tiles, gradient = scored(weight, autocast, outputs)
    with whole_logits():
        whole, whole_gradient = scored(weight, autocast, outputs)
    for value, other in zip(whole, tiles, strict=True):
        assert (value is None) == (other is None)
        if value is not None:
            torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(whole_gradient, gradient, rtol=apart, atol=apart)


@pytest.mark.parametrize("trained", [True, False])
def test_a_trained_head_and_many_tokens_have_tiles(monkeypatch: pytest.MonkeyPatch, trained: bool) -> None:
    monkeypatch.setattr(WholeLogits, "apply", lambda *_: pytest.fail("all logits at once"))
    monkeypatch.setattr(shared_prompts, "MOST_LOGITS", 2**26 if trained else 300 * 40 - 1)
    theirs = utils._ChunkedLogProbFunction
    with whole_logits():
        scored(torch.zeros(300, 32, requires_grad=trained), False, OUTPUTS)
    assert utils._ChunkedLogProbFunction is theirs
