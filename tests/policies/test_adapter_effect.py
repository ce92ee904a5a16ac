"""Share of an adapter's effect that two roundings leave, from files, compared with a layer that is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from peft.tuners.lora import Linear
from safetensors.torch import save_file

from g2d.policies import PolicyRecord
from g2d.policies.adapter_rounding import effect_left, recorded_effect
from g2d.policies.record import as_json
from tests.models import adapted, tiny_policy

WIDTH = 256
RANK = 8


def layer(std: float, dtype: torch.dtype) -> Linear:
    """A layer of bfloat16 numbers with an adapter whose B has this standard deviation."""
    torch.manual_seed(0)
    base = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    torch.nn.init.normal_(base.weight, std=0.02)
    base = base.to(torch.bfloat16).to(dtype).requires_grad_(False)
    made = Linear(base, "default", config=LoraConfig(r=RANK, lora_alpha=2 * RANK), r=RANK, lora_alpha=2 * RANK)
    made.lora_A.float(), made.lora_B.float()  # a PeftModel has them in float32
    torch.manual_seed(1)
    torch.nn.init.normal_(made.lora_A["default"].weight, std=0.02)
    torch.nn.init.normal_(made.lora_B["default"].weight, std=std)
    return made


def measured_effect(std: float) -> float:
    x = torch.randn(256, WIDTH, generator=torch.Generator().manual_seed(2)).bfloat16()
    exact = layer(std, torch.float32)
    half = layer(std, torch.bfloat16)
    with torch.no_grad():
        change = exact(x.float()) - exact.base_layer(x.float())
        rounded = half(x).float() - half.base_layer(x).float()
    return float((rounded * change).sum() / change.square().sum())


@pytest.mark.parametrize("std", [1e-4, 3e-4, 1e-3])
def test_the_share_equals_a_layer_that_is_run(tmp_path: Path, std: float) -> None:
    linear = layer(std, torch.bfloat16)
    name = "model.layers.0.mlp.up_proj"
    save_file({f"{name}.weight": linear.base_layer.weight.data}, tmp_path / "model.safetensors")
    (tmp_path / "adapter").mkdir()
    saved = {
        f"base_model.model.{name}.lora_A.weight": linear.lora_A["default"].weight.data,
        f"base_model.model.{name}.lora_B.weight": linear.lora_B["default"].weight.data,
    }
    save_file(saved, tmp_path / "adapter/adapter_model.safetensors")
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps({"r": RANK, "lora_alpha": 2 * RANK}))
    assert effect_left(tmp_path, tmp_path / "adapter") == pytest.approx(measured_effect(std), abs=0.05)


def test_it_grows_with_the_adapter_and_is_none_without_weights(tmp_path: Path) -> None:
    m0 = tiny_policy().base
    adapted(tiny_policy(), tmp_path / "small", std=1e-4)
    adapted(tiny_policy(), tmp_path / "large", std=1e-1)
    adapted(tiny_policy(), tmp_path / "none", std=0.0)
    small = effect_left(m0, tmp_path / "small")
    large = effect_left(m0, tmp_path / "large")
    assert small is not None and large is not None
    assert small < 0.9 < large
    assert effect_left(m0, tmp_path / "none") is None
    assert effect_left(tmp_path, tmp_path / "large") is None  # no weights of M0


def test_it_is_recorded_if_there_is_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapted(tiny_policy(), tmp_path, std=1e-2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert recorded_effect(tiny_policy().base, tmp_path) is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert recorded_effect(tiny_policy().base, tmp_path) == effect_left(tiny_policy().base, tmp_path)
    assert "effect_left" not in as_json(PolicyRecord("m/grpo", "m", "grpo", "base"))
    assert as_json(PolicyRecord("m/grpo", "m", "grpo", "base", effect_left=0.5))["effect_left"] == 0.5
