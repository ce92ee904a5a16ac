"""TRL's own tests of GRPO, DPO and SFT, on the trainers of this package: a failure says what an upgrade of TRL changes.

Each training runs twice on the same samples, with our trainer and with TRL's, and ends with the same bits. TRL's tests
only ask that every trained weight has changed, and so do these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from trl import DPOTrainer, GRPOTrainer

from g2d.jobs.files import sha256
from g2d.policies.model_keys import Lora
from g2d.regimes.common import by_length
from g2d.regimes.common.checkpoints import Checkpointed, TrainingStoppedError
from g2d.regimes.common.offline import PretokenizedMixin
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.grpo import trainer as grpo_trainer
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.offline import pair_trainer
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.regimes.offline.rft import Rft, chosen_completions, train_rft
from g2d.rewards import registry
from g2d.rewards.controls import Random
from g2d.rewards.training_reward import TrainingReward
from tests.models import tiny_policy
from tests.regimes.stops import terminated_after
from tests.regimes.trainings import NO_DROPOUT, easy, metric, pairs, saving, steps_of

NONE = Lora.model_validate("none")
Run = Callable[[Path], list[dict[str, Any]]]


class PlainGrpo(Checkpointed, GRPOTrainer):
    """TRL's trainer with our engine, so that both have the same samples."""

    def __init__(
        self,
        *,
        warmup: Warmup,
        sampler: Any,
        rollouts: Any,
        n_problems: int,
        row: object,
        choice: None,
        order: None,
        **arguments: Any,
    ) -> None:
        self.sampler = sampler
        super().__init__(**arguments)
        sampler.trainer = self
        self.eos_token_ids = sorted(rollouts.eos_token_ids)

    def _generate_single_turn(self, prompt_ids: list[list[int]], *_: object, **__: object) -> Any:
        step = self.state.global_step
        self.sampler.sync(step)
        return self.sampler.sample(prompt_ids, [f"grpo/{step}/{place}" for place in range(len(prompt_ids))])

    def save_state(self, checkpoint: Path) -> None:
        """Keep nothing more."""

    load_state = save_state


class Unsorted:
    """In place of our passes by length: TRL's."""

    def __init__(self, *, microbatches: object, **arguments: Any) -> None:
        super().__init__(**arguments)


class PlainDpo(Checkpointed, Unsorted, PretokenizedMixin, DPOTrainer):
    """TRL's trainer on the same tokens."""

    def __init__(self, *, loss: object, has_reference: bool, nll_weight: float, **arguments: Any) -> None:
        super().__init__(**arguments)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Replace our trainers by TRL's."""

    def replace() -> None:
        monkeypatch.setattr(grpo_trainer, "Grpo", PlainGrpo)
        monkeypatch.setattr(pair_trainer, "PairTrainer", PlainDpo)
        monkeypatch.setattr(by_length, "PassesByLength", Unsorted)

    return replace


def trained(train: Any, data: Any, settings: Any, work: Path, **job: Any) -> list[dict[str, Any]]:
    job = {"seed": 0, "lora": NO_DROPOUT, "checkpointing": saving(work), "shared_prompts": False} | job
    return steps_of(train(TrainingJob(tiny_policy(), data, settings, work=work, **job)).log)


def grpo(work: Path, lora: Lora = NO_DROPOUT, reward: Any = None, k: int = 3, **keys: Any) -> list[dict[str, Any]]:
    values = {"steps": [4], "horizon": 4, "learning_rate": 1e-2, "max_completion_length": 12} | keys
    warmup = Warmup.model_validate(values)
    coin = reward or Random(reward="random")
    return trained(train_grpo, easy(20), warmup, work, lora=lora, reward=coin, group_size=4, k=k)


def dpo(work: Path, lora: Lora = NO_DROPOUT, **keys: Any) -> list[dict[str, Any]]:
    values = {"per_device_batch_size": 4, "gradient_accumulation_steps": 1, "max_steps": 3, "learning_rate": 1e-2}
    return trained(train_dpo, pairs(24), Dpo.model_validate(values | keys), work, lora=lora)


def rft(work: Path, lora: Lora = NO_DROPOUT, **keys: Any) -> list[dict[str, Any]]:
    values = {"per_device_batch_size": 4, "gradient_accumulation_steps": 1, "max_steps": 3, "learning_rate": 1e-2}
    settings = Rft.model_validate({"regime": "rft"} | values | keys)
    return trained(train_rft, chosen_completions(pairs(24)), settings, work, lora=lora)


