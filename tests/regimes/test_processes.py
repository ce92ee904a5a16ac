"""One training in two processes: the rows, rewards and losses of one process, and what a signal or a death leaves."""

from __future__ import annotations

import math
import os
import pickle
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest
import torch

from g2d.jobs.cost import Meter
from g2d.jobs.environment import forget_launcher
from g2d.policies import PolicyRecord, write_policy
from g2d.policies.model_keys import Lora
from g2d.regimes.distributed.launch import launched
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.offline.dpo import train_dpo
from g2d.regimes.offline.rft import Rft, chosen_completions, train_rft
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo, train_semi_online_dpo
from g2d.regimes.run.checkpoints import TrainingStoppedError, require_intact, step_of
from g2d.regimes.run.processes import (
    NotTheFirstError,
    gathered,
    is_first,
    n_processes,
    own_part,
    share,
)
from g2d.regimes.run.regime import TrainingJob
from g2d.regimes.run.stopping import StopRequests
from g2d.stages.train_policy import train_regime
from tests.models import tiny_policy
from tests.regimes.stops import terminated_after
from tests.regimes.trainings import EVERY_STEP, SETTINGS, WARMUP, adapter_digest, easy, pairs, rows_of, steps_of
from tests.regimes.two_processes import BY_ROWS, DPO, NO_DROPOUT, TWO, assert_alike, dpo, in_two, meter
from tests.workflow import forked

pytestmark = pytest.mark.usefixtures("processes_are_forked")
SHORT = DPO.model_copy(update={"max_steps": 3})
RFT: dict[str, Any] = {"regime": "rft", "epochs": 2, "per_device_batch_size": 2, "gradient_accumulation_steps": 2}
GRPO = WARMUP.model_copy(update={"keep_rollouts": "completions", "beta": 0.1})
# Each of two processes has 6 completions a step, so the second group of 4 is split between both.
MASKED = GRPO.model_copy(update={"mask_uniform_groups": True, "per_device_batch_size": 3, "deviation": "population"})
# 5 prompts for two processes, in passes of whole groups: one process has no last pass.
ONLINE = SemiOnlineDpo.model_validate(SETTINGS | {"prompts_per_update": 5, "steps": [3], "pairs": "all"})


@contextmanager
def in_half_precision() -> Iterator[None]:
    """DPO as on a GPU: M0 in bfloat16, the adapter in float32, autocast."""
    from g2d.regimes.run import trainers

    def arguments(*given: Any, **named: Any) -> dict[str, Any]:
        return trainers.trainer_arguments(*given, **named) | {"bf16": True}

    def starting_model(*given: Any) -> Any:
        return trainers.starting_model(*given).to(torch.bfloat16)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("g2d.regimes.run.offline.trainer_arguments", arguments)
        patch.setattr("g2d.regimes.run.offline.starting_model", starting_model)
        yield


def every_regime(base: PolicyRecord, work: Path, warm: Path, meter: Meter) -> dict[str, list[dict[str, Any]]]:
    """Run all trainings one after another in as many processes as call this; some continue the adapter `warm`."""
    examples = chosen_completions(pairs(13, base))
    start = PolicyRecord("tiny/warm", "tiny", "grpo", base=base.base, adapter=str(warm))
    continued = SHORT.model_copy(update={"start": "warmup"})

    def job(name: str, data: Any, settings: Any, **more: Any) -> TrainingJob:
        return TrainingJob(base, data, settings, lora=NO_DROPOUT, seed=0, meter=meter, work=work / name, **more)

    def rft(name: str, n: int, rows: int) -> Any:
        return train_rft(job(name, examples[:n], Rft.model_validate(RFT | {"per_device_batch_size": rows})))

    def grpo(name: str, warmup: Any, group_size: int, k: int) -> Any:
        return train_grpo(job(name, easy(10), warmup, group_size=group_size, k=k))

    def half() -> Any:
        with in_half_precision():
            return train_dpo(dpo(work / "half", base, SHORT, meter=meter))

    trainings: dict[str, Callable[[], Any]] = {
        "dpo": lambda: train_dpo(dpo(work / "dpo", base, meter=meter)),
        "continued": lambda: train_dpo(dpo(work / "continued", base, continued, meter=meter, start=start)),
        "half": half,
        "rft": lambda: rft("rft", 8, 2),
        "grpo": lambda: grpo("grpo", GRPO, 2, 3),
        "uneven_dpo": lambda: train_dpo(dpo(work / "uneven_dpo", base, SHORT, n=13, meter=meter)),
        "uneven_rft": lambda: rft("uneven_rft", 13, 4),
        "masked": lambda: grpo("masked", MASKED, 4, 3),
        "semi_online_dpo": lambda: train_semi_online_dpo(job("semi_online_dpo", easy(10), ONLINE, k=3)),
    }
    logs = {}
    for name, train in trainings.items():
        with suppress(NotTheFirstError):
            logs[name] = train().log
    return logs


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, processes_are_forked: None
) -> dict[str, tuple[Path, dict[str, list[dict[str, Any]]]]]:
    """Every regime, by one process and by two."""
    alone, both = (tmp_path_factory.mktemp(name) for name in ("alone", "both"))
    warm = alone / "dpo/adapter"
    return {
        "alone": (alone, every_regime(tiny_policy(), alone, warm, meter())),
        "both": (both, in_two(every_regime, both, tiny_policy(), both, warm)),
    }


