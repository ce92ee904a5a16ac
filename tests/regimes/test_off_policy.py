"""Off-policy GRPO with the real trainer: cost, record, loss, and resuming with the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import mean, pvariance
from typing import Any

import pandas as pd
import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

from g2d.jobs.cost import Meter
from g2d.policies.model_keys import Lora
from g2d.policies.record import load_base
from g2d.regimes.common.checkpoints import TrainingStoppedError
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.grpo.trainer import REFERENCE_FILE, Grpo, mixed_groups
from g2d.rewards.training_reward import TrainingReward
from tests.models import tiny_policy
from tests.regimes.conftest import Seen
from tests.regimes.stops import assert_resumes, terminated_after
from tests.regimes.trainings import adapter_digest, easy, gradient, log_probabilities, metric, rows_of, saving, steps_of

PLAIN = {"steps": [0, 4, 8], "horizon": 8, "learning_rate": 1e-2, "max_completion_length": 12}
V2_I2 = {"updates_per_generation": 2, "iterations": 2}
MOVING = {"beta": 0.1, "reference": "sync", "reference_every": 2}
# With TRL's names. `test_the_gradient_is_that_of_the_clipped_loss` has the other keys.
OBJECTIVES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"loss": "dr_grpo", "scale_rewards": "none"}, {"loss_type": "dr_grpo", "scale_rewards": "none"}),
    ({"importance_sampling": "sequence", "epsilon": 0.5}, {"importance_sampling_level": "sequence", "epsilon": 0.5}),
    ({"loss": "dapo", "scale_rewards": "batch"}, {"loss_type": "dapo", "scale_rewards": "batch"}),
    ({"loss": "bnpo", "entropy_coefficient": 1e-3}, {"loss_type": "bnpo", "entropy_coef": 1e-3}),
    ({"beta": 0.1, "bias_corrected_kl": False}, {"beta": 0.1, "use_bias_correction_kl": False}),
    ({"adam_betas": [0.9, 0.95], "max_grad_norm": 0.1}, {"adam_beta2": 0.95, "max_grad_norm": 0.1}),
]


def warm_up(work: Path, keys: dict[str, Any], k: int, *, group_size: int = 2, **kwargs: Any) -> list[dict[str, Any]]:
    warmup = Warmup.model_validate(PLAIN | keys)
    kwargs = {"lora": Lora(dropout=0.0), "seed": 0, "checkpointing": saving(work)} | kwargs
    return steps_of(
        train_grpo(TrainingJob(tiny_policy(), easy(20), warmup, group_size=group_size, k=k, work=work, **kwargs)).log
    )


@pytest.mark.parametrize("keys", [{}, V2_I2], ids=str)
def test_the_bill_has_the_tokens_that_were_judged(tmp_path: Path, keys: dict[str, Any]) -> None:
    meter = Meter("job", "train_grpo")
    warm_up(tmp_path, keys, 4, meter=meter)
    frame = rows_of(tmp_path)
    assert len(frame) == 16 * 4 // keys.get("iterations", 1)
    assert meter.tokens_generated == frame.token_count.sum()
    assert ("generated_at" in frame) == bool(keys)


def test_the_cost_survives_a_stop(tmp_path: Path) -> None:
    keys = V2_I2 | {"horizon": 12, "steps": [12]}
    straight = Meter("job", "train_grpo")
    stopped = Meter("job", "train_grpo")
    warm_up(tmp_path / "straight", keys, 12, meter=straight)
    with terminated_after(4), pytest.raises(TrainingStoppedError):
        warm_up(tmp_path / "stopped", keys, 12)
    warm_up(tmp_path / "stopped", keys, 12, meter=stopped)
    assert stopped.spent().tokens_generated == straight.spent().tokens_generated > 0


def test_a_row_names_the_step_that_consumed_it(tmp_path: Path, watch: Any) -> None:
    lengths: dict[int, list[int]] = {}

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        consumed = inputs["completion_mask"].sum(1).tolist()
        lengths.setdefault(trainer.state.global_step + 1, []).extend(consumed)

    watch(seen)
    warm_up(tmp_path, {"updates_per_generation": 4}, 8)
    frame = rows_of(tmp_path)
    assert frame.groupby("step").token_count.apply(sorted).to_dict() == pd.Series(lengths).map(sorted).to_dict()
    assert frame.groupby("generated_at").step.unique().map(sorted).to_dict() == {1: [1, 2, 3, 4], 5: [5, 6, 7, 8]}


def test_mixed_groups_by_hand() -> None:
    rewards = torch.tensor([1.0, 1.0, 0.7, -0.7, 0.0, 0.0, math.nan, 0.3, math.nan, math.nan])
    assert mixed_groups(rewards, 2).tolist() == [False, False, True, True, *[False] * 6]
    assert mixed_groups(rewards[:6], 3).tolist() == [True] * 6
    assert mixed_groups(torch.tensor([math.nan, 0.3, 0.4]), 3).all()


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_a_masked_loss_has_only_the_mixed_groups(tmp_path: Path, watch: Any, loss: str) -> None:
    """Equation 8: the loss over the other groups times their share, without the KL term of uniform groups."""
    n_mixed: list[tuple[int, int]] = []
    n_tokens: dict[tuple[int, int], list[float]] = {}

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], masked: torch.Tensor) -> None:
        mixed = inputs["tool_mask"].any(dim=1)
        assert torch.equal(mixed, inputs["advantages"] != 0)
        n_mixed.append((int(mixed.sum()), len(mixed)))
        tokens = (inputs["completion_mask"] * inputs["tool_mask"]).sum().item()
        n_tokens.setdefault((trainer.state.global_step, int(inputs["num_items_in_batch"])), []).append(tokens)
        parts = {}
        for name, rows in (("mixed", mixed), ("uniform", ~mixed)):
            part = {key: value if value.ndim == 0 else value[rows] for key, value in inputs.items()}
            if name == "mixed":
                del part["tool_mask"]
            parts[name] = GRPOTrainer.compute_loss(trainer, model, part) if rows.any() else None
        share = mixed.float().mean() if loss == "grpo" else 1.0
        if parts["mixed"] is not None:
            assert masked.item() == pytest.approx((share * parts["mixed"]).item(), rel=1e-4, abs=1e-7)
        if parts["uniform"] is not None:
            assert not gradient(model, parts["uniform"]).any()

    watch(seen)
    log = warm_up(tmp_path, {"loss": loss, "beta": 0.1, "mask_uniform_groups": True}, 3)
    assert any(0 < some < all_ for some, all_ in n_mixed)
    assert max(metric(log, "kl")) > 0
    for (_, counted), parts in n_tokens.items():
        assert counted == sum(parts)  # the four micro-batches of a step


def test_a_constant_scalar_reward_trains_nothing_if_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The float32 mean of eight times .7 is off by one bit, so a mask by TRL's advantages kept the group."""
    give_rewards(monkeypatch, [0.7] * 8)
    log = warm_up(tmp_path, {"beta": 0.1, "mask_uniform_groups": True}, 2, group_size=8)
    assert metric(log, "grad_norm") == [0, 0]