def weights(work: Path) -> Path:
    [file] = [*work.glob("adapter/*.safetensors"), *work.glob("weights/*.safetensors")]
    return file


def require_all_changed(work: Path) -> None:
    after = load_file(weights(work))
    if (work / "weights").exists():
        before = load_file(Path(tiny_policy().base, "model.safetensors"))
        for name in after:
            assert not torch.equal(after[name], before[name]), name
    else:
        for name in after:
            assert "lora_B" not in name or after[name].any(), name


RUNS: dict[str, Run] = {
    # test_training_loss_types
    "GRPO grpo": partial(grpo, loss="grpo"),
    "GRPO dapo": partial(grpo, loss="dapo"),
    "GRPO dr_grpo": partial(grpo, loss="dr_grpo"),
    "GRPO bnpo": partial(grpo, loss="bnpo"),
    # test_training_different_importance_sampling_level, test_training_multiple_iterations
    "GRPO importance by token": partial(grpo, iterations=2, importance_sampling="token"),
    "GRPO importance by sequence": partial(grpo, iterations=2, importance_sampling="sequence"),
    # test_training_beta_non_zero, test_training_with_entropy..., test_training_scale_rewards
    "GRPO with a reference": partial(grpo, beta=0.1),
    "GRPO with entropy": partial(grpo, entropy_coefficient=0.01),
    "GRPO rewards scaled by batch": partial(grpo, scale_rewards="batch"),
    "GRPO rewards not scaled": partial(grpo, scale_rewards="none"),
    # test_training_mask_truncated_completions
    "GRPO without truncated completions": partial(grpo, mask_truncated=True),
    # test_training (without PEFT), test_training_with_gradient_accumulation
    "GRPO of all weights": partial(grpo, lora=NONE),
    "GRPO in small passes": partial(grpo, per_device_batch_size=4),
    "DPO": dpo,
    "DPO of all weights": partial(dpo, lora=NONE),
    "DPO in small passes": partial(dpo, gradient_accumulation_steps=2, max_steps=2),
    "DPO with a precomputed reference": partial(dpo, precompute_reference=True),
    "SFT": rft,
    "SFT of all weights": partial(rft, lora=NONE),
    "SFT in small passes": partial(rft, gradient_accumulation_steps=2, max_steps=2),
}


@pytest.mark.parametrize("name", RUNS)
def test_our_trainer_ends_with_the_bits_of_trls(name: str, tmp_path: Path, plain: Callable[[], None]) -> None:
    log = RUNS[name](tmp_path / "ours")
    require_all_changed(tmp_path / "ours")
    plain()
    theirs = RUNS[name](tmp_path / "trl")
    assert sha256(weights(tmp_path / "ours")) == sha256(weights(tmp_path / "trl"))
    for ours, other in zip(log, theirs, strict=True):
        assert ours["loss"] == pytest.approx(other["loss"], abs=1e-6)


@pytest.mark.parametrize("train", [grpo, dpo, rft])
def test_a_stopped_training_of_trl_resumes_as_ours(train: Run, tmp_path: Path, plain: Callable[[], None]) -> None:
    """test_resume_from_checkpoint."""
    train(tmp_path / "ours")
    plain()
    with terminated_after(1), pytest.raises(TrainingStoppedError):
        train(tmp_path / "stopped")
    train(tmp_path / "stopped")
    assert sha256(weights(tmp_path / "stopped")) == sha256(weights(tmp_path / "ours"))


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_completion_without_a_reward_is_left_out(
    missing: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: Callable[[], None]
) -> None:
    """test_training_reward_func_returns_none."""

    def call(self: TrainingReward, completions: Any, *_: object, **__: object) -> list[float | None]:
        return [missing if place % 4 == 3 else float(place % 2) for place in range(len(completions))]

    monkeypatch.setattr(TrainingReward, "__call__", call)
    log = grpo(tmp_path / "ours", reward=registry.TRUTH)
    require_all_changed(tmp_path / "ours")
    assert all(map(math.isfinite, metric(log, "loss")))
    plain()
    grpo(tmp_path / "trl", reward=registry.TRUTH)
    assert sha256(weights(tmp_path / "ours")) == sha256(weights(tmp_path / "trl"))
