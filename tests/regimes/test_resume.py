"""A training that was stopped in any way resumes from its checkpoint, with the same bits as an uninterrupted one."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.cost import Cost, Meter
from g2d.policies import PolicyRecord
from g2d.regimes.common.checkpoints import MANIFEST, Checkpointing, TrainingStoppedError, require_intact
from g2d.regimes.common.stopping import stop_requests
from tests.models import tiny_policy
from tests.regimes.stops import LOST_S, START_S, STEP_S, Clock, assert_resumes, interrupted, terminated_after
from tests.regimes.trainings import DPO, EVERY_STEP, adapter_digest, dpo, easy, metric, rows_of, steps_of, warm_up


def grpo(work: Path, **kwargs: Any) -> list[dict[str, Any]]:
    return steps_of(warm_up(work, easy(10), **{"k": 4, "checkpointing": EVERY_STEP} | kwargs))


Run = tuple[list[dict[str, Any]], str]  # log and digest of the adapter


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """DPO without an interruption: three epochs of three steps, the last of an epoch short."""
    work = tmp_path_factory.mktemp("straight")
    log = dpo(work)
    assert metric(log, "step") == [*range(1, 10)]
    return log, adapter_digest(work)


@pytest.fixture(scope="module")
def stopped_at_5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("stopped")
    with terminated_after(4), pytest.raises(TrainingStoppedError):
        dpo(work)
    assert sorted(folder.name for folder in work.iterdir()) == ["step-4", "step-5", "trainer"]
    assert not list(work.rglob("README.md"))  # a model card
    return work


@pytest.fixture
def stopped(stopped_at_5: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped_at_5, tmp_path / "stopped"))


# At the end of the first epoch, and before the last step; `test_a_stopped_dpo_records_the_cost` stops inside an epoch.
@pytest.mark.parametrize(("last", "by"), [(3, signal.SIGTERM), (8, signal.SIGINT)])
def test_dpo_stopped_anywhere_equals_an_uninterrupted_run(
    tmp_path: Path, straight: Run, last: int, by: signal.Signals
) -> None:
    with terminated_after(last - 1, by), pytest.raises(TrainingStoppedError, match=f"{by.name} at step {last} of 9"):
        dpo(tmp_path)
    assert (dpo(tmp_path), adapter_digest(tmp_path)) == straight


def test_dpo_from_the_warmed_up_policy_keeps_policy_and_reference_apart(tmp_path: Path) -> None:
    """If the reference adapter were in the checkpoint, the trainer would load only that one and start over."""
    grpo(tmp_path / "warm", k=2)
    start = PolicyRecord("tiny/warm", "tiny", "grpo", base=tiny_policy().base, adapter=str(tmp_path / "warm/adapter"))
    assert_resumes(partial(dpo, start=start), tmp_path, 4)


@pytest.mark.parametrize(
    ("saving", "kept"),
    [
        (Checkpointing(), ["step-9"]),  # ten minutes are not over
        (Checkpointing(every_minutes=1e-6), ["step-8", "step-9"]),
    ],
)
def test_how_often_does_not_change_the_result(
    tmp_path: Path, straight: Run, saving: Checkpointing, kept: list[str]
) -> None:
    assert (dpo(tmp_path, saving=saving), adapter_digest(tmp_path)) == straight
    assert sorted(folder.name for folder in tmp_path.glob("step-*")) == kept


def test_a_signal_in_the_last_step_is_no_reason_to_fail(tmp_path: Path) -> None:
    with terminated_after(8):
        assert len(dpo(tmp_path)) == 9


def test_a_second_ctrl_c_interrupts_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background of a shell
    with stop_requests() as requests:
        signal.raise_signal(signal.SIGINT)
        assert requests == ["SIGINT"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_stopped_dpo_records_the_cost_of_its_result(tmp_path: Path, straight: Run, clock: Clock) -> None:
    lost, kept, bill = interrupted(clock, lambda meter: dpo(tmp_path, meter=meter), last=4)
    assert adapter_digest(tmp_path) == straight[1]
    assert (lost.wall_s, kept.wall_s) == (START_S + 5 * STEP_S + LOST_S, START_S + 4 * STEP_S)
    assert (bill.wall_s, bill.cpu_s) == (2 * START_S + 9 * STEP_S, 2 * (2 * START_S + 9 * STEP_S))


@dataclass
class Grpo:
    """GRPO to K=4 with a clock, uninterrupted and stopped after step 3; `begins_at` step 1, or 2 in a chain."""

    begins_at: int
    straight: Path
    stopped: Path
    log: list[dict[str, Any]]
    log_of_stopped: list[dict[str, Any]]
    spent: Cost  # without an interruption
    lost: Cost  # of the stopped attempt, of the resumed one, and of the result
    kept: Cost
    bill: Cost

    @property
    def n_steps(self) -> int:
        return 5 - self.begins_at

    @property
    def tokens(self) -> pd.Series:
        """By step."""
        return rows_of(self.straight).groupby("step")["token_count"].sum()


@pytest.fixture(scope="module", params=[1, 2], ids=["from M0", "from a checkpoint"])
def timed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Grpo:
    folder = tmp_path_factory.mktemp("timed")
    start = None
    if request.param == 2:
        grpo(folder / "first", k=1)
        start = folder / "first/checkpoint"
    logs = []

    def train(work: Path, meter: Meter) -> None:
        logs.append(grpo(work, k=4, resume_from=start, meter=meter))

    straight, stopped = folder / "straight", folder / "stopped"
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        meter = clock.attempt()
        train(straight, meter)
        spent = meter.spent()
        lost, kept, bill = interrupted(clock, lambda meter: train(stopped, meter), last=2)
    return Grpo(request.param, straight, stopped, logs[0], logs[1], spent, lost, kept, bill)


def test_a_stopped_grpo_has_the_bits_of_an_uninterrupted_run(timed: Grpo) -> None:
    assert timed.log_of_stopped == timed.log
    assert adapter_digest(timed.stopped) == adapter_digest(timed.straight)
    pd.testing.assert_frame_equal(rows_of(timed.stopped), rows_of(timed.straight))


def test_grpo_pays_for_its_steps_and_their_tokens(timed: Grpo) -> None:
    assert timed.tokens.index.tolist() == list(range(timed.begins_at, 5))
    assert timed.spent.wall_s == timed.n_steps * STEP_S
    assert timed.spent.tokens_generated == timed.tokens.sum()


def test_a_stopped_grpo_also_pays_for_two_starts(timed: Grpo) -> None:
    assert timed.bill.wall_s == 2 * START_S + timed.n_steps * STEP_S
    assert timed.bill.tokens_generated == timed.tokens.sum()


def test_each_attempt_pays_for_the_tokens_of_its_steps(timed: Grpo) -> None:
    assert timed.lost.tokens_generated == timed.tokens.loc[:3].sum()
    assert timed.kept.tokens_generated == timed.tokens.loc[4:].sum()


def test_the_checkpoint_of_grpo_does_not_depend_on_the_clock(timed: Grpo) -> None:
    checkpoint = require_intact(timed.straight / "checkpoint")
    assert checkpoint["step"] == 4
    assert "spent" not in checkpoint


def damage(work: Path, how: str) -> None:
    newest = work / "step-5"
    if how == "truncated optimizer":
        os.truncate(newest / "optimizer.pt", (newest / "optimizer.pt").stat().st_size // 2)
    elif how == "lost file":
        (newest / "rng_state.pth").unlink()
    elif how == "no manifest":
        (newest / MANIFEST).unlink()
    elif how == "truncated manifest":
        os.truncate(newest / MANIFEST, 20)
    else:  # killed while the trainer was writing
        newest.rename(work / "trainer/checkpoint-5")


@pytest.mark.parametrize(
    "how",
    [
        "truncated optimizer",
        "lost file",
        "no manifest",
        "truncated manifest",
        "killed while writing",
    ],
)
def test_a_damaged_checkpoint_is_not_used(
    stopped: Path, straight: Run, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    damage(stopped, how)
    assert (dpo(stopped), adapter_digest(stopped)) == straight
    output = capfd.readouterr().out
    assert "goes on from step 4" in output
    assert how == "killed while writing" or f"{stopped}/step-5" in output


def test_a_checkpoint_of_other_settings_is_not_used(
    tmp_path: Path, stopped: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = {"settings": DPO.model_copy(update={"beta": 0.2}), "key": {"settings": {"dpo": {"beta": 0.2}}}}
    assert dpo(stopped, **other) == dpo(tmp_path / "fresh", **other)
    output = capfd.readouterr().out
    assert "step-5: made under other settings, not used" in output
    assert "goes on" not in output


def test_a_finished_training_is_not_trained_again(tmp_path: Path) -> None:
    first, before = grpo(tmp_path), adapter_digest(tmp_path)
    for part in ("adapter", "checkpoint"):
        shutil.rmtree(tmp_path / part)
    written = (tmp_path / "step-4" / MANIFEST).stat().st_mtime_ns
    assert grpo(tmp_path) == first
    assert adapter_digest(tmp_path) == before
    assert (tmp_path / "step-4" / MANIFEST).stat().st_mtime_ns == written
