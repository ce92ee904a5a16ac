"""Automatic stopping: the stop, the chosen probe, and a training that probes do not change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from g2d.jobs.cost import Meter
from g2d.jobs.files import read_json
from g2d.policies import PolicyRecord
from g2d.policies.model_keys import Lora
from g2d.problems.prompts import Prompt
from g2d.regimes.common.regime import Trained, TrainingJob
from g2d.regimes.grpo import auto_stop
from g2d.regimes.grpo.auto_stop import (
    PROBES,
    Probe,
    best,
    has_declined,
    probe_rollouts,
    summarised,
    train_until_decline,
)
from g2d.regimes.grpo.keys import AutoStop
from g2d.regimes.grpo.train import train_grpo
from g2d.rollouts.own_process import SamplingJob
from g2d.rollouts.rollout import to_frame
from g2d.rollouts.rollout_keys import EngineSettings, HarvestSettings
from g2d.rollouts.sample import sampling
from tests.frames import group
from tests.models import rollouts_of, texts_of, tiny_policy
from tests.regimes.stops import START_S, STEP_S, Clock, interrupted
from tests.regimes.test_rewards import begins_with_first
from tests.regimes.trainings import EVERY_STEP, adapter_digest, easy, metric, rows_of, steps_of, warm_up
from tests.regimes.trainings import WARMUP as SHORT

WARMUP = SHORT.model_copy(update={"learning_rate": 2e-2})  # so that every segment changes what is sampled
HARVEST = HarvestSettings(samples_per_prompt=8, temperature=0.8, max_completion_length=12)
AUTO = AutoStop(every=3, prompts=6, patience=1)


def probe(step: int, entropy: float | None, mid_band: float | None) -> Probe:
    n_pairable = 0.0 if entropy is None else 0.5
    return Probe(step, 100, 50, 0.5, n_pairable, 0, 1, entropy, None, None, mid_band, None, None)


def history(*values: tuple[float | None, float | None]) -> list[Probe]:
    """Probes after 10, 20, ... steps with these H and mu."""
    return [probe(10 * (i + 1), *pair) for i, pair in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "declined"),
    [
        ([], False),
        ([(0.7, 0.3)], False),
        ([(0.7, 0.3), (0.6, 0.2)], False),  # one probe below, not two
        ([(0.7, 0.3), (0.6, 0.2), (0.65, 0.25)], True),  # rising again, but below what was reached
        ([(0.7, 0.3), (0.6, 0.2), (0.6, 0.3)], False),  # mu is at its maximum again
        ([(0.7, 0.3), (0.6, 0.4), (0.5, 0.3)], False),  # only H has declined twice
        ([(0.7, 0.3), (0.6, 0.2), (0.8, 0.2), (0.7, 0.1)], False),  # a new highest H begins anew
        ([(0.7, 0.3), (0.7, 0.3), (0.7, 0.3)], False),  # flat is no decline
        ([(0.7, 0.3), (None, None), (None, None)], True),  # nothing is pairable any more
        ([(None, None), (None, None), (None, None)], False),  # nothing was yet
        ([(None, None), (0.7, 0.3), (0.6, 0.2), (None, None)], True),
    ],
)
def test_a_decline_is_both_below_their_maxima_twice_in_a_row(
    values: list[tuple[float | None, float | None]], declined: bool
) -> None:
    assert has_declined(history(*values), patience=2) is declined


def test_the_probe_with_the_highest_h_is_chosen_then_mu_then_fewer_steps() -> None:
    assert best(history((0.6, 0.9), (0.8, 0.1), (0.7, 0.5))).step == 20
    assert best(history((0.8, 0.1), (0.8, 0.2), (0.8, 0.2))).step == 20
    assert best(history((None, None), (0.1, 0.0))).step == 20
    assert best(history((None, None), (None, None))).step == 10


def job_of(work: Path, **kwargs: Any) -> TrainingJob:
    warmup = WARMUP.model_copy(update={"auto": kwargs.pop("auto", AUTO)} | kwargs.pop("keys", {}))
    options = {"harvest": HARVEST, "checkpointing": EVERY_STEP, "group_size": 2, "policy_id": "tiny/auto", "k": 6}
    return TrainingJob(tiny_policy(), easy(10), warmup, lora=Lora(), seed=0, work=work, **options | kwargs)


class Outcome(NamedTuple):
    k: int
    log: list[dict[str, Any]]
    table: pd.DataFrame
    probes: list[Probe]
    tokens_generated: int


def until_decline(work: Path, train: Callable[[TrainingJob], Trained] = train_grpo, **kwargs: Any) -> Outcome:
    job = job_of(work, **kwargs)
    trained = train_until_decline(train, job)
    assert trained.k is not None
    assert trained.probes is not None
    probes = [Probe(**probe) for probe in read_json(work / PROBES)["probes"]]
    assert trained.statistics == {"steps_trained": probes[-1].step}
    assert trained.probes["step"].tolist() == [probe.step for probe in probes]
    return Outcome(trained.k, trained.log, trained.probes, probes, job.meter.tokens_generated)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    work = tmp_path_factory.mktemp("straight")
    return until_decline(work), work


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[list[dict[str, Any]], Path]]:
    """Warm-ups to fixed K, at which the other was probed: their logs and folders."""
    folder = tmp_path_factory.mktemp("fixed")
    to_3 = warm_up(folder / "3", easy(10), k=3, warmup=WARMUP)
    to_6 = warm_up(folder / "6", easy(10), k=6, warmup=WARMUP)
    return {3: (to_3, folder / "3"), 6: (to_6, folder / "6")}


def test_the_best_probe_is_chosen(straight: tuple[Outcome, Path]) -> None:
    outcome, _ = straight
    assert outcome.table["step"].tolist() == [3, 6]
    assert outcome.k == best(outcome.probes).step


def test_it_is_the_policy_of_a_fixed_k(
    straight: tuple[Outcome, Path], fixed: dict[int, tuple[list[dict[str, Any]], Path]]
) -> None:
    outcome, work = straight
    log, folder = fixed[outcome.k]
    assert adapter_digest(work) == adapter_digest(folder)
    assert steps_of(outcome.log) == steps_of(log)
    pd.testing.assert_frame_equal(rows_of(work), rows_of(folder))


@pytest.mark.parametrize(("number", "k"), [(0, 3), (1, 6)])
def test_its_probe_is_part_of_its_harvest(
    straight: tuple[Outcome, Path], fixed: dict[int, tuple[list[dict[str, Any]], Path]], number: int, k: int
) -> None:
    outcome, work = straight
    _, folder = fixed[k]
    adapter = str(folder / "adapter")
    policy = PolicyRecord("tiny/auto", "tiny", "grpo", tiny_policy().base, seed=0, adapter=adapter)
    harvest = rollouts_of(policy, easy(10), Prompt(), sampling(HARVEST, seed=0))
    probed = probe_rollouts(job_of(work), policy, AUTO.prompts)
    assert probed == harvest[: 6 * 8]
    assert outcome.probes[number] == summarised(k, probed)


def test_a_probe_is_summarised_by_its_rollouts() -> None:
    summary = summarised(3, [*group("p0", 3), *group("p1", 0)])  # eight rollouts of 10 tokens each
    assert summary.pass_at_1 == 3 / 16
    assert summary.tokens_generated == 160


def test_a_probe_has_the_seed_of_its_job(tmp_path: Path) -> None:
    rows = probe_rollouts(replace(job_of(tmp_path), seed=3), tiny_policy(), AUTO.prompts)
    drawn = rollouts_of(tiny_policy(), easy(10)[:6], Prompt(), sampling(HARVEST, seed=3))
    assert texts_of(rows) == texts_of(drawn)


def test_a_probe_is_judged_by_the_verifier_of_its_job(tmp_path: Path) -> None:
    job = replace(job_of(tmp_path), verifier=begins_with_first(tmp_path))
    rows = to_frame(probe_rollouts(job, tiny_policy(), AUTO.prompts))
    correct = rows["verdict"] == "correct"
    assert (correct == rows["completion_text"].str.startswith("First")).all()
    assert set(correct) == {True, False}


def test_every_step_and_every_probe_is_billed(straight: tuple[Outcome, Path], tmp_path: Path) -> None:
    stale = until_decline(tmp_path, keys={"updates_per_generation": 3})
    for outcome, work in (straight, (stale, tmp_path)):
        steps = pd.concat(map(pd.read_parquet, work.glob("k*/rollouts.parquet")))
        assert len(steps) == 6 * 16
        assert outcome.tokens_generated == steps["token_count"].sum() + outcome.table["tokens_generated"].sum()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """A run that declined at step 3 of 6.

    The micro model's noise is no decline to rely on, so the probes' H and mu are dictated; the training is real.
    """
    work = tmp_path_factory.mktemp("stopped")
    declining = {1: probe(1, 0.5, 0.5), 2: probe(2, 0.9, 0.5), 3: probe(3, 0.8, 0.4)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_stop, "summarised", lambda step, rollouts: declining[step])
        return until_decline(work, auto=AutoStop(every=1, prompts=2, patience=1)), work


def test_it_stops_once_the_rule_says_so(stopped: tuple[Outcome, Path]) -> None:
    outcome, _ = stopped
    assert outcome.table["step"].tolist() == [1, 2, 3]
    assert outcome.k == 2
    assert outcome.table["chosen"].tolist() == [False, True, False]


def test_log_and_rollouts_end_at_the_chosen_step(stopped: tuple[Outcome, Path]) -> None:
    outcome, work = stopped
    assert metric(outcome.log, "step") == [1, 2]
    assert rows_of(work)["step"].unique().tolist() == [1, 2]


def test_the_adapter_is_that_of_the_chosen_step(stopped: tuple[Outcome, Path]) -> None:
    _, work = stopped
    assert adapter_digest(work) == adapter_digest(work / "k2")
    assert adapter_digest(work) != adapter_digest(work / "k3")


def test_only_the_best_and_the_last_step_are_kept(stopped: tuple[Outcome, Path]) -> None:
    """The best is exported, the last is continued."""
    _, work = stopped
    kept = sorted(str(part.relative_to(work)) for part in work.glob("k*/*"))
    assert kept == [
        "k1/rollouts.parquet",
        *("k2/adapter", "k2/checkpoint", "k2/rollouts.parquet"),
        *("k3/adapter", "k3/checkpoint", "k3/rollouts.parquet"),
    ]


# The signals come inside the second segment, and at the regular end of the first, before its probe.
@pytest.mark.parametrize("signalled", [4, 3])
def test_a_stopped_run_has_the_bits_and_the_cost_of_an_uninterrupted_one(
    tmp_path: Path, straight: tuple[Outcome, Path], clock: Clock, signalled: int
) -> None:
    outcomes: list[Outcome] = []

    def train(meter: Meter) -> None:
        outcomes.append(until_decline(tmp_path, meter=meter))

    _, _, bill = interrupted(clock, train, last=signalled)
    assert bill.wall_s == 2 * START_S + 6 * STEP_S
    assert bill.tokens_generated == straight[0].tokens_generated
    expect_the_same(outcomes[0], tmp_path, straight)


def test_the_cost_of_a_probe_is_kept_if_the_next_segment_restarts(
    tmp_path: Path, straight: tuple[Outcome, Path], clock: Clock
) -> None:
    def train_first(job: TrainingJob) -> Trained:
        if job.k > 3:
            raise KeyboardInterrupt
        return train_grpo(job)

    outcome, _ = straight
    first = clock.attempt()
    with pytest.raises(KeyboardInterrupt):
        until_decline(tmp_path, train_first, meter=first)
    assert first.end().wall_s == 3 * STEP_S
    second = clock.attempt()
    until_decline(tmp_path, meter=second)
    assert (second.measured().wall_s, second.spent().wall_s) == (3 * STEP_S, 6 * STEP_S)
    assert first.tokens_generated + second.measured().tokens_generated == outcome.tokens_generated


def test_an_attempt_after_a_crash_in_a_probe_trains_no_step_again(
    tmp_path: Path, straight: tuple[Outcome, Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def crash_at_6(step: int, rollouts: Any) -> Probe:
        if step == 6:
            raise MemoryError
        return summarised(step, rollouts)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(auto_stop, "summarised", crash_at_6)
        until_decline(tmp_path)
    capfd.readouterr()
    expect_the_same(until_decline(tmp_path), tmp_path, straight)
    output = capfd.readouterr().out
    assert "goes on from the probe at step 3" in output
    assert "checkpoint at step" not in output


def expect_the_same(outcome: Outcome, work: Path, straight: tuple[Outcome, Path]) -> None:
    uninterrupted, reference = straight
    assert outcome.probes == uninterrupted.probes
    assert outcome.tokens_generated == uninterrupted.tokens_generated
    assert steps_of(outcome.log) == steps_of(uninterrupted.log)
    for name in ("adapter/adapter_model.safetensors", "rollouts.parquet"):
        assert (work / name).read_bytes() == (reference / name).read_bytes()


def test_other_settings_restart_the_training(
    tmp_path: Path, straight: tuple[Outcome, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    work = Path(shutil.copytree(straight[1], tmp_path / "work"))
    outcome = until_decline(work, auto=AUTO.model_copy(update={"every": 6}), key={"settings": {"auto": {"every": 6}}})
    assert "made under other settings, not used" in capfd.readouterr().out
    assert outcome.table["step"].tolist() == [6]
    assert not (work / "k3").exists()


def test_a_probe_with_vllm_has_its_own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shares the GPU with the trainer."""
    drawn: list[SamplingJob] = []
    monkeypatch.setattr(auto_stop, "sample_in_own_process", lambda draw: drawn.append(draw) or [])
    engine = EngineSettings(
        name="vllm", tensor_parallel_size=2, gpu_memory_utilization=0.9, training_gpu_memory_utilization=0.4
    )
    probe_rollouts(replace(job_of(tmp_path), engine=engine), tiny_policy(), 6)
    [draw] = drawn
    assert (draw.engine.tensor_parallel_size, draw.engine.gpu_memory_utilization) == (1, 0.4)
    assert len(draw.problems) == 6
