"""`lora: none`: trainings of all weights, which leave a model; `test_conformance.py` tests each regime's defaults."""

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
from safetensors.torch import load_file

from g2d.jobs.digests import MARK
from g2d.jobs.files import sha256
from g2d.policies import PolicyRecord, load_model
from g2d.policies.model_keys import Lora
from g2d.policies.record import as_json
from g2d.problems.prompts import Prompt
from g2d.regimes.common.checkpoints import MANIFEST, TrainingStoppedError, empty
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.common.trainers import save_trained, starting_model
from g2d.regimes.grpo.auto_stop import train_until_decline
from g2d.regimes.grpo.keys import AutoStop
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.regimes.offline.rft import Rft, chosen_completions, train_rft
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo, train_semi_online_dpo
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout_keys import EngineSettings, HarvestSettings
from g2d.rollouts.vllm_engine import VllmEngine
from tests.models import adapted, rollouts_of, texts_of, tiny_policy
from tests.regimes.stops import terminated_after
from tests.regimes.trainings import SETTINGS, WARMUP, easy, metric, pairs, saving, steps_of

NONE = Lora.model_validate("none")
STEPS = 3
FILE = "weights/model.safetensors"
Run = Callable[..., list[dict[str, Any]]]


def run(train: Any, data: Any, settings: Any, work: Path, **kwargs: Any) -> list[dict[str, Any]]:
    common: dict[str, Any] = {"lora": NONE, "seed": 0, "checkpointing": saving(work)}
    return steps_of(train(TrainingJob(tiny_policy(), data(), settings, work=work, **common | kwargs)).log)


OFFLINE: dict[str, Any] = {"per_device_batch_size": 2, "max_steps": STEPS, "learning_rate": 1e-3}
SEMI_ONLINE = SETTINGS | {"steps": [STEPS], "learning_rate": 1e-3}
ONLINE: dict[str, Any] = {"k": STEPS}
GRPO = partial(run, train_grpo, lambda: easy(10), group_size=4, **ONLINE)


def semi_online(**changes: Any) -> Run:
    settings = SemiOnlineDpo.model_validate(SEMI_ONLINE | changes)
    return partial(run, train_semi_online_dpo, lambda: easy(10), settings, **ONLINE)


RUNS: dict[str, Run] = {
    "dpo": partial(run, train_dpo, lambda: pairs(8), Dpo(gradient_accumulation_steps=1, **OFFLINE)),
    "precomputed": partial(run, train_dpo, lambda: pairs(8), Dpo(precompute_reference=True, **OFFLINE)),
    "rft": partial(
        run, train_rft, lambda: chosen_completions(pairs(8)), Rft.model_validate({"regime": "rft", **OFFLINE})
    ),
    "grpo with a reference": partial(GRPO, WARMUP.model_copy(update={"beta": 0.1, "reference": "sync"})),
    "semi_online_dpo with a reference": semi_online(reference="sync"),
}


def weights(work: Path) -> dict[str, torch.Tensor]:
    return load_file(work / FILE)


def left(work: Path, **fields: Any) -> PolicyRecord:
    return replace(tiny_policy(), weights=str(work / "weights"), weights_sha256=sha256(work / FILE), **fields)


@pytest.mark.parametrize("name", ["precomputed", "grpo with a reference", "semi_online_dpo with a reference"])
def test_all_weights_are_trained_and_a_stopped_run_ends_with_the_same_ones(name: str, tmp_path: Path) -> None:
    straight = RUNS[name](tmp_path / "straight")
    assert metric(straight, "step") == [*range(1, STEPS + 1)]
    before = load_file(Path(tiny_policy().base, "model.safetensors"))
    after = weights(tmp_path / "straight")
    assert before.keys() == after.keys()
    for tensor in before:
        assert not torch.equal(before[tensor], after[tensor]), tensor
    with terminated_after(1), pytest.raises(TrainingStoppedError):
        RUNS[name](tmp_path / "stopped")
    assert RUNS[name](tmp_path / "stopped") == straight
    assert sha256(tmp_path / "stopped" / FILE) == sha256(tmp_path / "straight" / FILE)


