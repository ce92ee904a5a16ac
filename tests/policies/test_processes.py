"""One training in two processes: the rows, rewards and losses of one process, and what a signal or a death leaves."""

from __future__ import annotations

import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from g2d.jobs.cost import Cost, Meter
from g2d.policies import Policy
from g2d.policies.settings import Lora
from g2d.problems.prompts import Prompt
from g2d.regimes.checkpoints import Checkpointing, TrainingStoppedError
from g2d.regimes.dpo import Dpo, train_dpo
from g2d.regimes.group_dpo import GroupDpo, train_group_dpo
from g2d.regimes.grpo import train_grpo
from g2d.regimes.launch import launched
from g2d.regimes.processes import NotTheFirstError, Processes, is_first, own_part, share
from g2d.regimes.rft import Example, Rft, train_rft
from g2d.regimes.semi_online_dpo import SemiOnlineDpo, train_semi_online_dpo
from g2d.regimes.stopping import StopRequests
from tests.models import tiny_policy
from tests.policies.test_group_dpo import VALUES, in_groups
from tests.policies.test_resume import adapter, terminated_after
from tests.policies.test_semi_online_dpo import SETTINGS
from tests.policies.test_training import WARMUP, easy, pairs

TWO = Processes(processes=2)
NO_DROPOUT = Lora(dropout=0.0)  # what is dropped hangs on the batch of a process
DPO = Dpo(epochs=20, per_device_batch_size=4, gradient_accumulation_steps=2, learning_rate=2e-3)  # 40 steps
RFT: dict[str, Any] = {"regime": "rft", "epochs": 2, "per_device_batch_size": 2, "gradient_accumulation_steps": 2}
GRPO = WARMUP.model_copy(update={"keep_rollouts": "completions", "beta": 0.1})
ONLINE = SemiOnlineDpo.model_validate(SETTINGS | {"prompts_per_update": 5, "steps": [3], "pairs": "all"})


def meter(job: str = "job") -> Meter:
    return Meter(job, "train")


def in_two(
    function: Callable[..., Any], folder: Path, /, *arguments: Any, own: Meter | None = None, **keywords: Any
) -> Any:
    folder.mkdir(exist_ok=True)
    return launched(
        function, arguments, keywords, training=TWO, work=folder, log=folder / "job.log", meter=own or meter()
    )


def dpo(work: Path) -> dict[str, Any]:
    return {
        "dpo": DPO,
        "lora": NO_DROPOUT,
        "seed": 0,
        "work": work,
        "checkpointing": Checkpointing(every_steps=1),
    }


def assert_alike(log: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Loss, gradient and what is logged of the rows agree, step by step."""
    rows, others = ([row for row in both if "loss" in row] for both in (log, other))
    assert len(rows) == len(others) > 1
    for row, same in zip(rows, others, strict=True):
        assert row["loss"] == pytest.approx(same["loss"], abs=1e-5)
        assert row["grad_norm"] == pytest.approx(same["grad_norm"], rel=1e-3, abs=1e-5)
        for name in ("num_tokens", "learning_rate", "step"):
            assert row[name] == same[name], name
        for name in {"rewards/margins", "logps/chosen", "entropy", "reward", "completions/mean_length"} & {*row}:
            assert row[name] == pytest.approx(same[name], abs=1e-4), name


# -------------------------------------------------------------------------------------------- what they train, and how


@contextmanager
def sampled_row_by_row() -> Iterator[None]:
    """GRPO's completions have random numbers of their own. TRL draws those of a process from one stream."""
    import torch

    from g2d.regimes.grpo_trainer import Grpo

    def draw(self: Any, prompt_ids: list[list[int]], *rest: Any) -> tuple[list[list[int]], None]:
        found = []
        with torch.random.fork_rng(), torch.no_grad():
            for place, ids in enumerate(prompt_ids):
                torch.manual_seed(zlib.crc32(repr((self.state.global_step, ids, place % 2)).encode()))
                asked = torch.tensor([ids])
                model = self.accelerator.unwrap_model(self.model)
                found.append(model.generate(asked, generation_config=self.generation_config)[0, len(ids) :].tolist())
        return found, None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Grpo, "_generate_single_turn", draw)
        yield


