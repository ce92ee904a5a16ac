"""Rounding at random: right on average, the same by its seed, and what it keeps of a small merged adapter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from g2d.policies.adapter_rounding import round_stochastically, to_bfloat16
from g2d.policies.policy import load_model
from g2d.rollouts.settings import EngineSettings
from g2d.rollouts.vllm_engine import VllmEngine
from tests.models import adapted, tiny_policy


def rounded(weights: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return to_bfloat16(weights, torch.Generator().manual_seed(seed)).float()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.9])
def test_a_number_becomes_a_neighbour_and_is_kept_on_average(sign: int, share: float) -> None:
    step, n = 2**-7, 20_000  # spacing between 1 and 2
    drawn = rounded(torch.full((n,), sign * (1.5 + share * step)))
    assert {*drawn.tolist()} <= {sign * 1.5, sign * (1.5 + step)}
    above = (drawn.abs() > 1.5).float().mean()
    assert above == pytest.approx(share, abs=5 * (share * (1 - share) / n) ** 0.5 + 1e-9)


def test_many_weights_are_unbiased_and_follow_from_the_seed() -> None:
    weights = torch.randn(200_000, generator=torch.Generator().manual_seed(1)) * 0.02
    errors = rounded(weights) - weights
    assert abs(errors.mean()) < 5 * errors.std() / len(errors) ** 0.5
    assert errors.abs().max() <= weights.abs().max() * 2**-7
    assert torch.equal(rounded(weights), rounded(weights))
    assert not torch.equal(rounded(weights), rounded(weights, seed=1))


def test_bfloat16_numbers_are_unchanged() -> None:
    weights = (torch.randn(1000) * 0.02).bfloat16()
    assert torch.equal(rounded(weights.float()), weights.float())


def test_a_small_merged_adapter_is_kept_on_average() -> None:
    """One layer of bfloat16 numbers, as `effect_left` of applied adapters."""
    torch.manual_seed(0)
    width = 512
    base = (torch.randn(width, width) * 0.02).bfloat16().float()
    change = 2 * (torch.randn(width, 16) * 1e-4) @ (torch.randn(16, width) * 0.02)

    def kept(merged: torch.Tensor) -> float:
        return float(((merged - base) * change).sum() / change.square().sum())

    assert kept((base + change).bfloat16().float()) < 0.6
    assert kept(rounded(base + change)) == pytest.approx(1, abs=0.2)


def test_vllm_gets_rounded_weights_only_with_the_key(tmp_path: Path) -> None:
    policy = adapted(tiny_policy(), tmp_path / "adapter", std=1e-3)

    def merged(adapters: str) -> dict[str, torch.Tensor]:
        engine = VllmEngine(policy, EngineSettings.model_validate({"name": "vllm", "adapters": adapters}))
        return load_file(Path(engine._weights()) / "model.safetensors")

    exact, half, again = merged("merge"), merged("merge_bfloat16"), merged("merge_bfloat16")
    model = load_model(policy, exact=True)
    round_stochastically(model, str(policy.weights_sha256))
    for name, weights in exact.items():
        assert (weights.dtype, half[name].dtype) == (torch.float32, torch.bfloat16)
        assert torch.equal(half[name], again[name])
        assert torch.equal(half[name], model.get_parameter(name))