def give_rewards(patch: pytest.MonkeyPatch, rewards: list[float]) -> None:
    """Give each eight completions these rewards."""

    def given(self: TrainingReward, completions: Any, *_: object, **__: object) -> list[float]:
        return rewards * (len(completions) // 8)

    patch.setattr(TrainingReward, "__call__", given)


def population(*groups: list[float], among: list[float] | None = None) -> list[float]:
    """Advantages by equation 2 of arXiv 2505.22257, in float64."""
    advantages = []
    for group in groups:
        deviation = math.sqrt(pvariance(among or group) + 1e-4)
        advantages += [(reward - mean(group)) / deviation for reward in group]
    return advantages


GROUPS = [0.0, 1.0], [0.25, 0.75], [1.0, 1.0], [1.0]
RIGHT_OR_WRONG = [0.0, 1.0, 1.0, 1.0, math.nan, 1.0, 0.0, 0.0]
SCALARS = [0.0, 1.0, 0.25, 0.75, 1.0, 1.0, math.nan, 1.0]


@pytest.mark.parametrize(
    ("keys", "rewards", "expected"),
    [
        ({"reward_std": "population"}, SCALARS, [*population(*GROUPS), 0]),
        (
            {"reward_std": "population", "scale_rewards": "batch"},
            SCALARS,
            [*population(*GROUPS, among=[*chain.from_iterable(GROUPS)]), 0],
        ),
        ({"scale_rewards": "none"}, RIGHT_OR_WRONG, [-0.5, 0.5, 0, 0, 0, 0, 0, 0]),
    ],
    ids=["population of a group", "population of a batch", "not scaled"],
)
def test_advantages_by_hand(
    tmp_path: Path,
    watch: Any,
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, Any],
    rewards: list[float],
    expected: list[float],
) -> None:
    """A completion without a reward has no advantage and no part in the moments."""
    give_rewards(monkeypatch, rewards)
    advantages: list[float] = []
    watch(lambda trainer, model, inputs, loss: advantages.extend(inputs["advantages"].tolist()))
    warm_up(tmp_path, keys, 1)
    assert sorted(advantages) == pytest.approx(sorted(expected * 2), abs=1e-5)


def test_completions_are_scored_at_the_temperature_at_which_they_were_drawn(
    tmp_path: Path, watch: Callable[[Seen], None]
) -> None:
    apart: list[float] = []
    m0 = load_base(tiny_policy())

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        drawn = inputs["completion_ids"]
        with torch.no_grad():
            logits = m0(input_ids=tokens, attention_mask=mask).logits[:, -drawn.shape[1] - 1 : -1]
            expected = (logits / 1.5).log_softmax(-1).gather(-1, drawn.unsqueeze(-1)).squeeze(-1)
            found = log_probabilities(trainer, model, inputs)
        apart.append(float(((found - expected) * inputs["completion_mask"]).abs().max()))

    watch(seen)
    warm_up(tmp_path, {"temperature": 1.5}, 1)
    assert 0 <= max(apart) < 1e-3


