"""Trainings with completions from the real vLLM: GRPO reaches K, sends the adapter on time, and corrects the sampling
mismatch; semi-online DPO learns from the rollouts of a harvest. One file, so that one process imports vLLM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.experiment.training import train_regime
from g2d.policies import Policy
from g2d.policies.settings import Lora
from g2d.problems.prompts import Prompt
from g2d.regimes.grpo.generation import EngineGeneration
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.run.auto_stop import probe_rollouts, train_until_decline
from g2d.regimes.run.checkpoints import TrainingStoppedError
from g2d.regimes.run.job import TrainingJob
from g2d.regimes.run.prompts import prompt_order
from g2d.regimes.run.training import AutoStop
from g2d.rollouts.draw import draw_rollouts
from g2d.rollouts.engine import Decoding
from g2d.rollouts.settings import EngineSettings, Harvest
from g2d.rollouts.vllm_engine import VllmEngine
from g2d.rollouts.weights_check import WrongWeightsError
from tests.models import tiny_policy
from tests.regimes import test_training as grpo
from tests.regimes.test_processes import in_two, meter
from tests.regimes.test_resume import EVERY_STEP, adapter, assert_resumes, terminated_after
from tests.regimes.test_semi_online_dpo import rows_of, semi_online
from tests.regimes.test_training import easy, steps_of
from tests.shared import NEEDS_VLLM

pytestmark = NEEDS_VLLM

VLLM = EngineSettings(name="vllm")
WARMUP = Warmup(steps=[0, 2, 4], horizon=6, learning_rate=1e-2, max_completion_length=12)
SURE = Lora(dropout=0.0)  # dropout makes the trainer's probabilities noisy
NOISY = Lora(dropout=0.3)


@pytest.fixture
def generations(monkeypatch: pytest.MonkeyPatch) -> list[EngineGeneration]:
    created: list[EngineGeneration] = []
    initialise = EngineGeneration.__init__

    def remembered(self: EngineGeneration, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        created.append(self)

    monkeypatch.setattr(EngineGeneration, "__init__", remembered)
    return created


def warm_up(
    work: Path, k: int, *, sync_every: int = 1, resume_from: Path | None = None, lora: Lora = SURE, **keys: Any
) -> list[dict[str, Any]]:
    warmup = WARMUP.model_copy(update={"sync_every": sync_every} | keys)
    job: dict[str, Any] = {"resume_from": resume_from, "engine": VLLM, "checkpointing": EVERY_STEP}
    return steps_of(grpo.warm_up(work, easy(20), k=k, warmup=warmup, base=tiny_policy(heads=1), lora=lora, **job))


@pytest.mark.parametrize(("sync_every", "expected"), [(1, [0, 1, 2, 3]), (2, [0, 2])])
def test_it_reaches_k_and_hands_the_adapter_over_every_v_steps(
    tmp_path: Path, generations: list[EngineGeneration], sync_every: int, expected: list[int]
) -> None:
    log = warm_up(tmp_path / "run", 4, sync_every=sync_every, lora=NOISY)
    assert [row["step"] for row in log] == [1, 2, 3, 4]
    [generation] = generations
    assert generation.synced_at == expected
    # A new adapter agrees with the trainer up to the last bits of float32, an older one does not. Raw instead of
    # tempered log-probabilities, and dropout, would be off by far more.
    differences = [row["sampling/sampling_logp_difference/max"] for row in log]
    fresh = [differences[step] for step in expected]
    stale = [difference for step, difference in enumerate(differences) if step not in expected]
    assert max(fresh) < 1e-4
    assert all(difference > 1e-2 for difference in stale)
    ratios = [row["sampling/importance_sampling_ratio/mean"] for row in log]
    assert [ratios[step] for step in expected] == pytest.approx([1.0] * len(expected), abs=1e-3)
    # The denominator of one update's rollouts is the current policy with dropout, as without vLLM.
    assert all(row["clip_ratio/region_mean"] == 0 for row in log)


@pytest.mark.parametrize("ratio", ["sampler", "none"])
def test_one_generation_serves_v_updates(tmp_path: Path, generations: list[EngineGeneration], ratio: str) -> None:
    log = warm_up(tmp_path / "run", 4, updates_per_generation=2, ratio=ratio, keep_rollouts="completions")
    [generation] = generations
    assert generation.synced_at == [0, 2]
    frame = pd.read_parquet(tmp_path / "run/rollouts.parquet")
    assert frame.groupby(["generated_at", "step"]).size().to_dict() == {(1, 1): 16, (1, 2): 16, (3, 3): 16, (3, 4): 16}
    drawn = [row for row in log if "completions/mean_length" in row]
    assert [row["step"] for row in drawn] == [1, 3]
    corrected = [row["sampling/importance_sampling_ratio/mean"] for row in drawn if ratio == "sampler"]
    assert corrected == pytest.approx([1.0] * 2 if ratio == "sampler" else [], abs=1e-3)
    assert all("sampling/importance_sampling_ratio/mean" not in row for row in log) == (ratio == "none")
    # Every completion of the large batch has another seed: the answers to some prompt differ.
    texts = frame.groupby(["generated_at", "problem_id"]).completion_text.nunique()
    assert texts.max() > 1


@pytest.mark.usefixtures("processes_are_forked")
def test_the_engines_of_all_processes_draw_the_rollouts_of_one(tmp_path: Path) -> None:
    alone, both = tmp_path / "alone", tmp_path / "both"
    warmup = WARMUP.model_copy(update={"keep_rollouts": "completions"})
    job = TrainingJob(
        tiny_policy(heads=1), easy(20), warmup, lora=SURE, seed=0, work=alone, engine=VLLM, group_size=2, k=3
    )
    same = steps_of(train_grpo(job).log)
    bill = meter()
    log = steps_of(in_two(train_regime, both, "grpo", replace(job, work=both), job_meter=bill).log)
    for row, other in zip(log, same, strict=True):
        assert row["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert row["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
        assert row["sampling/sampling_logp_difference/max"] < 1e-4
    frames = [pd.read_parquet(work / "rollouts.parquet") for work in (both, alone)]
    pd.testing.assert_frame_equal(*frames)
    assert frames[0]["reward"].nunique() == 2
    assert bill.tokens_generated == frames[0]["token_count"].sum()


def test_the_engine_gets_the_policy_and_not_its_reference(tmp_path: Path) -> None:
    log = warm_up(tmp_path / "run", 4, beta=0.1, reference="sync", reference_every=2)
    assert max(row["sampling/sampling_logp_difference/max"] for row in log) < 1e-4
    assert log[2]["kl"] < 1e-6 < min(log[1]["kl"], log[3]["kl"])


def test_a_stopped_run_resumes_at_a_step_of_sync(tmp_path: Path, generations: list[EngineGeneration]) -> None:
    """Between two syncs the engine has an older adapter than the checkpoint."""
    warm_up(tmp_path / "straight", 6, sync_every=2)
    with terminated_after(2), pytest.raises(TrainingStoppedError, match="SIGTERM at step 4 of 6"):
        warm_up(tmp_path / "stopped", 6, sync_every=2)
    warm_up(tmp_path / "stopped", 6, sync_every=2)
    assert adapter(tmp_path / "stopped") == adapter(tmp_path / "straight")
    assert [generation.synced_at for generation in generations] == [[0, 2, 4], [0, 2], [4]]


def test_an_adapter_that_did_not_arrive_stops_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as ignored:
        ignored.setattr(VllmEngine, "_load_adapter", lambda self, folder: None)
        for ratio in ("sampler", "none"):
            with pytest.raises(WrongWeightsError, match="the policy after 3 steps: vllm in float32 answers with"):
                warm_up(tmp_path / ratio, 4, ratio=ratio)
        with pytest.raises(WrongWeightsError, match="the policy after 2 updates: vllm in float32 answers with"):
            semi_online(tmp_path / "dpo", k=4, sync_every=2, base=tiny_policy(heads=1), engine=VLLM, lora=SURE)


def test_training_and_probes_take_turns_in_one_process(tmp_path: Path) -> None:
    harvest = Harvest(samples_per_prompt=8, temperature=0.8, max_completion_length=12)
    warmup = WARMUP.model_copy(update={"auto": AutoStop(every=3, prompts=6, patience=1)})
    job = TrainingJob(
        tiny_policy(heads=1), easy(20), warmup, lora=SURE, seed=0, work=tmp_path, engine=VLLM, group_size=2,
        harvest=harvest, policy_id="tiny/auto", k=6,
    )  # fmt: skip
    probes = train_until_decline(train_grpo, job).probes
    assert probes is not None
    assert probes["step"].tolist() == [3, 6]
    policy = Policy("tiny/auto", "tiny", "grpo", job.base.base, seed=0, adapter=str(tmp_path / "adapter"))
    rows = probe_rollouts(job, policy)
    assert {row.engine for row in rows} == {"vllm"}
    assert probes["tokens_generated"][probes["chosen"]].item() == sum(row.token_count for row in rows)


def test_semi_online_dpo_trains_on_answers_of_the_synced_policy(tmp_path: Path) -> None:
    """A run that vLLM generates for, stopped and continued; what it answers is what a harvest of the adapter would."""
    base = tiny_policy(heads=1)
    changes = {"sync_every": 2, "base": base, "engine": VLLM, "lora": SURE}
    assert_resumes(lambda work: semi_online(work, k=4, **changes), tmp_path, 3)

    semi_online(tmp_path / "to-2", k=2, **changes)
    policy = replace(base, adapter=str(tmp_path / "to-2/adapter"))
    problems = [easy(10)[i] for i in prompt_order(10, 24, 0)[8:10]]  # the first of update 3, in the first pass
    vllm = VllmEngine(policy, EngineSettings(name="vllm", adapters="lora"))
    try:
        harvest = draw_rollouts(policy, problems, Prompt(), Decoding(4, 1.0, 1.0, 12, 64, seed=0), engine=vllm)
    finally:
        vllm.close()
    rows = rows_of(tmp_path / "straight").query("step == 3").head(8)
    assert list(rows["completion_text"]) == [rollout.completion_text for rollout in harvest]
    assert set(rows["generated_at"]) == {3}


def test_nothing_is_compiled(tmp_path: Path) -> None:
    """Here, and in all of these tests: vLLM would have its ranks of log-probabilities, with a compiler of C++."""
    from torch._dynamo.utils import counters

    warm_up(tmp_path / "run", 1)
    assert not counters["frames"]
