"""Passes that a card decides on: the same training but for rounding, and the same passes after a stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from g2d.jobs.cost import Meter
from g2d.jobs.files import write_json
from g2d.memory.workload import MicroBatches
from g2d.regimes.common.checkpoints import MICROBATCHES, Checkpoints, TrainingStoppedError
from g2d.regimes.common.microbatches import choose_microbatches
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.offline.rft import Rft, train_rft
from tests.models import tiny_policy
from tests.regimes.stops import terminated_after
from tests.regimes.trainings import (
    EVERY_STEP,
    NO_DROPOUT,
    WARMUP,
    adapter_digest,
    dpo,
    easy,
    metric,
    microbatches,
    warm_up,
)

# Free and all bytes.
LARGE = (80 * 2**30, 80 * 2**30)
SMALL = (2**29, 80 * 2**30)
DPO = Dpo(epochs=2, gradient_accumulation_steps=2, learning_rate=2e-3)  # 8 pairs a step, the last of an epoch 6


def on_a_card(patch: pytest.MonkeyPatch, memory: tuple[int, int] | None) -> None:
    patch.setattr("g2d.regimes.common.microbatches.card_memory", lambda: memory)


def test_a_cpu_takes_the_numbers_that_were_the_defaults(tmp_path: Path) -> None:
    log = dpo(tmp_path / "auto", settings=DPO)
    given = dpo(tmp_path / "given", settings=DPO.model_copy(update={"per_device_batch_size": 4}))
    assert log == given
    assert adapter_digest(tmp_path / "auto") == adapter_digest(tmp_path / "given")
    assert not list(tmp_path.rglob(MICROBATCHES))


def test_a_card_with_room_takes_an_update_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"settings": DPO, "lora": NO_DROPOUT}
    by_fours = dpo(tmp_path / "fours", **settings)
    on_a_card(monkeypatch, LARGE)
    at_once = dpo(tmp_path / "at once", **settings)
    assert microbatches(tmp_path / "at once") == MicroBatches(8, False, tokens=16 * 28)
    assert metric(at_once, "loss") == pytest.approx(metric(by_fours, "loss"), abs=1e-5)
    assert "per_device_batch_size 8 (auto), activations kept: 80.0 GiB are free" in capsys.readouterr().out
    on_a_card(monkeypatch, SMALL)
    one_by_one = dpo(tmp_path / "one", **settings)
    assert microbatches(tmp_path / "one") == MicroBatches(1, True, tokens=2 * 28)
    assert metric(one_by_one, "loss") == pytest.approx(metric(by_fours, "loss"), abs=1e-5)


def test_a_number_stays_and_so_does_what_is_said_of_checkpointing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_card(monkeypatch, LARGE)
    given = DPO.model_copy(update={"per_device_batch_size": 2, "max_steps": 1})
    dpo(tmp_path, settings=given, gradient_checkpointing=True)
    assert microbatches(tmp_path) == MicroBatches(2, True)


def test_a_training_that_was_stopped_keeps_its_passes_on_another_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_card(monkeypatch, LARGE)
    straight = dpo(tmp_path / "straight", settings=DPO)
    with terminated_after(1), pytest.raises(TrainingStoppedError):
        dpo(tmp_path / "stopped", settings=DPO)
    on_a_card(monkeypatch, SMALL)
    assert dpo(tmp_path / "stopped", settings=DPO) == straight
    assert adapter_digest(tmp_path / "stopped") == adapter_digest(tmp_path / "straight")


def test_a_chain_of_warm_ups_keeps_the_passes_of_its_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warmup = WARMUP.model_copy(update={"per_device_batch_size": "auto"})
    on_a_card(monkeypatch, LARGE)
    warm_up(tmp_path / "first", easy(10), k=1, warmup=warmup, checkpointing=EVERY_STEP)
    rows = warmup.completions_per_step(2)
    assert microbatches(tmp_path / "first") == MicroBatches(rows, False, tokens=rows * 32)
    on_a_card(monkeypatch, SMALL)
    before = tmp_path / "first/checkpoint"
    warm_up(tmp_path / "next", easy(10), k=2, warmup=warmup, checkpointing=EVERY_STEP, resume_from=before)
    assert microbatches(tmp_path / "next") == MicroBatches(rows, False, tokens=rows * 32)


def test_a_training_that_continues_an_older_checkpoint_keeps_its_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_card(monkeypatch, LARGE)
    before = tmp_path / "before"
    write_json(before / MICROBATCHES, {"rows": 2, "checkpointing": True})
    job = TrainingJob(tiny_policy(), [], DPO, lora=NO_DROPOUT, seed=0, work=tmp_path, resume_from=before)
    checkpoints = Checkpoints(tmp_path, {}, Meter("tests", "train_dpo"))
    assert choose_microbatches(job, checkpoints, DPO.workload(8), (4, 8)) == MicroBatches(2, True)
    assert checkpoints.microbatches == MicroBatches(2, True)


def test_passes_have_four_rows_if_the_loss_depends_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_card(monkeypatch, LARGE)
    dpo(tmp_path, settings=DPO.model_copy(update={"nll_weight": 0.1, "max_steps": 1}))
    assert microbatches(tmp_path) == MicroBatches(4, False)


def test_rft_in_passes_of_a_card_learns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = []
    examples = [{"prompt_ids": [5, 6, 7], "completion_ids": [8] * (1 + i % 5)} for i in range(22)]
    settings = Rft.model_validate({"regime": "rft", "gradient_accumulation_steps": 2, "epochs": 1})
    for memory in (None, LARGE, SMALL):
        on_a_card(monkeypatch, memory)
        work = tmp_path / str(len(losses))
        job = TrainingJob(tiny_policy(), examples, settings, lora=NO_DROPOUT, seed=0, work=work)
        losses.append(metric(train_rft(replace(job, checkpointing=EVERY_STEP)).log, "loss"))
    assert len(losses[0]) == 3
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    assert losses[2] == pytest.approx(losses[0], abs=1e-5)