def test_after_a_swap_the_policy_is_its_own_reference(tmp_path: Path) -> None:
    log = warm_up(tmp_path / "moving", MOVING, 4)
    fixed = warm_up(tmp_path / "fixed", {"beta": 0.1}, 4)
    reset = warm_up(tmp_path / "reset", MOVING | {"reset_optimizer": True}, 4)
    assert log[:2] == fixed[:2]  # until then M0
    kl = metric(log, "kl")
    assert max(kl[0], kl[2]) < 1e-6 < min(kl[1], kl[3], fixed[2]["kl"])
    assert (tmp_path / "moving/checkpoint" / REFERENCE_FILE).is_file()
    assert reset[:3] == log[:3]
    assert reset[3] != log[3]


@pytest.mark.parametrize(
    ("keys", "signal_after", "ends_at"),
    [
        (V2_I2 | {"ratio": "none", "mask_uniform_groups": True, "beta": 0.1}, 4, 8),
        (MOVING | {"reference_every": 3, "reset_optimizer": True}, 4, 5),
        (MOVING | {"reference_every": 3, "reset_optimizer": True}, 2, 3),
        (MOVING | V2_I2 | {"reference_every": 4, "reset_optimizer": True}, 4, 8),
    ],
    ids=str,
)
def test_a_stopped_run_and_a_chain_equal_an_uninterrupted_run(
    tmp_path: Path, keys: dict[str, Any], signal_after: int, ends_at: int
) -> None:
    keys = keys | {"horizon": 12, "steps": [12]}
    k = 12 if ends_at == 8 else 6
    assert_resumes(lambda work: warm_up(work, keys, k), tmp_path, ends_at, after=signal_after)
    warm_up(tmp_path / "first", keys, signal_after)
    warm_up(tmp_path / "second", keys, k, resume_from=tmp_path / "first/checkpoint")
    assert adapter_digest(tmp_path / "second") == adapter_digest(tmp_path / "straight")


@pytest.mark.parametrize(("keys", "expected"), OBJECTIVES, ids=str)
def test_every_objective_reaches_the_trainer_and_trains(
    tmp_path: Path, watch: Any, keys: dict[str, Any], expected: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {}

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        arguments.update({name: getattr(trainer.args, name) for name in expected})

    watch(seen)
    log = warm_up(tmp_path, keys | {"updates_per_generation": 2}, 2)
    assert arguments == expected
    for grad_norm in metric(log, "grad_norm"):
        assert 0 < grad_norm < math.inf


def by_hand(keys: dict[str, Any], log_probs: torch.Tensor, batch: Any) -> torch.Tensor:
    """Return the loss of a stale micro-batch in float64."""
    mask = batch["completion_mask"].double()
    advantages = batch["advantages"].double()[:, None]
    ratios = (log_probs - batch["old_per_token_logps"].double()).exp()
    low = keys.get("epsilon", 0.2)
    clipped = ratios.clamp(1 - low, 1 + keys.get("epsilon_high", low))
    gain = torch.minimum(ratios * advantages, clipped * advantages)
    return -((gain * mask).sum(1) / mask.sum(1)).mean()


def test_the_gradient_is_that_of_the_clipped_loss(tmp_path: Path, watch: Any) -> None:
    """Only directions are compared."""
    keys = {"epsilon": 0.01, "epsilon_high": 0.02}
    cosines: list[float] = []
    plain: list[float] = []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        if trainer.state.global_step == 0 or not inputs["advantages"].any():
            return
        measured = gradient(model, loss).double()
        log_probs = log_probabilities(trainer, model, inputs)
        for compared, cosine in ((keys, cosines), ({}, plain)):
            expected = gradient(model, by_hand(compared, log_probs.double(), inputs)).double()
            if expected.norm() > 0:
                cosine.append((measured @ expected / measured.norm() / expected.norm()).item())

    watch(seen)
    warm_up(tmp_path, keys | {"updates_per_generation": 2}, 2)
    assert len(cosines) >= 2
    assert min(cosines) > 1 - 1e-5
    assert min(plain) < 1 - 1e-4


def test_without_a_ratio_the_gradient_is_the_uncorrected_policy_gradient(tmp_path: Path, watch: Any) -> None:
    apart: list[float] = []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        mask = inputs["completion_mask"]
        gain = log_probabilities(trainer, model, inputs) * inputs["advantages"][:, None] * mask
        expected = gradient(model, -(gain.sum(1) / mask.sum(1)).mean() / trainer.args.gradient_accumulation_steps)
        if trainer.state.global_step and expected.norm() > 0:  # stale rollouts
            apart.append(float((gradient(model, loss) - expected).norm() / expected.norm()))

    watch(seen)
    warm_up(tmp_path, {"updates_per_generation": 2, "ratio": "none"}, 2)
    assert apart and max(apart) < 1e-4


def test_neutral_values_equal_trl() -> None:
    keys = Warmup().objective_arguments
    assert {"epsilon_high", "use_bias_correction_kl", "entropy_coef"} < keys.keys()
    assert keys == {name: getattr(GRPOConfig(bf16=False), name) for name in keys}