@pytest.mark.parametrize("regime", ["continued", "rft", "grpo", "dpo", "semi_online_dpo"])
def test_two_processes_train_as_one(trained: Any, regime: str) -> None:
    logged = BY_ROWS | {"completions/mean_length"}
    if regime != "grpo":  # TRL logs a mean over passes of their means, and each process shuffles its completions
        logged.add("entropy")
    assert_alike(trained["both"][1][regime], trained["alone"][1][regime], logged)


@pytest.mark.parametrize("regime", ["uneven_dpo", "uneven_rft", "masked"])
def test_rows_that_processes_cannot_divide_train_as_in_one_process(trained: Any, regime: str) -> None:
    """accelerate fills up the last micro-batches of 13 rows with the first rows; a group of GRPO is split."""
    assert_alike(trained["both"][1][regime], trained["alone"][1][regime], logged=set())


@pytest.mark.parametrize("how", ["alone", "both"])
def test_the_loss_of_bfloat16_weights_is_float32(trained: Any, how: str) -> None:
    """The bfloat16 number nearest to ln 2 is .6914."""
    log, alone = (steps_of(trained[name][1]["half"]) for name in (how, "alone"))
    assert log[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    for row, same in zip(log, alone, strict=True):
        assert row["loss"] == pytest.approx(same["loss"], abs=1e-3)
        assert row["logps/chosen"] == pytest.approx(same["logps/chosen"], abs=0.05)


@pytest.mark.parametrize(("regime", "per_step"), [("grpo", 16), ("semi_online_dpo", 20)])
def test_prompts_completions_and_rewards_equal_one_process(trained: Any, regime: str, per_step: int) -> None:
    both, alone = (rows_of(trained[name][0] / regime) for name in ("both", "alone"))
    pd.testing.assert_frame_equal(both, alone)
    assert both["reward"].nunique() == 2
    assert both.groupby("step").size().to_dict() == {1: per_step, 2: per_step, 3: per_step}


def units_dropped(base: PolicyRecord, work: Path, meter: Meter) -> dict[str, list[list[bool]]]:
    """Return, for each regime and process, which of the first units the first dropout of the training drops."""
    lora = Lora(dropout=0.5)

    def job(name: str, data: Any, settings: Any, **more: Any) -> TrainingJob:
        return TrainingJob(base, data, settings, lora=lora, seed=0, meter=meter, work=work / name, **more)

    rft = Rft.model_validate(RFT | {"max_steps": 1})
    trainings: dict[str, Callable[[], Any]] = {
        "dpo": lambda: train_dpo(job("dpo", pairs(16, base), DPO.model_copy(update={"max_steps": 1}))),
        "rft": lambda: train_rft(job("rft", chosen_completions(pairs(8, base)), rft)),
        "semi_online_dpo": lambda: train_semi_online_dpo(job("semi_online_dpo", easy(10), ONLINE, k=1)),
        "grpo": lambda: train_grpo(job("grpo", easy(10), GRPO, group_size=2, k=1)),
    }
    dropped = {}
    forward = torch.nn.Dropout.forward
    for name, train in trainings.items():
        first: list[list[bool]] = []

        def noted(self: torch.nn.Dropout, states: torch.Tensor, first: list[list[bool]] = first) -> torch.Tensor:
            kept = forward(self, states)
            if self.p == lora.dropout and self.training and not first:
                first.append((kept.flatten()[:64] == 0).tolist())
            return kept

        with pytest.MonkeyPatch.context() as patch, suppress(NotTheFirstError):
            patch.setattr(torch.nn.Dropout, "forward", noted)
            train()
        dropped[name] = gathered(first)
    return dropped


def test_processes_drop_different_units(tmp_path: Path) -> None:
    for regime, dropped in in_two(units_dropped, tmp_path, tiny_policy(), tmp_path).items():
        one, other = dropped
        assert any(one), regime
        assert one != other, regime


def when(condition: Callable[[], bool], then: Callable[[], None]) -> threading.Thread:
    def watch() -> None:
        while not condition():
            time.sleep(0.01)
        then()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@dataclass
class Attempts:
    """A training in two processes that was stopped, then lost a process, then finished."""

    work: Path
    stopped_at: int  # step
    stopped: str  # messages of the first two attempts
    killed: str
    second: Meter
    last: Meter
    log: list[dict[str, Any]]


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory, processes_are_forked: None) -> Attempts:
    base, work = tiny_policy(), tmp_path_factory.mktemp("attempts") / "stopped"
    when((work / "step-3").is_dir, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(TrainingStoppedError) as stopped:
        in_two(train_regime, work, "dpo", dpo(work, base))
    stopped_at = max(step_of(folder) for folder in work.glob("step-*"))

    def kill_the_second() -> None:
        os.kill(int((work / "processes/1.pid").read_text()), signal.SIGKILL)

    second = meter()
    when((work / f"step-{stopped_at + 3}").is_dir, kill_the_second)
    with pytest.raises(RuntimeError) as killed:
        in_two(train_regime, work, "dpo", dpo(work, base), job_meter=second)
    last = meter()
    log = in_two(train_regime, work, "dpo", dpo(work, base), job_meter=last).log
    return Attempts(work, stopped_at, str(stopped.value), str(killed.value), second, last, steps_of(log))


def test_stopped_and_killed_trainings_resume_with_the_same_bits(attempts: Attempts, trained: Any) -> None:
    assert attempts.stopped_at < 24
    assert adapter_digest(attempts.work) == adapter_digest(trained["both"][0] / "dpo")
    assert [row["step"] for row in attempts.log] == list(range(1, 25))


def test_a_stopped_training_names_the_step_that_it_kept(attempts: Attempts) -> None:
    assert re.search(r"stopped by SIGTERM at step \d+ of 24, which is kept", attempts.stopped)


def test_a_process_that_was_killed_is_named_with_its_log(attempts: Attempts) -> None:
    message = r"process 1 of 2 was ended by SIGKILL; its log: .*/job\.rank1\.log"
    assert re.search(message, attempts.killed)


def test_progress_is_counted_from_the_step_that_was_kept(attempts: Attempts) -> None:
    assert attempts.second.progress is not None
    assert attempts.second.progress.since == attempts.stopped_at
    assert attempts.last.progress is not None
    assert attempts.last.progress.step == 24


def test_each_attempt_carries_the_cost_of_those_before_it(attempts: Attempts) -> None:
    assert attempts.second.carried is not None
    assert attempts.last.carried is not None
    assert attempts.last.carried.cpu_s > attempts.second.carried.cpu_s


def with_and_without_a_stop(base: PolicyRecord, work: Path, meter: Meter) -> dict[str, Any]:
    """Only one process receives a signal; all of them stop at the end of that step, and resume."""
    logs = {}
    for regime in (_grpo, _online):
        for name, last in (("straight", None), ("stopped", 1), ("stopped", None)):
            folder = work / f"{regime.__name__}-{name}"
            with terminated_after(last) if last else nullcontext(), suppress(NotTheFirstError, TrainingStoppedError):
                log = regime(base, folder, meter=meter, checkpointing=EVERY_STEP)
                logs[folder.name] = steps_of(log)
            cast(StopRequests, signal.getsignal(signal.SIGTERM)).clear()  # a job makes one training
            if last and is_first():
                assert sorted(kept.name for kept in folder.glob("step-*")) == ["step-1", "step-2"]
    return logs


def _grpo(base: PolicyRecord, work: Path, **job: Any) -> list[dict[str, Any]]:
    return train_grpo(TrainingJob(base, easy(10), GRPO, k=3, group_size=2, work=work, seed=0, lora=Lora(), **job)).log


def _online(base: PolicyRecord, work: Path, **job: Any) -> list[dict[str, Any]]:
    return train_semi_online_dpo(TrainingJob(base, easy(10), ONLINE, k=3, work=work, seed=0, lora=Lora(), **job)).log


def test_a_signal_to_one_stops_all_at_the_same_step(tmp_path: Path) -> None:
    """The training has dropout: the random state of every process is in the checkpoint."""
    logs = in_two(with_and_without_a_stop, tmp_path, tiny_policy(), tmp_path)
    for regime in ("_grpo", "_online"):
        straight, stopped = (tmp_path / f"{regime}-{name}" for name in ("straight", "stopped"))
        assert len(logs[straight.name]) == 3
        assert logs[stopped.name] == logs[straight.name]
        assert adapter_digest(stopped) == adapter_digest(straight)
        frames = [pd.read_parquet(folder / "rollouts.parquet") for folder in (stopped, straight)]
        pd.testing.assert_frame_equal(*frames)


def test_when_the_job_is_killed_its_processes_save_the_step_and_end(tmp_path: Path) -> None:
    work, base = tmp_path / "stopped", tmp_path / "base.json"
    write_policy(base, tiny_policy())
    script = tmp_path / "job.py"
    script.write_text(KILLED.format(base=str(base), work=str(work)))
    ended: list[int] = []
    job = threading.Thread(target=lambda: ended.append(forked.train([str(script)], Path(__file__).parents[2])))
    job.start()
    while not (work / "step-2").is_dir():
        assert job.is_alive()
        time.sleep(0.05)
    ranks = [os.pidfd_open(int((work / f"processes/{rank}.pid").read_text())) for rank in (0, 1)]
    os.kill(int((tmp_path / "job.pid").read_text()), signal.SIGKILL)
    job.join()
    assert ended == [-signal.SIGKILL]
    for rank in ranks:
        select.select([rank], [], [])
        os.close(rank)
    reached = max(work.glob("step-*"), key=step_of)
    assert step_of(reached) < 24
    require_intact(reached)


KILLED = """
import os
from pathlib import Path
from g2d.policies import read_policy
from g2d.stages.train_policy import train_regime
from tests.regimes.two_processes import dpo, in_two
Path(__file__).with_name("job.pid").write_text(str(os.getpid()))
base = read_policy("{base}")
in_two(train_regime, Path("{work}"), "dpo", dpo(Path("{work}"), base))
"""


def test_an_error_of_one_process_is_shown_with_its_log(tmp_path: Path) -> None:
    message = r"process [01] of 2 failed: warmup\.gradient_accumulation_steps=5 .*; its log: .*/job\.(rank1\.)?log"
    job = {"training": TWO, "work": tmp_path, "log": tmp_path / "job.log", "meter": meter()}
    with pytest.raises(RuntimeError, match=message):
        launched(fails, (), **job)


def fails(meter: Meter) -> None:
    share(5, "warmup.gradient_accumulation_steps")


class Code:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('unpickled')",)


def test_no_checkpoint_runs_code_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the file claims to be, and however it is read."""
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")  # and put back
    train_dpo(dpo(tmp_path / "work", tiny_policy(), DPO.model_copy(update={"max_steps": 1})))
    torch.save([{"state": Code()}], tmp_path / "optimizer.pt")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        torch.load(tmp_path / "optimizer.pt", weights_only=False)


def test_the_parts_of_all_processes_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for n, total in [(1, 5), (2, 5), (3, 7), (4, 4)]:
        monkeypatch.setenv("WORLD_SIZE", str(n))
        rows = []
        for rank in range(n):
            monkeypatch.setenv("RANK", str(rank))
            rows.append(list(range(total))[own_part(total)])
        assert [row for part in rows for row in part] == list(range(total))
        assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_another_launchers_environment_is_not_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = {"WORLD_SIZE": "4", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "there", "ACCELERATE_USE_CPU": "true"}
    for name, value in (foreign | {"LOCAL_SCRATCH": "here"}).items():
        monkeypatch.setenv(name, value)
    forget_launcher()
    assert (n_processes(), is_first()) == (1, True)
    assert not foreign.keys() & os.environ.keys()
    assert os.environ["LOCAL_SCRATCH"] == "here"
    assert capsys.readouterr().out.startswith("WORLD_SIZE=4 is ignored: set training.processes")
    forget_launcher()
    assert capsys.readouterr().out == ""


def test_indivisible_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert share(6, "steps") == 3
    with pytest.raises(ValueError, match=r"steps=5 cannot be divided among training\.processes=2: change one"):
        share(5, "steps")
