"""What every regime of the catalogue must do; a new one is tested without another line."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import g2d.regimes
from g2d.jobs.files import sha256
from g2d.memory.workload import MicroBatches
from g2d.policies.model_keys import Lora
from g2d.regimes.catalogue import REGIMES, of_phase
from g2d.regimes.common import offline
from g2d.regimes.common.checkpoints import TrainingStoppedError
from g2d.regimes.common.regime import Regime
from g2d.regimes.offline.pairs import PairKeys
from tests.models import same_logits
from tests.regimes.any_regime import LORAS, ONE_EPOCH, STEPS, job_of, log_of, weights
from tests.regimes.harvests import Harvest, trained
from tests.regimes.stops import terminated_after
from tests.regimes.trainings import metric

every_regime = pytest.mark.parametrize("regime", REGIMES.values(), ids=REGIMES)
offline_regimes = pytest.mark.parametrize("regime", of_phase("offline"), ids=lambda regime: regime.name)
with_and_without_lora = pytest.mark.parametrize("lora", LORAS.values(), ids=LORAS)


@pytest.fixture(scope="module")
def harvest(tmp_path_factory: pytest.TempPathFactory) -> Harvest:
    return Harvest("qwen3", tmp_path_factory.mktemp("harvest"))


def test_every_regime_of_the_package_is_in_the_catalogue() -> None:
    declared: dict[str, str] = {}
    for module in pkgutil.walk_packages(g2d.regimes.__path__, "g2d.regimes."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Regime):
                declared[value.name] = module.name
    missing = {name: module for name, module in declared.items() if name not in REGIMES}
    assert not missing, f"add to ALL in src/g2d/regimes/catalogue.py: {missing}"


@every_regime
@with_and_without_lora
def test_a_stopped_training_ends_with_the_bits_of_an_uninterrupted_one(
    regime: Regime, lora: Lora, harvest: Harvest, tmp_path: Path
) -> None:
    straight = tmp_path / "straight"
    stopped = tmp_path / "stopped"
    log = log_of(regime, job_of(regime, harvest, straight, lora))
    assert metric(log, "step") == [*range(1, STEPS + 1)]
    with terminated_after(1), pytest.raises(TrainingStoppedError):
        log_of(regime, job_of(regime, harvest, stopped, lora))
    assert log_of(regime, job_of(regime, harvest, stopped, lora)) == log
    assert sha256(weights(stopped, lora)) == sha256(weights(straight, lora))


@every_regime
@with_and_without_lora
def test_all_trained_weights_change(regime: Regime, lora: Lora, harvest: Harvest, tmp_path: Path) -> None:
    log_of(regime, job_of(regime, harvest, tmp_path, lora))
    after = load_file(weights(tmp_path, lora))
    if lora.trains_all:
        before = load_file(Path(harvest.base.base, "model.safetensors"))
        assert before.keys() == after.keys()
        assert not [name for name in before if (before[name] == after[name]).all()]
    else:
        assert not [name for name in after if not after[name].any()]  # B is 0 before the first step


@offline_regimes
def test_it_trains_on_the_tokens_that_were_sampled(regime: Regime, harvest: Harvest, tmp_path: Path) -> None:
    job = job_of(regime, harvest, tmp_path, **ONE_EPOCH)
    with trained() as seen:
        regime.train(job)
    assert seen
    assert set(seen) <= set(harvest.sampled.values())
    if issubclass(regime.settings, PairKeys):
        assert sorted(seen) == harvest.of_pairs("chosen", "rejected")


@offline_regimes
def test_a_smaller_last_micro_batch_has_the_weight_of_its_rows(
    regime: Regime, harvest: Harvest, tmp_path: Path
) -> None:
    """The result for 4 rows does not depend on whether micro-batches hold 4 or 3 and 1."""
    rows: list[dict[str, Any]] = []
    for size, accumulation in ((4, 1), (3, 2)):
        keys = {"per_device_batch_size": size, "gradient_accumulation_steps": accumulation, **ONE_EPOCH}
        job = job_of(regime, harvest, tmp_path / str(size), **keys)
        [row] = log_of(regime, replace(job, data=job.data[:4]))
        rows.append(row)
    assert rows[1]["loss"] == pytest.approx(rows[0]["loss"], rel=1e-4)
    assert rows[1]["grad_norm"] == pytest.approx(rows[0]["grad_norm"], rel=1e-4)


@offline_regimes
def test_passes_of_similar_length_learn_the_same(
    regime: Regime, harvest: Harvest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `per_device_batch_size: auto` has them on a GPU."""
    keys = {"per_device_batch_size": 4, "gradient_accumulation_steps": 1, **ONE_EPOCH}
    whole = job_of(regime, harvest, tmp_path / "whole", **keys)
    [expected] = log_of(regime, replace(whole, data=whole.data[:4]))
    monkeypatch.setattr(offline, "choose_microbatches", lambda *_: MicroBatches(2, False, tokens=80))
    by_length = job_of(regime, harvest, tmp_path / "by length", **keys)
    [row] = log_of(regime, replace(by_length, data=by_length.data[:4]))
    assert row["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert row["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4)


@offline_regimes
@with_and_without_lora
def test_without_data_it_leaves_m0(regime: Regime, lora: Lora, harvest: Harvest, tmp_path: Path) -> None:
    job = replace(job_of(regime, harvest, tmp_path, lora), data=[])
    left = regime.train(job)
    assert (left.log, left.statistics["gradient_steps"]) == ([], 0)
    policy = replace(harvest.base, **lora.folders(tmp_path))
    assert same_logits(policy, harvest.base)
