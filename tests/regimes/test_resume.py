"""A training that was stopped in any way resumes from its checkpoint, with the same bits as an uninterrupted one."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.cost import Cost, Meter
from g2d.jobs.files import sha256
from g2d.policies import PolicyRecord
from g2d.policies.model_keys import Lora
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.regimes.run.checkpoints import MANIFEST, Checkpointing, Checkpoints, TrainingStoppedError, require_intact
from g2d.regimes.run.job import TrainingJob
from g2d.regimes.run.stopping import stop_requests
from tests.models import tiny_policy
from tests.regimes.test_training import WARMUP, easy, pairs, steps_of, warm_up

EVERY_STEP = Checkpointing(every_steps=1)


def saving(work: Path) -> Checkpointing:
    """Save every step in a folder `stopped`, else only the last: comparing both shows that saving changes nothing."""
    return EVERY_STEP if work.name.startswith("stopped") else Checkpointing()


DPO = Dpo(epochs=3, per_device_batch_size=4, gradient_accumulation_steps=2, learning_rate=2e-3)


@contextmanager
def terminated_after(last: int, by: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    """This process receives a signal right after the checkpoint of a step; the step that follows is then the last."""
    add = Checkpoints.add

    def add_and_signal(self: Checkpoints, draft: Path, step: int) -> None:
        add(self, draft, step)
        if step == last:
            signal.raise_signal(by)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "add", add_and_signal)
        yield


def adapter(work: Path) -> str:
    return sha256(work / "adapter/adapter_model.safetensors")


def assert_resumes(
    train: Callable[[Path], list[dict[str, Any]]], folder: Path, *steps: int, after: int | None = None
) -> list[dict[str, Any]]:
    """Compare a run that is stopped at each of these steps with an uninterrupted one, and return its log.

    The signal comes `after` a step; without it, in the step before.
    """
    straight = train(folder / "straight")
    for step in steps:
        with terminated_after(after or step - 1), pytest.raises(TrainingStoppedError, match=f"at step {step} of"):
            train(folder / "stopped")
    assert train(folder / "stopped") == straight
    assert adapter(folder / "stopped") == adapter(folder / "straight")
    if (folder / "straight/rollouts.parquet").exists():
        frames = [pd.read_parquet(folder / name / "rollouts.parquet") for name in ("straight", "stopped")]
        pd.testing.assert_frame_equal(*frames)
    return straight


def dpo(work: Path, *, settings: Dpo = DPO, saving: Checkpointing = EVERY_STEP, **kwargs: Any) -> list[dict[str, Any]]:
    base, kwargs = tiny_policy(), {"lora": Lora(), "seed": 0, "checkpointing": saving} | kwargs
    return steps_of(train_dpo(TrainingJob(base, pairs(22, base), settings, work=work, **kwargs)).log)


def grpo(work: Path, **kwargs: Any) -> list[dict[str, Any]]:
    return steps_of(warm_up(work, easy(10), **{"k": 4, "checkpointing": EVERY_STEP} | kwargs))


Run = tuple[list[dict[str, Any]], str]  # log and digest of the adapter


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """DPO without an interruption: three epochs of three steps, the last of an epoch short."""
    work = tmp_path_factory.mktemp("straight")
    log = dpo(work)
    assert [row["step"] for row in log] == list(range(1, 10))
    return log, adapter(work)


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
    assert (dpo(tmp_path), adapter(tmp_path)) == straight


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
        (Checkpointing(every_minutes=None, every_steps=4), ["step-8", "step-9"]),
    ],
)
def test_how_often_is_a_matter_of_time_or_steps_and_not_of_the_result(
    tmp_path: Path, straight: Run, saving: Checkpointing, kept: list[str]
) -> None:
    assert (dpo(tmp_path, saving=saving), adapter(tmp_path)) == straight
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


class Clock:
    """A clock that tests advance by hand, and an attempt measured with it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        patch.setattr("g2d.jobs.cost.time", SimpleNamespace(perf_counter=lambda: self.now))
        patch.setattr("g2d.jobs.cost.cpu_seconds", lambda: 2 * self.now)
        add = Checkpoints.add

        def add_after_a_step(checkpoints: Checkpoints, draft: Path, step: int) -> None:
            self.now += STEP_S
            add(checkpoints, draft, step)

        patch.setattr(Checkpoints, "add", add_after_a_step)

    def attempt(self) -> Meter:
        return Meter("job", "stage", began=self.now, cpu_before=2 * self.now)