def every_regime(base: Policy, work: Path, meter: Meter) -> dict[str, list[dict[str, Any]]]:
    """Trained one after another, by as many processes as call this."""
    job: dict[str, Any] = {"lora": NO_DROPOUT, "seed": 0, "meter": meter}
    asked = {"prompt": Prompt(), "problems": easy(10), "k": 3}
    examples = [Example(prompt=pair["prompt"], completion=pair["chosen"]) for pair in pairs(8)]
    logs = {}
    with suppress(NotTheFirstError):
        logs["dpo"] = train_dpo(base, pairs(16), meter=meter, **dpo(work / "dpo"))
    with suppress(NotTheFirstError):
        logs["rft"] = train_rft(base, examples, rft=Rft.model_validate(RFT), work=work / "rft", **job)
    with suppress(NotTheFirstError):
        # 7 prompts, 4 an update, 3 passes of up to 4 rollouts: the last one of an update has nobody beside it.
        settings = GroupDpo.model_validate(VALUES | {"prompts_per_update": 5, "per_device_batch_size": 4})
        logs["group_dpo"] = train_group_dpo(base, in_groups(7), group_dpo=settings, work=work / "group_dpo", **job)
    with suppress(NotTheFirstError), sampled_row_by_row():
        logs["grpo"] = train_grpo(base, warmup=GRPO, group_size=2, work=work / "grpo", **asked, **job)
    with suppress(NotTheFirstError):
        own = work / "semi_online_dpo"
        logs["semi_online_dpo"] = train_semi_online_dpo(base, settings=ONLINE, work=own, **asked, **job)
    return logs


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, list[dict[str, Any]]]]]:
    """Every regime, by one process and by two."""
    alone, both = tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("both")
    return {
        "alone": (alone, every_regime(tiny_policy(), alone, meter())),
        "both": (both, in_two(every_regime, both, tiny_policy(), both)),
    }


@pytest.mark.parametrize("regime", ["dpo", "rft", "group_dpo", "grpo", "semi_online_dpo"])
def test_two_processes_train_as_one(trained: Any, regime: str) -> None:
    assert_alike(trained["both"][1][regime], trained["alone"][1][regime])


@pytest.mark.parametrize("regime", ["grpo", "semi_online_dpo"])
def test_prompts_completions_and_rewards_are_those_of_one_process(trained: Any, regime: str) -> None:
    frames = [pd.read_parquet(trained[name][0] / regime / "rollouts.parquet") for name in ("both", "alone")]
    pd.testing.assert_frame_equal(*frames)
    assert frames[0]["reward"].nunique() == 2
    assert frames[0].groupby("step").size().to_dict() == dict.fromkeys([1, 2, 3], 16 if regime == "grpo" else 20)


# --------------------------------------------------------------------------------- signals, and a process that dies