def test_training_begins_at_its_reference_and_continues_trained_weights(tmp_path: Path) -> None:
    """DPO's loss is then ln 2. A training that starts elsewhere has another first loss with `reference: base`."""
    assert RUNS["dpo"](tmp_path / "first")[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    start = left(tmp_path / "first", policy_id="tiny/first", k=STEPS)
    again = RUNS["dpo"](tmp_path / "again", start=start)
    assert again[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert sha256(tmp_path / "again" / FILE) != sha256(tmp_path / "first" / FILE)
    origin: dict[str, Any] = {"start": "warmup", "start_step": STEPS, "sync_every": "never"}
    of_start = semi_online(reference="start", **origin)(tmp_path / "start", start=start)
    of_base = semi_online(reference="base", **origin)(tmp_path / "base", start=start)
    assert of_start[0]["rewards/margins"] == pytest.approx(0, abs=1e-5)
    assert abs(of_base[0]["rewards/margins"]) > 1e-4


def test_a_synced_reference_equals_the_synced_policy(tmp_path: Path) -> None:
    """PolicyRecord and reference agree before every update at s = 1, so the margins stay 0."""
    log = RUNS["semi_online_dpo with a reference"](tmp_path)
    assert metric(log, "rewards/margins") == pytest.approx([0] * STEPS, abs=1e-5)


def test_fresh_rollouts_come_from_the_synced_weights(tmp_path: Path) -> None:
    semi_online(sync_every=1)(tmp_path / "all")
    semi_online(sync_every=1)(tmp_path / "before", k=STEPS - 1)
    kept = load_file(tmp_path / "all/checkpoint/generator/model.safetensors")
    before = weights(tmp_path / "before")
    assert kept.keys() == before.keys()
    for name in before:
        assert torch.equal(kept[name], before[name]), name


def test_the_folder_is_a_model_that_answers_as_the_same_weights_merged(tmp_path: Path) -> None:
    base = tiny_policy()
    adapter = adapted(base, tmp_path / "adapter", std=0.1)
    merged = load_model(adapter)
    save_trained(merged, tmp_path / "weights")
    shutil.copy(Path(base.base, "config.json"), tmp_path / "weights")
    policy = replace(base, weights=str(tmp_path / "weights"), weights_sha256=sha256(tmp_path / FILE))

    def answers(of: PolicyRecord) -> list[str]:
        return texts_of(rollouts_of(of, easy(4), Prompt(), Decoding(2, 1.0, 1.0, 12, 16, seed=0)))

    assert answers(adapter) == answers(policy) != answers(base)


def test_an_emptied_checkpoint_names_the_folder_to_delete(tmp_path: Path) -> None:
    GRPO(WARMUP, tmp_path / "first", k=2)
    checkpoint = tmp_path / "first/checkpoint"
    (checkpoint / MARK).touch()
    empty(checkpoint)
    assert {file.name for file in checkpoint.iterdir()} == {MANIFEST, MARK}
    with pytest.raises(ValueError, match=f"missing, cut short or changed since it was written; delete {checkpoint} to"):
        GRPO(WARMUP, tmp_path / "second", resume_from=checkpoint)


def test_vllm_loads_the_folder_and_other_weights_are_refused(tmp_path: Path) -> None:
    RUNS["rft"](tmp_path)
    policy = left(tmp_path)
    assert as_json(policy)["weights"] == str(tmp_path / "weights") and "weights" not in as_json(tiny_policy())
    assert VllmEngine(policy, EngineSettings(name="vllm"))._weights() == str(tmp_path / "weights")
    with pytest.raises(ValueError, match=r"^tiny/base has no adapter to start from$"):
        starting_model(tiny_policy(), policy, Lora())
    with pytest.raises(ValueError, match=r"^tiny/adapted0 has no weights to start from$"):
        starting_model(tiny_policy(), adapted(tiny_policy(), tmp_path / "adapter", std=0.1), NONE)
    shutil.copy(Path(tiny_policy().base, "model.safetensors"), tmp_path / FILE)
    with pytest.raises(ValueError, match=r"weights/model\.safetensors: missing, cut short or not the weights that"):
        load_model(policy)


def test_an_early_stopping_warm_up_leaves_the_weights_of_its_best_probe(tmp_path: Path) -> None:
    stops = WARMUP.model_copy(update={"steps": [2], "horizon": 2, "auto": AutoStop(every=1, prompts=4, patience=1)})
    harvest = HarvestSettings(samples_per_prompt=2, max_completion_length=12)
    stopping = partial(train_until_decline, train_grpo)
    run(stopping, lambda: easy(10), stops, tmp_path, group_size=4, k=2, harvest=harvest)
    digests = {sha256(folder / FILE) for folder in tmp_path.glob("k*") if (folder / FILE).is_file()}
    assert sha256(tmp_path / FILE) in digests


@pytest.mark.parametrize("system", [None, "First " * 40], ids=["no prefix", "a shared prefix"])
def test_grpo_in_bfloat16_samples_from_its_own_weights(tmp_path: Path, system: str | None) -> None:
    """Under autocast, a pass may cache keys in bfloat16 and values in float32, or the other way round."""
    log = GRPO(WARMUP, tmp_path, precision="bfloat16", prompt=Prompt(system=system))
    assert metric(log, "step") == [*range(1, STEPS + 1)]
