"""Rows of alike lengths in a pass: an update has the rows that it had, its loss and its gradient, and less padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from g2d.memory.workload import MicroBatches
from g2d.regimes.common import microbatches, offline, online
from g2d.regimes.common.by_length import dealt, regrouped
from g2d.regimes.common.online import Sampler
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.offline.pair_trainer import PairTrainer
from g2d.regimes.offline.rft import Rft, labelled, train_rft
from g2d.regimes.on_policy.group_trainer import Group, in_passes
from tests.models import tiny_policy
from tests.regimes.stops import assert_resumes
from tests.regimes.test_rewards import COIN
from tests.regimes.trainings import NO_DROPOUT, WARMUP, dpo, easy, metric, semi_online, steps_of, warm_up

BY_ROWS = {"num_tokens", "rewards/margins", "logps/chosen", "reward", "learning_rate", "step"}
DPO = Dpo(epochs=2, gradient_accumulation_steps=2, learning_rate=2e-3)  # 8 pairs a step, the last of an epoch 6


def assert_alike(log: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    rows = steps_of(log)
    others = steps_of(other)
    assert len(rows) == len(others) > 1
    assert any(metric(rows, "grad_norm"))
    for row, same in zip(rows, others, strict=True):
        assert row["loss"] == pytest.approx(same["loss"], abs=1e-5)
        assert row["grad_norm"] == pytest.approx(same["grad_norm"], rel=1e-3, abs=1e-5)
        for name in BY_ROWS & {*row}:
            assert row[name] == pytest.approx(same[name], abs=1e-4), name


def test_the_longest_rows_share_a_pass_and_short_ones_are_more() -> None:
    assert dealt([3, 10, 4, 9, 2, 5], tokens=20) == [[1, 3], [5, 2, 0, 4]]  # 2 x 10, 4 x 5
    assert dealt([30, 1], tokens=20) == [[0], [1]]
    assert dealt([], tokens=20) == []


def test_groups_of_alike_lengths_share_a_pass() -> None:
    def group(width: int) -> Group:
        return Group(str(width), (1,), ((1,) * (width - 1), (1,)), ((0, 1),), (0.0, 0.0))

    groups = [group(3), group(10), group(4), group(9)]
    assert [*in_passes(groups, 2, tokens=40)] == [[group(10), group(9)], [group(4), group(3)]]
    assert [*in_passes(groups, 2)] == [[group(3)], [group(10)], [group(4)], [group(9)]]


LENGTHS = torch.tensor([2, 6, 5, 1, 3, 3, 4, 2])  # two updates of two passes


@pytest.fixture
def sorted_batches() -> list[dict[str, torch.Tensor]]:
    """Batches of completions of `LENGTHS` tokens."""
    mask = (torch.arange(8) < LENGTHS[:, None]).long()
    prompts = (torch.arange(4) >= torch.tensor([2, 1] * 4)[:, None]).long()
    whole = {"completion_mask": mask, "prompt_mask": prompts, "prompt_ids": prompts, "row": torch.arange(8)}
    whole |= {"of_tokens": mask * LENGTHS[:, None], "of_sequences": LENGTHS[:, None]}  # importance sampling ratios
    batches = []
    for i in (0, 2, 4, 6):
        batch = {name: value[i : i + 2] for name, value in whole.items()}
        batches.append(batch | {"n": torch.tensor(9)})
    return regrouped(batches, per_update=2)


def widths(batches: list[dict[str, torch.Tensor]], name: str) -> list[int]:
    return [batch[name].shape[1] for batch in batches]


def test_completions_stay_in_their_update_of_grpo_and_are_sorted_in_it(
    sorted_batches: list[dict[str, torch.Tensor]],
) -> None:
    assert [batch["row"].tolist() for batch in sorted_batches] == [[1, 2], [0, 3], [6, 4], [5, 7]]


def test_sorted_batches_are_as_wide_as_their_longest_row(sorted_batches: list[dict[str, torch.Tensor]]) -> None:
    assert widths(sorted_batches, "completion_mask") == [6, 2, 4, 3]
    assert widths(sorted_batches, "prompt_ids") == [3, 3, 2, 3]


def test_values_of_a_completion_are_sorted_with_it(sorted_batches: list[dict[str, torch.Tensor]]) -> None:
    for batch in sorted_batches:
        assert batch["n"] == 9
        assert batch["of_sequences"].tolist() == LENGTHS[batch["row"]][:, None].tolist()
        assert batch["of_tokens"].tolist() == (batch["completion_mask"] * batch["of_sequences"]).tolist()


def set_microbatches(patch: pytest.MonkeyPatch, chosen: MicroBatches | None) -> None:
    for regime in (offline, online):
        patch.setattr(
            regime, "choose_microbatches", microbatches.choose_microbatches if chosen is None else lambda *_: chosen
        )


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of tokens of every pass of DPO, with padding."""
    seen: list[int] = []
    compute = PairTrainer.compute_loss

    def see(self: Any, model: Any, inputs: Any, **keywords: Any) -> Any:
        seen.append(inputs["input_ids"].numel())
        return compute(self, model, inputs, **keywords)

    monkeypatch.setattr(PairTrainer, "compute_loss", see)
    return seen