def when(there: Callable[[], bool], then: Callable[[], None]) -> threading.Thread:
    def watch() -> None:
        while not there():
            time.sleep(0.01)
        then()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_stopped_and_killed_it_goes_on_as_if_nothing_had_happened(trained: Any, tmp_path: Path) -> None:
    base, rows, work = tiny_policy(), pairs(16), tmp_path / "stopped"
    when((work / "step-3").is_dir, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(TrainingStoppedError, match=r"stopped by SIGTERM at step \d+ of 40, which is kept"):
        in_two(train_dpo, work, base, rows, **dpo(work))
    reached = max(int(folder.name.removeprefix("step-")) for folder in work.glob("step-*"))
    assert reached < 40

    first = meter()
    kill = lambda: os.kill(int((work / "processes/1.pid").read_text()), signal.SIGKILL)  # noqa: E731
    when((work / f"step-{reached + 3}").is_dir, kill)
    with pytest.raises(RuntimeError, match=r"process 1 of 2 was ended by SIGKILL; its log: .*/job\.rank1\.log"):
        in_two(train_dpo, work, base, rows, own=first, **dpo(work))
    assert first.progress is not None
    assert first.progress.since == reached
    assert isinstance(first.carried, Cost)

    last = meter()
    log = in_two(train_dpo, work, base, rows, own=last, **dpo(work))
    assert adapter(work) == adapter(trained["both"][0] / "dpo")
    assert [row["step"] for row in log if "loss" in row] == list(range(1, 41))
    assert last.progress is not None
    assert last.progress.step == 40
    assert last.carried is not None
    assert last.carried.cpu_s > first.carried.cpu_s


def with_and_without_a_stop(base: Policy, work: Path, meter: Meter) -> dict[str, Any]:
    """A signal reaches one of the processes alone; all of them stop at the end of that step, and go on."""
    found = {}
    for regime in (_grpo, _online):
        for name, last in (("straight", None), ("stopped", 1), ("stopped", None)):
            folder = work / f"{regime.__name__}-{name}"
            with terminated_after(last) if last else nullcontext(), suppress(NotTheFirstError, TrainingStoppedError):
                log = regime(base, folder, meter=meter, checkpointing=Checkpointing(every_steps=1))
                found[folder.name] = [{**row, "step_time": 0} for row in log if "loss" in row]
            cast(StopRequests, signal.getsignal(signal.SIGTERM)).clear()  # a job makes one training
            if last and is_first():
                assert sorted(kept.name for kept in folder.glob("step-*")) == ["step-1", "step-2"]
    return found


def _grpo(base: Policy, work: Path, **job: Any) -> list[dict[str, Any]]:
    asked = {"prompt": Prompt(), "problems": easy(10), "k": 3, "group_size": 2}
    return train_grpo(base, warmup=GRPO, work=work, seed=0, lora=Lora(), **asked, **job)


def _online(base: Policy, work: Path, **job: Any) -> list[dict[str, Any]]:
    asked = {"prompt": Prompt(), "problems": easy(10), "k": 3}
    return train_semi_online_dpo(base, settings=ONLINE, work=work, seed=0, lora=Lora(), **asked, **job)


def test_a_signal_to_one_stops_all_at_the_same_step(tmp_path: Path) -> None:
    """With dropout, and with TRL's own sampling: the random numbers of every process are in the checkpoint."""
    logs = in_two(with_and_without_a_stop, tmp_path, tiny_policy(), tmp_path)
    for regime in ("_grpo", "_online"):
        straight, stopped = (tmp_path / f"{regime}-{name}" for name in ("straight", "stopped"))
        assert len(logs[straight.name]) == 3
        assert logs[stopped.name] == logs[straight.name]
        assert adapter(stopped) == adapter(straight)
        frames = [pd.read_parquet(folder / "rollouts.parquet") for folder in (stopped, straight)]
        pd.testing.assert_frame_equal(*frames)


def test_what_one_of_them_fails_of_is_said_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(
        RuntimeError, match=r"process [01] of 2 failed: nothing is here; its log: .*/job\.(rank1\.)?log"
    ):
        in_two(_fails, tmp_path)


def _fails(meter: Meter) -> None:
    raise ValueError("nothing is here")


# --------------------------------------------------------------------------------------------------------- arithmetic


def test_the_parts_of_all_processes_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for n, total in [(1, 5), (2, 5), (3, 7), (4, 4)]:
        monkeypatch.setenv("WORLD_SIZE", str(n))
        rows = []
        for rank in range(n):
            monkeypatch.setenv("RANK", str(rank))
            rows.append(list(range(total))[own_part(total)])
        assert [row for part in rows for row in part] == list(range(total))
        assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_what_cannot_be_divided_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert share(6, "steps") == 3
    with pytest.raises(ValueError, match=r"steps=5 cannot be divided among training\.processes=2: change one"):
        share(5, "steps")
