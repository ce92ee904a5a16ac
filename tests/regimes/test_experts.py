"""Architectures whose file has other names than the model in memory: mixtures of experts and GPT-NeoX."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from g2d.jobs.files import sha256
from g2d.policies import PolicyRecord, load_model
from g2d.policies.model_keys import Lora
from g2d.regimes.common.checkpoints import TrainingStoppedError, read_manifest, seal
from g2d.regimes.common.trainers import starting_model
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.rewards.controls import Random
from tests.models import CONVERTED, converted_policy
from tests.regimes.stops import terminated_after
from tests.regimes.trainings import WARMUP, easy, losses, pairs, saving, semi_online, steps_of, warm_up

LORA = Lora(dropout=0.0, target_modules=["q_proj", "v_proj"])
NONE = Lora.model_validate("none")
FILE = "model.safetensors"
DPO = Dpo(per_device_batch_size=2, gradient_accumulation_steps=1, max_steps=3, learning_rate=1e-3)
COIN = Random(reward="random")
Run = Callable[..., list[dict[str, Any]]]


def grpo(kind: str, work: Path, **job: Any) -> list[dict[str, Any]]:
    """GRPO with random rewards, which an untrained model earns too."""
    base = converted_policy(kind)
    job = {"k": 3, "group_size": 4, "lora": NONE, "reward": COIN, "checkpointing": saving(work)} | job
    return steps_of(warm_up(work, easy(10), base=base, **job))


def dpo(kind: str, work: Path, **job: Any) -> list[dict[str, Any]]:
    return losses(train_dpo, pairs(8), DPO, work, base=converted_policy(kind), **{"lora": NONE} | job)


def online(kind: str, work: Path, k: int = 3, **job: Any) -> list[dict[str, Any]]:
    return semi_online(work, k, base=converted_policy(kind), reward=COIN, lora=NONE, **job)


RUNS: dict[str, Run] = {
    "grpo": grpo,
    "grpo with a reference": partial(grpo, warmup=WARMUP.model_copy(update={"beta": 0.1, "reference": "sync"})),
    "dpo": dpo,
    "semi_online_dpo": partial(online, reference="sync", sync_every=2),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("kind", CONVERTED)
def test_a_stopped_training_of_all_weights_ends_with_the_same_ones(kind: str, name: str, tmp_path: Path) -> None:
    straight = RUNS[name](kind, tmp_path / "straight")
    with terminated_after(1), pytest.raises(TrainingStoppedError):
        RUNS[name](kind, tmp_path / "stopped")
    assert RUNS[name](kind, tmp_path / "stopped") == straight
    assert sha256(tmp_path / "stopped/weights" / FILE) == sha256(tmp_path / "straight/weights" / FILE)
    before = load_file(Path(converted_policy(kind).base, FILE))
    after = load_file(tmp_path / "straight/weights" / FILE)
    assert before.keys() == after.keys()
    assert not [name for name in before if torch.equal(before[name], after[name])]


@pytest.mark.parametrize("name", ["grpo", "semi_online_dpo"])
@pytest.mark.parametrize("kind", CONVERTED)
def test_a_chained_training_of_all_weights_equals_a_straight_one(kind: str, name: str, tmp_path: Path) -> None:
    RUNS[name](kind, tmp_path / "straight", k=3)
    RUNS[name](kind, tmp_path / "first", k=2)
    RUNS[name](kind, tmp_path / "second", k=3, resume_from=tmp_path / "first/checkpoint")
    assert sha256(tmp_path / "second/weights" / FILE) == sha256(tmp_path / "straight/weights" / FILE)


def left(kind: str, work: Path) -> PolicyRecord:
    weights = str(work / "weights")
    return replace(converted_policy(kind), policy_id=f"{kind}/left", weights=weights, k=3, regime="grpo")


@pytest.mark.parametrize("kind", CONVERTED)
def test_trained_weights_start_another_training(kind: str, tmp_path: Path) -> None:
    grpo(kind, tmp_path / "warm")
    start = left(kind, tmp_path / "warm")
    assert dpo(kind, tmp_path / "dpo", start=start)[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    never = online(kind, tmp_path / "online", started=start, reference="start", sync_every="never")
    assert never[0]["rewards/margins"] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("kind", CONVERTED)
def test_an_untrained_policy_has_the_names_of_m0(kind: str, tmp_path: Path) -> None:
    losses(train_dpo, [], DPO, tmp_path, base=converted_policy(kind), lora=NONE)
    before = load_file(Path(converted_policy(kind).base, FILE))
    after = load_file(tmp_path / "weights" / FILE)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


# -------------------------------------------------------------------------------------- missing and unexpected tensors


TENSOR = {
    "gpt_neox": "embed_out.weight",
    "mixtral": "model.layers.1.block_sparse_moe.experts.2.w1.weight",
    "qwen2_moe": "model.layers.1.mlp.experts.2.up_proj.weight",
    "qwen3_moe": "model.layers.1.self_attn.q_norm.weight",
}


def removed(file: Path, name: str) -> None:
    weights = load_file(file)
    del weights[name]
    save_file(weights, file, metadata={"format": "pt"})


def renamed(file: Path, name: str) -> None:
    weights = load_file(file)
    weights[f"other.{name}"] = weights.pop(name)
    save_file(weights, file, metadata={"format": "pt"})


def added(file: Path, name: str) -> None:
    weights = load_file(file)
    weights[f"other.{name}"] = weights[name].clone()
    save_file(weights, file, metadata={"format": "pt"})


DAMAGES = [removed, renamed, added]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", CONVERTED)
def test_a_tensor_of_a_checkpoint_that_does_not_match_is_named(kind: str, damage: Any, tmp_path: Path) -> None:
    grpo(kind, tmp_path / "first", k=2)
    checkpoint = tmp_path / "first/checkpoint"
    manifest = read_manifest(checkpoint)
    damage(checkpoint / FILE, TENSOR[kind])
    seal(checkpoint, manifest["step"], manifest["job"])
    with pytest.raises(ValueError, match=rf"checkpoint: .*{named(kind, damage)}.*; delete the folder to have it made"):
        grpo(kind, tmp_path / "second", resume_from=checkpoint)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", CONVERTED)
def test_a_tensor_of_a_policy_that_does_not_match_is_named(kind: str, damage: Any, tmp_path: Path) -> None:
    shutil.copytree(converted_policy(kind).base, tmp_path / "weights")
    damage(tmp_path / "weights" / FILE, TENSOR[kind])
    policy = left(kind, tmp_path)
    for load in (load_model, lambda policy: starting_model(converted_policy(kind), policy, NONE)):
        with pytest.raises(ValueError, match=rf"weights: .*{named(kind, damage)}.*; delete the folder"):
            load(policy)


def named(kind: str, damage: Any) -> str:
    return TENSOR[kind] if damage is removed else f"other.{TENSOR[kind]}"


def test_dpo_of_a_mixture_of_experts_starts_at_ln_2(tmp_path: Path) -> None:
    """TRL's auxiliary term is off."""
    base = converted_policy("mixtral")
    first = losses(train_dpo, pairs(8), Dpo(), tmp_path, base=base, lora=LORA)[0]
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-4)
