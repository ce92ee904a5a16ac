"""Weights for the mismatch between engine and trainer: every key does something, its neutral value what was before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from g2d.regimes.grpo import train as grpo_train
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.trainer import Grpo, masked_log_ratios, out_of_bounds
from tests.regimes.test_off_policy import warm_up
from tests.regimes.trainings import log_probabilities

CAP = 1.5
FLOOR = 0.5


class AnotherEngine:
    """Completions of three tokens, some of which the trainer takes for likelier and some for less likely."""

    uses_vllm = True

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def sync(self, step: int) -> None: ...

    def sample(self, prompts: list[list[int]], names: list[str]) -> Any:
        tokens = [[5 + i % 7, 6 + i % 5, 7 + i % 3] for i in range(len(prompts))]
        return tokens, [[-1.0 - 4 * (i % 8)] * 3 for i in range(len(prompts))]

    def close(self) -> None: ...


@pytest.fixture
def _another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_train, "Sampler", AnotherEngine)


def log_ratios_of(trainer: Grpo, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    with torch.no_grad():  # the first step: the adapter is still nothing
        return log_probabilities(trainer, model, inputs) - inputs["sampling_per_token_logps"]


def by_hand(correction: str, floor: float, log_ratios: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights, and which of them were out of bounds."""
    weights = (log_ratios if correction.startswith("token") else log_ratios.sum(dim=1, keepdim=True)).exp()
    outside = (weights > CAP) | (weights < floor)
    kept = weights.clamp(floor, CAP) if correction.endswith("truncate") else weights.where(~outside, 0.0)
    return kept, outside


@pytest.mark.usefixtures("_another_engine")
@pytest.mark.parametrize(
    ("correction", "floor"),
    [("sequence_mask", None), ("token_truncate", None), ("token_mask", FLOOR), ("token_truncate", FLOOR)],
)
def test_weights_and_their_count_follow_the_keys(
    tmp_path: Path, watch: Any, correction: str, floor: float | None
) -> None:
    compared: list[tuple[torch.Tensor, torch.Tensor]] = []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        weights, capped = by_hand(correction, floor or 0.0, log_ratios_of(trainer, model, inputs))
        torch.testing.assert_close(inputs["importance_sampling_ratio"], weights, rtol=1e-4, atol=1e-5)
        compared.append((weights, capped))

    watch(seen)
    [row] = warm_up(tmp_path, {"correction": correction, "correction_cap": CAP, "correction_floor": floor}, 1)
    weights, capped = (torch.cat(parts) for parts in zip(*compared, strict=True))
    assert 0 < capped.float().mean() < 1
    assert row["sampling/capped"] == pytest.approx(capped.float().mean().item())
    assert row["sampling/importance_sampling_ratio/mean"] == pytest.approx(weights.mean().item(), rel=1e-4)


def test_the_bounds_by_hand() -> None:
    sampled, mask = torch.tensor([[-1.0, -1.0, -9.0], [1.0, torch.nan, -0.5]]), torch.tensor([[1, 1, 0], [1, 1, 1]])
    log_ratios = masked_log_ratios(torch.zeros(2, 3), sampled, mask)
    assert log_ratios.tolist() == [[1.0, 1.0, 0.0], [-1.0, 0.0, 0.5]]  # 0: padding, and no log-probability was given
    assert out_of_bounds(log_ratios, mask, (0.0, 2.0), of_tokens=False).tolist() == [1, 2]
    assert out_of_bounds(log_ratios, mask, (0.0, 1.5), of_tokens=True).tolist() == [3, 5]
    assert out_of_bounds(log_ratios, mask, (0.5, 1.5), of_tokens=True).tolist() == [4, 5]


def test_neutral_values_are_trls_and_no_parameters() -> None:
    fixed = {
        "vllm_importance_sampling_mode": "sequence_mask",
        "vllm_importance_sampling_clip_max": 3.0,
        "vllm_importance_sampling_clip_min": None,
    }
    assert Warmup().mismatch_arguments == fixed
    assert Warmup(correction="sequence_mask", correction_cap=3).params() == Warmup().params()
    assert Warmup(correction="token_truncate").params().keys() - Warmup().params().keys() == {"correction"}
