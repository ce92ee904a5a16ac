"""Trainings with completions from the real vLLM: GRPO reaches K, sends the adapter on time, and corrects the sampling
mismatch; semi-online DPO learns from the rollouts of a harvest. One file, so that one process imports vLLM."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.policies.model_keys import Lora
from g2d.problems.prompts import Prompt
from g2d.regimes.common.checkpoints import TrainingStoppedError
from g2d.regimes.common.online import Sampler
from g2d.regimes.common.prompt_choice import prompt_order
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.grpo import auto_stop
from g2d.regimes.grpo.auto_stop import train_until_decline
from g2d.regimes.grpo.keys import AutoStop, Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import to_frame
from g2d.rollouts.rollout_keys import EngineSettings, HarvestSettings
from g2d.rollouts.vllm_engine import VllmEngine
from g2d.rollouts.weights_check import WrongWeightsError
from tests.models import rollouts_of, tiny_policy
from tests.regimes.stops import assert_resumes, terminated_after
from tests.regimes.trainings import EVERY_STEP, adapter_digest, easy, metric, rows_of, semi_online, steps_of
from tests.shared import NEEDS_VLLM

pytestmark = NEEDS_VLLM

VLLM = EngineSettings(name="vllm")
WARMUP = Warmup(steps=[0, 2, 4], horizon=12, learning_rate=1e-2, max_completion_length=12)
SURE = Lora(dropout=0.0)  # dropout makes the trainer's probabilities noisy
NOISY = Lora(dropout=0.3)


@dataclass
class Run:
    work: Path
    log: list[dict[str, Any]]
    synced_at: list[int]  # steps at which the engine received the adapter


def warm_up(work: Path, k: int, *, lora: Lora = SURE, resume_from: Path | None = None, **keys: Any) -> Run:
    synced_at: list[int] = []
    close = Sampler.close

    def noted(self: Sampler) -> None:
        synced_at.extend(self.synced_at)
        close(self)

    job = TrainingJob(
        tiny_policy(heads=1), easy(20), WARMUP.model_copy(update=keys), lora=lora, group_size=2, k=k, seed=0, work=work,
        resume_from=resume_from, engine=VLLM, checkpointing=EVERY_STEP,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler, "close", noted)
        log = train_grpo(job).log
    return Run(work, steps_of(log), synced_at)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """Uninterrupted runs by `sync_every`."""
    folder = tmp_path_factory.mktemp("straight")
    every_step = warm_up(folder / "1", 4, sync_every=1, lora=NOISY)
    every_second_step = warm_up(folder / "2", 6, sync_every=2, lora=NOISY)
    return {1: every_step, 2: every_second_step}


SYNCS = [(1, [0, 1, 2, 3]), (2, [0, 2, 4])]


@pytest.mark.parametrize(("sync_every", "synced_at"), SYNCS)
def test_it_reaches_k_and_syncs_the_adapter_every_v_steps(
    straight: dict[int, Run], sync_every: int, synced_at: list[int]
) -> None:
    log = straight[sync_every].log
    assert metric(log, "step") == [*range(1, len(log) + 1)]
    assert straight[sync_every].synced_at == synced_at


@pytest.mark.parametrize(("sync_every", "synced_at"), SYNCS)
def test_a_new_adapter_agrees_with_the_trainer_and_an_older_one_does_not(
    straight: dict[int, Run], sync_every: int, synced_at: list[int]
) -> None:
    """Up to the last bits of float32.

    Raw instead of tempered log-probabilities, and dropout, would be off by far more.
    """
    for step, row in enumerate(straight[sync_every].log):
        difference = row["sampling/sampling_logp_difference/max"]
        if step in synced_at:
            assert difference < 1e-4
            assert row["sampling/importance_sampling_ratio/mean"] == pytest.approx(1.0, abs=1e-3)
        else:
            assert difference > 1e-2


@pytest.mark.parametrize("sync_every", [1, 2])
def test_the_policy_with_dropout_is_the_denominator_of_its_first_update(
    straight: dict[int, Run], sync_every: int
) -> None:
    """As without vLLM: nothing is clipped."""
    assert set(metric(straight[sync_every].log, "clip_ratio/region_mean")) == {0}


@pytest.fixture
def rollouts(straight: dict[int, Run]) -> pd.DataFrame:
    return rows_of(straight[1].work)


def test_the_rollouts_of_training_are_kept(rollouts: pd.DataFrame) -> None:
    assert rollouts.groupby("step").size().to_dict() == {1: 16, 2: 16, 3: 16, 4: 16}
    first_pass = rollouts.query("step <= 2").groupby(["step", "problem_id"])["sample"].apply(list)
    assert first_pass.tolist() == [[0, 1]] * 16
    assert rollouts["completion_text"].notna().groupby(rollouts["step"]).sum().tolist() == [
        2,
        2,
        4,
        2,
    ]  # step 3 asks its first prompt twice


def test_the_log_has_the_means_of_the_rollouts(straight: dict[int, Run], rollouts: pd.DataFrame) -> None:
    log = straight[1].log
    steps = rollouts.groupby("step")
    cut_off = (rollouts["finish_reason"] == "length").groupby(rollouts["step"])
    assert metric(log, "reward") == pytest.approx(steps["reward"].mean().tolist())
    assert metric(log, "completions/mean_length") == pytest.approx(steps["token_count"].mean().tolist())
    assert metric(log, "completions/clipped_ratio") == pytest.approx(cut_off.mean().tolist())


def test_a_chain_equals_an_uninterrupted_run(straight: dict[int, Run], tmp_path: Path) -> None:
    first = warm_up(tmp_path / "first", 2, lora=NOISY)
    chained = warm_up(tmp_path / "second", 4, lora=NOISY, resume_from=first.work / "checkpoint")
    assert adapter_digest(chained.work) == adapter_digest(straight[1].work) != adapter_digest(first.work)
    assert metric(chained.log, "reward") == metric(straight[1].log, "reward")


def test_a_stopped_run_resumes_at_a_step_of_sync(straight: dict[int, Run], tmp_path: Path) -> None:
    """Between two syncs the engine has an older adapter than the checkpoint."""
    with terminated_after(2), pytest.raises(TrainingStoppedError, match="SIGTERM at step 4 of 6"):
        warm_up(tmp_path, 6, sync_every=2, lora=NOISY)
    assert warm_up(tmp_path, 6, sync_every=2, lora=NOISY).synced_at == [4]
    assert adapter_digest(tmp_path) == adapter_digest(straight[2].work)


def test_one_generation_serves_v_updates(tmp_path: Path) -> None:
    run = warm_up(tmp_path, 4, updates_per_generation=2, ratio="none")
    assert run.synced_at == [0, 2]
    frame = pd.read_parquet(tmp_path / "rollouts.parquet")
    assert frame.groupby(["generated_at", "step"]).size().to_dict() == {(1, 1): 16, (1, 2): 16, (3, 3): 16, (3, 4): 16}
    log = pd.DataFrame(run.log)
    assert log.dropna(subset="completions/mean_length")["step"].tolist() == [1, 3]
    assert "sampling/importance_sampling_ratio/mean" not in log
    # Every completion of the large batch has another seed: the answers to some prompt differ.
    lengths = frame.groupby(["generated_at", "problem_id"]).token_count.nunique()
    assert lengths.max() > 1


def test_the_engine_gets_the_policy_and_not_its_reference(tmp_path: Path) -> None:
    log = warm_up(tmp_path, 4, beta=0.1, reference="sync", reference_every=2).log
    assert max(metric(log, "sampling/sampling_logp_difference/max")) < 1e-4
    assert log[2]["kl"] < 1e-6 < min(log[1]["kl"], log[3]["kl"])


def test_an_adapter_that_did_not_arrive_stops_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as ignored:
        ignored.setattr(VllmEngine, "_load_adapter", lambda self, folder: None)
        with pytest.raises(WrongWeightsError, match="the policy after 3 steps: vllm in float32 answers with"):
            warm_up(tmp_path / "grpo", 4)
        with pytest.raises(WrongWeightsError, match="the policy after 2 steps: vllm in float32 answers with"):
            semi_online(tmp_path / "dpo", k=4, sync_every=2, base=tiny_policy(heads=1), engine=VLLM, lora=SURE)


def test_training_and_probes_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harvest = HarvestSettings(samples_per_prompt=8, temperature=0.8, max_completion_length=12)
    warmup = WARMUP.model_copy(update={"auto": AutoStop(every=3, prompts=6, patience=1)})
    job = TrainingJob(
        tiny_policy(heads=1), easy(20), warmup, lora=SURE, seed=0, work=tmp_path, engine=VLLM, group_size=2,
        harvest=harvest, policy_id="tiny/auto", k=6,
    )  # fmt: skip
    drawn: list[pd.DataFrame] = []
    probe = auto_stop.probe_rollouts

    def kept(*arguments: Any) -> Any:
        rollouts = probe(*arguments)
        drawn.append(to_frame(rollouts))
        return rollouts

    monkeypatch.setattr(auto_stop, "probe_rollouts", kept)
    probes = train_until_decline(train_grpo, job).probes
    assert probes is not None
    assert probes["step"].tolist() == [3, 6]
    first, second = drawn
    assert {*first["engine"], *second["engine"]} == {"vllm"}
    assert probes["tokens_generated"].tolist() == [first["token_count"].sum(), second["token_count"].sum()]


def test_semi_online_dpo_trains_on_answers_of_the_synced_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped and resumed run; its rollouts equal a harvest of the adapter that was synced."""
    base = tiny_policy(heads=1)
    sync = Sampler.sync

    def kept(self: Sampler, step: int) -> bool:
        is_synced = sync(self, step)
        if is_synced:
            shutil.copytree(self.folder, tmp_path / f"synced-{step}", dirs_exist_ok=True)
        return is_synced

    monkeypatch.setattr(Sampler, "sync", kept)
    changes = {"sync_every": 2, "base": base, "engine": VLLM, "lora": SURE}
    assert_resumes(lambda work: semi_online(work, k=4, **changes), tmp_path, 3)

    policy = replace(base, adapter=str(tmp_path / "synced-2"))
    problems = [easy(10)[i] for i in prompt_order(10, 24, 0)[8:10]]  # the first of update 3, in the first pass
    vllm = VllmEngine(policy, EngineSettings(name="vllm", adapters="lora"))
    try:
        drawn = rollouts_of(policy, problems, Prompt(), Decoding(4, 1.0, 1.0, 12, 64, seed=0), engine=vllm)
    finally:
        vllm.close()
    harvest = to_frame(drawn)
    rows = rows_of(tmp_path / "straight").query("step == 3").head(8)
    assert list(rows["token_count"]) == list(harvest["token_count"])
    texts = rows["completion_text"].dropna()
    assert list(texts) == list(harvest["completion_text"])[: len(texts)]
    assert set(rows["generated_at"]) == {3}


def test_nothing_is_compiled(straight: dict[int, Run]) -> None:
    """vLLM would compile the ranking of log-probabilities, with a C++ compiler."""
    from torch._dynamo.utils import counters

    assert straight[1].log
    assert not counters["frames"]
