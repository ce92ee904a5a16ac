"""Adapters in other hands: elsewhere, beside another M0, in each other's folders."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from g2d.jobs.files import read_json
from g2d.policies import PolicyRecord, load_base, load_model
from g2d.policies.model_keys import Lora
from g2d.policies.record import apply_adapter
from g2d.regimes.common import offline
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.common.trainers import export_trained
from g2d.regimes.grpo import train as grpo
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.rollouts.vllm_engine import VllmEngine
from tests.models import adapted, tiny_policy, two_ends_policy
from tests.regimes.trainings import easy, metric, pairs, warm_up

REVISION = "0" * 40


def test_an_adapter_loads_elsewhere_and_names_nothing_of_this_machine(tmp_path: Path) -> None:
    from peft import PeftModel

    folder = tmp_path / "home/somebody/cache"
    work = tmp_path / "work"
    shutil.copytree(tiny_policy().base, folder)
    hub = replace(tiny_policy(), base=str(folder), revision=REVISION, settings={"source": "hub", "id": "them/tiny"})
    warm_up(work / "warm", easy(10), base=hub, k=1)
    # Continues an adapter whose configuration has the name of M0 on the Hub.
    start = PolicyRecord("x/warm", "x", "grpo", hub.base, adapter=str(work / "warm/adapter"))
    train_dpo(TrainingJob(hub, pairs(8), Dpo(max_steps=1), lora=Lora(), seed=0, work=work, start=start))
    for adapter in ("warm/adapter", "adapter"):
        moved = Path(shutil.move(work / adapter, tmp_path / "elsewhere" / adapter))
        for file in moved.iterdir():
            for name in (tmp_path, "somebody", Path.home()):
                assert str(name).encode() not in file.read_bytes(), file
        described = read_json(moved / "adapter_config.json")
        assert (described["base_model_name_or_path"], described["revision"]) == ("them/tiny", REVISION)
        model = PeftModel.from_pretrained(load_base(hub), moved)
        assert model.peft_config["default"].r == Lora().r


@pytest.mark.parametrize(
    ("base", "settings", "name"),
    [
        ("/home/somebody/models/llama", {"source": "local", "path": "/home/somebody/models/llama"}, "path/to/mine"),
        ("../somebody/llama", {"source": "local", "path": "../somebody/llama"}, "path/to/mine"),
        ("models/llama", {"source": "local", "path": "models/llama"}, "./models/llama"),
        ("results/mine/base/model", {"source": "embedded"}, "./results/mine/base/model"),
        ("/cache/snapshots/0", {"source": "hub", "id": "them/llama"}, "them/llama"),
    ],
)
def test_an_adapter_names_its_base(tmp_path: Path, base: str, settings: dict[str, Any], name: str) -> None:
    (tmp_path / "adapter_model.safetensors").touch()
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base, "r": 16}))
    policy = PolicyRecord("mine/base", "mine", "base", base=base, settings=settings)
    export_trained(tmp_path, tmp_path, policy)
    described = read_json(tmp_path / "adapter/adapter_config.json")
    assert described == {"base_model_name_or_path": name, "revision": None, "inference_mode": True, "r": 16}


def test_in_half_precision_the_policy_that_answers_is_the_one_that_was_trained(tmp_path: Path) -> None:
    """The bits equal those of the trainer's layers in bfloat16. A merged copy differs: rounding loses most of a small
    adapter.
    """
    import torch
    from peft import PeftModel

    policy = adapted(tiny_policy(), tmp_path, std=1e-4, seed=0)
    assert policy.adapter is not None
    m0 = load_base(policy)
    tokens = torch.randint(5, m0.config.vocab_size, (4, 30), generator=torch.Generator().manual_seed(0))

    def half() -> Any:
        return copy.deepcopy(m0).bfloat16()

    def logits(model: Any) -> torch.Tensor:
        with torch.no_grad():
            output: torch.Tensor = model.eval()(tokens).logits
        return output

    trained = PeftModel.from_pretrained(half(), policy.adapter)
    answers = apply_adapter(half(), policy.adapter)
    assert torch.equal(logits(answers), logits(trained))
    assert answers.can_generate()
    merged = PeftModel.from_pretrained(half(), policy.adapter).merge_and_unload()
    assert not torch.equal(logits(merged), logits(trained))
    exact = apply_adapter(copy.deepcopy(m0), policy.adapter)  # merged in float32
    assert not any("lora" in name for name, _ in exact.named_modules())


@pytest.mark.parametrize("regime", [grpo, offline], ids=["grpo", "dpo"])
def test_a_training_in_half_precision_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regime: Any) -> None:
    """M0 in bfloat16, the adapter in float32, autocast. DPO fails if it does not begin at its reference."""
    arguments = regime.trainer_arguments
    monkeypatch.setattr(
        regime, "trainer_arguments", lambda *given, **named: arguments(*given, **named) | {"bf16": True}
    )
    monkeypatch.setattr("g2d.regimes.common.trainers.load_base", lambda policy: load_base(policy).bfloat16())
    job: dict[str, Any] = {"lora": Lora(), "seed": 0, "work": tmp_path}
    if regime is grpo:
        warmup = Warmup(steps=[2], learning_rate=1e-2, max_completion_length=8)
        log = train_grpo(TrainingJob(tiny_policy(), easy(20), warmup, k=2, group_size=2, **job)).log
    else:
        log = train_dpo(TrainingJob(tiny_policy(), pairs(8), Dpo(max_steps=2), **job)).log
    for grad_norm in metric(log, "grad_norm"):
        assert 0 < grad_norm < math.inf


@pytest.mark.parametrize("load", [load_model, VllmEngine])
def test_adapters_in_each_others_folders_are_refused(tmp_path: Path, load: Callable[[PolicyRecord], Any]) -> None:
    """Two seeds of one policy, and the policies of two models of the same shape: only the weights tell them apart."""
    mine = adapted(tiny_policy(), tmp_path / "mine", std=0.05, seed=0)
    of_another_seed = adapted(tiny_policy(), tmp_path / "seed", std=0.05, seed=1)
    of_another_model = adapted(two_ends_policy(), tmp_path / "model", std=0.05, seed=2)
    for other in (of_another_seed, of_another_model):
        for policy, source in ((mine, other), (other, mine)):
            with pytest.raises(ValueError, match=r"not the weights that policy\.json names"):
                load(replace(policy, adapter=source.adapter))
    load(mine)
