"""Adapters on bfloat16 weights: what one rounding keeps and two lose, gradients, and float32 left as it is."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear

from g2d.policies.adapter_rounding import OnceRounded, load_adapter
from g2d.policies.policy import load_base, load_model, with_trained
from g2d.policies.settings import Lora, lora_config
from tests.models import adapted, tiny_policy

WIDTH, RANK = 256, 8


def layer(kind: type[Linear], std: float, dtype: torch.dtype = torch.bfloat16, bias: bool = False) -> Linear:
    """A layer of bfloat16 numbers with an adapter whose B has this standard deviation."""
    torch.manual_seed(0)
    base = torch.nn.Linear(WIDTH, WIDTH, bias=bias)
    torch.nn.init.normal_(base.weight, std=0.02)
    base = base.to(torch.bfloat16).to(dtype).requires_grad_(False)
    config = LoraConfig(r=RANK, lora_alpha=2 * RANK)
    made = kind(base, "default", config=config, r=RANK, lora_alpha=2 * RANK)
    made.lora_A.float(), made.lora_B.float()  # a PeftModel has them in float32
    torch.manual_seed(1)
    torch.nn.init.normal_(made.lora_A["default"].weight, std=0.02)
    torch.nn.init.normal_(made.lora_B["default"].weight, std=std)
    return made


def effect_left(kind: type[Linear], std: float) -> float:
    x = torch.randn(256, WIDTH, generator=torch.Generator().manual_seed(2)).bfloat16()
    exact, half = layer(kind, std, torch.float32), layer(kind, std)
    with torch.no_grad():
        change = exact(x.float()) - exact.base_layer(x.float())
        rounded = half(x).float() - half.base_layer(x).float()
    return float((rounded * change).sum() / change.square().sum())


@pytest.mark.parametrize("std", [1e-4, 3e-4, 1e-3])
def test_one_rounding_keeps_more_than_two(std: float) -> None:
    assert effect_left(OnceRounded, std) == pytest.approx(1, abs=0.05)
    assert std > 1e-4 or effect_left(Linear, std) < 0.5


@pytest.mark.parametrize("bias", [False, True])
def test_the_output_is_the_float32_sum_rounded_once(bias: bool) -> None:
    x = torch.randn(2, 5, WIDTH).bfloat16()
    exact, half = layer(Linear, 1e-2, torch.float32, bias), layer(OnceRounded, 1e-2, bias=bias)
    out = half(x)
    assert (out.dtype, out.shape) == (torch.bfloat16, (2, 5, WIDTH))
    torch.testing.assert_close(out.float(), exact(x.float()), rtol=2**-8, atol=1e-5)  # half of the last place


def test_gradients_equal_float32() -> None:
    x = torch.randn(64, WIDTH).bfloat16()
    towards = torch.randn(64, WIDTH).bfloat16()
    gradients: list[list[torch.Tensor]] = []
    for kind, dtype in ((Linear, torch.float32), (OnceRounded, torch.bfloat16)):
        linear, given = layer(kind, 1e-2, dtype), x.to(dtype).requires_grad_()
        (linear(given) * towards.to(dtype)).sum().backward()
        weights = [linear.lora_A["default"].weight.grad, linear.lora_B["default"].weight.grad]
        gradients.append([part.float() for part in (given.grad, *weights) if part is not None])
    for exact, half in zip(*gradients, strict=True):
        assert (half - exact).norm() < 2**-8 * exact.norm()


def test_switched_off_it_is_the_base_layer() -> None:
    rounded, x = layer(OnceRounded, 1e-2, bias=True), torch.randn(8, WIDTH).bfloat16()
    rounded.enable_adapters(False)
    with torch.no_grad():
        torch.testing.assert_close(rounded(x), rounded.base_layer(x), rtol=2**-7, atol=1e-5)


def test_in_float32_it_equals_the_layer_of_peft() -> None:
    x = torch.randn(8, WIDTH)
    assert torch.equal(layer(OnceRounded, 1e-2, torch.float32)(x), layer(Linear, 1e-2, torch.float32)(x))


def once(model: Any) -> set[bool]:
    """Whether the layers with adapters round once."""
    return {isinstance(module, OnceRounded) for module in model.modules() if isinstance(module, Linear)}


@pytest.mark.parametrize("rounding", ["twice", "once"])
def test_trainer_and_engine_have_the_layers_of_the_key(tmp_path: Path, rounding: Any) -> None:
    policy = adapted(tiny_policy(), tmp_path, std=1e-4)
    m0 = load_base(policy).bfloat16()
    trained = get_peft_model(copy.deepcopy(m0), lora_config(Lora(rounding=rounding)))
    continued = load_adapter(copy.deepcopy(m0), tmp_path, rounding, is_trainable=True)
    answers = with_trained(copy.deepcopy(m0), tmp_path, rounding)
    assert once(trained) == once(continued) == once(answers) == {rounding == "once"}
    assert any(parameter.requires_grad for parameter in continued.parameters())
    tokens = torch.arange(5, 25)[None]
    with torch.no_grad():
        assert torch.equal(answers.eval()(tokens).logits, continued.eval()(tokens).logits)


@pytest.mark.parametrize("rounding", ["twice", "once"])
def test_autocast_changes_less_than_bfloat16_does(tmp_path: Path, rounding: Any) -> None:
    """A trainer on a GPU multiplies with A and B in bfloat16, an engine in float32."""
    policy = adapted(tiny_policy(), tmp_path, std=1e-2)
    tokens = torch.randint(5, 200, (16, 32), generator=torch.Generator().manual_seed(0))

    def log_probs(model: Any) -> torch.Tensor:
        with torch.no_grad():
            return model.eval()(tokens).logits.float().log_softmax(-1)

    served, trained = (with_trained(load_base(policy).bfloat16(), tmp_path, rounding) for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16):
        of_trainer = log_probs(trained)
    exact = log_probs(with_trained(load_base(policy), tmp_path, rounding))
    own_error = (log_probs(served) - exact).abs().mean()
    assert (of_trainer - log_probs(served)).abs().mean() < 2 * own_error


def test_a_policy_answers_as_its_record_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = adapted(tiny_policy(), tmp_path, std=1e-4)
    monkeypatch.setattr("g2d.policies.policy.load_base", lambda policy, exact=False: load_base(policy).bfloat16())
    assert once(load_model(policy)) == {False}
    assert once(load_model(replace(policy, settings={"lora": Lora(rounding="once").params()}))) == {True}


def test_the_key_is_neutral() -> None:
    assert Lora(rounding="once").params() == Lora().params() | {"rounding": "once"} != Lora().params()
    assert "_custom_modules" not in lora_config(Lora(rounding="once")).to_dict()