@pytest.mark.parametrize("keys", [{}, {"precompute_reference": True, "loss": "ipo"}])
def test_dpo_by_length_has_the_losses_and_gradients_of_equal_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes: list[int], keys: dict[str, Any]
) -> None:
    settings = DPO.model_copy(update=keys)
    at_once = settings.model_copy(update={"per_device_batch_size": 8, "gradient_accumulation_steps": 1})
    by_eights = dpo(tmp_path / "eights", settings=at_once, lora=NO_DROPOUT)
    before = sum(passes)
    passes.clear()
    set_microbatches(monkeypatch, MicroBatches(3, False, tokens=6 * 26))
    by_length = dpo(tmp_path / "by length", settings=settings, lora=NO_DROPOUT)
    assert_alike(by_eights, by_length)
    assert len(passes) > len(by_length)
    assert max(passes) <= 6 * 26
    assert sum(passes) < before


def test_a_trainer_that_ignores_passes_by_length_is_refused(tmp_path: Path) -> None:
    from trl import SFTConfig, SFTTrainer

    def plain(arguments: dict[str, Any], microbatches: MicroBatches, **parts: Any) -> Any:
        return SFTTrainer(args=SFTConfig(**arguments), **parts)

    rows = [labelled({"prompt_ids": [5, 6, 7], "completion_ids": [8]})]
    job = TrainingJob(
        tiny_policy(), rows, Rft.model_validate({"regime": "rft"}), lora=NO_DROPOUT, seed=0, work=tmp_path
    )
    with pytest.raises(TypeError, match="SFTTrainer: derive it from PassesByLength"):
        offline.train_offline(job, rows, statistics={}, trainer=plain, lengths=(3, 1))


def test_rft_by_length_learns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [{"prompt_ids": [5, 6, 7], "completion_ids": [8] * (1 + i % 5)} for i in range(22)]
    settings = Rft.model_validate({"regime": "rft", "gradient_accumulation_steps": 2, "epochs": 1})
    logs = []
    for chosen in (None, MicroBatches(2, False, tokens=16)):
        set_microbatches(monkeypatch, chosen)
        job = TrainingJob(tiny_policy(), examples, settings, lora=NO_DROPOUT, seed=0, work=tmp_path / str(len(logs)))
        logs.append(train_rft(job).log)
    assert_alike(*logs)


def test_groups_by_length_learn_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extras: dict[str, Any] = {"pairs": "all", "nll_weight": 0.5, "entropy_coefficient": 0.1, "lora": NO_DROPOUT}
    logs = []
    for chosen in (None, MicroBatches(2, False, tokens=100)):
        set_microbatches(monkeypatch, chosen)
        logs.append(semi_online(tmp_path / str(len(logs)), k=2, **extras))
    assert_alike(*logs)


@pytest.mark.parametrize(
    "keys",
    [
        {"updates_per_generation": 2, "loss": "dapo"},
        {"updates_per_generation": 2, "loss": "dr_grpo"},
        {"iterations": 2},
    ],
)
def test_grpo_by_length_learns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]) -> None:
    draw = Sampler.sample

    def of_many_lengths(self: Sampler, prompts: list[list[int]], names: list[str]) -> Any:
        completions, _ = draw(self, prompts, names)
        return [ids[: 1 + i % 8] for i, ids in enumerate(completions)], None

    monkeypatch.setattr(Sampler, "sample", of_many_lengths)
    warmup = WARMUP.model_copy(update={"beta": 0.1} | keys)
    logs = []
    for chosen in (MicroBatches(4, False), MicroBatches(4, False, tokens=1)):
        set_microbatches(monkeypatch, chosen)
        # On some CPUs all shortened answers are wrong, so rewards of Math-Verify would give no signal.
        work = tmp_path / str(len(logs))
        logs.append(warm_up(work, easy(20), k=2, warmup=warmup, lora=NO_DROPOUT, reward=COIN))
    assert_alike(*logs)
    assert logs[0][0]["grad_norm"] > 1e-2


def test_a_training_by_length_that_was_stopped_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_microbatches(monkeypatch, MicroBatches(3, False, tokens=6 * 26))
    assert_resumes(lambda work: dpo(work, settings=DPO), tmp_path, 4)