STEP_S, START_S, LOST_S = 10, 3, 1
BILLED = ("wall_s", "cpu_s", "device_s", "tokens_generated")


def interrupted(clock: Clock, train: Callable[[Meter], Any], last: int) -> tuple[Cost, Cost, Cost]:
    """Return the costs of an attempt stopped after `last` + 1 steps and of the resumed one, and their sum."""
    first = clock.attempt()
    clock.now += START_S
    with terminated_after(last), pytest.raises(TrainingStoppedError):
        train(first)
    clock.now += LOST_S  # after the last checkpoint
    lost = first.end()
    second = clock.attempt()
    clock.now += START_S
    train(second)
    kept, bill = second.end(), second.spent()
    assert second.carried is not None
    for name in BILLED:
        assert getattr(bill, name) == getattr(second.carried, name) + getattr(kept, name), name
    assert lost.wall_s - second.carried.wall_s == LOST_S
    assert lost.tokens_generated == second.carried.tokens_generated
    return lost, kept, bill


def test_a_stopped_dpo_records_the_cost_of_its_result(tmp_path: Path, straight: Run, clock: Clock) -> None:
    lost, kept, bill = interrupted(clock, lambda meter: dpo(tmp_path, meter=meter), last=4)
    assert adapter(tmp_path) == straight[1]
    assert (lost.wall_s, kept.wall_s) == (START_S + 5 * STEP_S + LOST_S, START_S + 4 * STEP_S)
    assert (bill.wall_s, bill.cpu_s) == (2 * START_S + 9 * STEP_S, 2 * (2 * START_S + 9 * STEP_S))


@pytest.mark.parametrize("chained", [False, True])
def test_a_stopped_grpo_has_the_bits_and_the_cost_of_an_uninterrupted_run(
    tmp_path: Path, clock: Clock, chained: bool
) -> None:
    """The cost of the K before it is separate."""
    start = None
    if chained:
        grpo(tmp_path / "first", k=1)
        start = tmp_path / "first/checkpoint"
    straight, meter, logs = tmp_path / "straight", clock.attempt(), []

    def train(work: Path, meter: Meter) -> None:
        texts = WARMUP.model_copy(update={"keep_rollouts": "completions"})
        logs.append(grpo(work, k=4, warmup=texts, resume_from=start, meter=meter))

    train(straight, meter)
    steps = 3 if chained else 4
    assert meter.spent().wall_s == steps * STEP_S
    rollouts = pd.read_parquet(straight / "rollouts.parquet")
    assert rollouts.groupby("step").size().to_dict() == dict.fromkeys(range(5 - steps, 5), 16)
    tokens = rollouts.groupby("step")["token_count"].sum()
    assert meter.tokens_generated == tokens.sum()
    checkpoint = require_intact(straight / "checkpoint")
    assert checkpoint["step"] == 4
    assert "spent" not in checkpoint  # results do not depend on the clock

    stopped = tmp_path / "stopped"
    lost, kept, bill = interrupted(clock, lambda meter: train(stopped, meter), last=2)
    assert bill.wall_s == 2 * START_S + steps * STEP_S
    assert bill.tokens_generated == tokens.sum()
    assert (lost.tokens_generated, kept.tokens_generated) == (tokens.loc[:3].sum(), tokens.loc[4:].sum())
    assert logs[0] == logs[1]
    assert adapter(stopped) == adapter(straight)
    pd.testing.assert_frame_equal(pd.read_parquet(stopped / "rollouts.parquet"), rollouts)


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
    assert (dpo(stopped), adapter(stopped)) == straight
    output = capfd.readouterr().out
    assert "goes on from step 4" in output
    assert how == "killed while writing" or f"{stopped}/step-5" in output


def test_a_checkpoint_of_other_settings_is_not_used(
    tmp_path: Path, stopped: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = DPO.model_copy(update={"beta": 0.2})
    assert dpo(stopped, settings=other) == dpo(tmp_path / "fresh", settings=other)
    output = capfd.readouterr().out
    assert "step-5: made under other settings, not used" in output
    assert "goes on" not in output


def test_a_finished_training_is_not_trained_again(tmp_path: Path) -> None:
    first, before = grpo(tmp_path), adapter(tmp_path)
    for part in ("adapter", "checkpoint"):
        shutil.rmtree(tmp_path / part)
    written = (tmp_path / "step-4" / MANIFEST).stat().st_mtime_ns
    assert grpo(tmp_path) == first
    assert adapter(tmp_path) == before
    assert (tmp_path / "step-4" / MANIFEST).stat().st_mtime_ns == written
