"""Semi-online DPO on a tiny model: rollouts, reference, and resuming with the same bits."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.cost import Meter
from g2d.jobs.files import sha256
from g2d.policies import PolicyRecord
from g2d.policies.model_keys import Lora
from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.regimes.common.checkpoints import TrainingStoppedError, require_intact
from g2d.regimes.common.online import Sampler
from g2d.regimes.common.prompt_choice import prompt_order
from g2d.regimes.on_policy import rollouts as on_policy
from g2d.regimes.on_policy.rollouts import seed_after, sync_period
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo
from g2d.rewards.controls import Random
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import Rollout, to_frame
from g2d.rollouts.sample import sample_rollouts
from tests.models import rollouts_of, tiny_policy
from tests.regimes.stops import assert_resumes, terminated_after
from tests.regimes.trainings import (
    NO_DROPOUT,
    SETTINGS,
    adapter_digest,
    easy,
    impossible,
    metric,
    rows_of,
    semi_online,
    warm_up,
)


def equals_harvest(rows: pd.DataFrame, policy: PolicyRecord, seed: int) -> list[bool]:
    """Return whether each recorded text is the harvest's for its problem and sample."""
    rows = rows.dropna(subset="completion_text")
    decoding = Decoding(4, 1.0, 1.0, 12, 64, seed=seed)
    harvest = to_frame(rollouts_of(policy, easy(10), Prompt(), decoding)).set_index(["problem_id", "sample"])
    texts = harvest["completion_text"].loc[list(zip(rows["problem_id"], rows["sample"], strict=True))]
    return [*(texts.to_numpy() == rows["completion_text"].to_numpy())]


def ids_in_order(seed: int) -> list[str]:
    """Return the problem of each group of six updates."""
    problems = easy(10)
    return [problems[i].problem_id for i in prompt_order(10, 24, seed)]


def with_a_pair(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in log if row["pairs"]]


def test_without_a_sync_it_trains_on_the_rollouts_of_the_harvest_of_m0(tmp_path: Path) -> None:
    """10 problems, 4 an update: the first pass ends within the third update, and further visits are drawn anew."""
    semi_online(tmp_path, sync_every="never")
    rows = rows_of(tmp_path)
    assert set(rows["generated_at"]) == {1}
    assert list(rows["step"].unique()) == [1, 2, 3, 4, 5, 6]
    assert list(rows["problem_id"][::4]) == ids_in_order(0)
    same = equals_harvest(rows, tiny_policy(), seed=0)
    assert all(same[:12])  # a text of each update is recorded
    assert not all(same[12:])


def test_online_every_update_learns_from_the_policy_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before update i, the generator is the adapter of a run to K = i."""
    synced: list[tuple[int, str]] = []
    sync = Sampler.sync

    def noted(self: Sampler, step: int) -> bool:
        is_synced = sync(self, step)
        if is_synced:
            synced.append((step, sha256(self.folder / "adapter_model.safetensors")))
        return is_synced

    monkeypatch.setattr(Sampler, "sync", noted)
    semi_online(tmp_path / "all", k=4)
    steps, digests = zip(*synced, strict=True)
    assert steps == (1, 2, 3)
    assert len(set(digests)) == 3
    for step, digest in zip(steps, digests, strict=True):
        semi_online(tmp_path / f"to-{step}", k=step)
        assert adapter_digest(tmp_path / f"to-{step}") == digest
    generated = rows_of(tmp_path / "all").groupby("step")["generated_at"].unique().map(list)
    assert generated.to_dict() == {1: [1], 2: [2], 3: [3], 4: [4]}


def test_a_long_interval_drawn_in_parts_gives_the_same_rollouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a run can stop while M0 samples for hundreds of updates."""
    semi_online(tmp_path / "at-once", sync_every="never")
    monkeypatch.setattr(on_policy, "TOGETHER", 2 * 4 * 4)  # two updates
    n_prompts: list[int] = []

    def noted(base: PolicyRecord, problems: list[Problem], *arguments: Any, **keywords: Any) -> list[Rollout]:
        n_prompts.append(len(problems))
        return sample_rollouts(base, problems, *arguments, **keywords)

    monkeypatch.setattr(on_policy, "sample_rollouts", noted)
    semi_online(tmp_path / "in-parts", sync_every="never")
    assert n_prompts == [8, 8, 8]
    pd.testing.assert_frame_equal(rows_of(tmp_path / "in-parts"), rows_of(tmp_path / "at-once"))
    assert adapter_digest(tmp_path / "in-parts") == adapter_digest(tmp_path / "at-once")


def test_with_a_reference_that_follows_at_once_the_loss_never_leaves_ln_2(tmp_path: Path) -> None:
    log = with_a_pair(semi_online(tmp_path, reference="sync"))
    assert metric(log, "loss") == pytest.approx([math.log(2)] * len(log), abs=1e-6)
    assert metric(log, "rewards/margins") == pytest.approx([0.0] * len(log), abs=1e-6)
    fixed = with_a_pair(semi_online(tmp_path / "fixed", lora=NO_DROPOUT))
    assert len(fixed) > 1
    assert fixed[-1]["loss"] != pytest.approx(math.log(2), abs=1e-3)


def test_a_reference_that_follows_stays_between_two_syncs(tmp_path: Path) -> None:
    """Updates 1, 3 and 5 begin at the reference, the others do not. Every update has pairs, by random rewards."""
    log = semi_online(tmp_path, reference="sync", sync_every=2, reward=Random(reward="random"))
    margins = metric(log, "rewards/margins")
    assert margins[::2] == pytest.approx([0.0] * 3, abs=1e-6)
    assert min(map(abs, margins[1::2])) >= 1e-4


@pytest.mark.parametrize(("sync_every", "reference"), [(1, "base"), ("never", "base"), (4, "sync")])
def test_stopped_anywhere_it_equals_an_uninterrupted_run(tmp_path: Path, sync_every: Any, reference: str) -> None:
    """The second stop is where the generator is due."""
    meters: list[Meter] = []

    def train(work: Path) -> list[dict[str, Any]]:
        meters.append(Meter("tests", "train_semi_online_dpo"))
        return semi_online(work, meter=meters[-1], sync_every=sync_every, reference=reference)

    assert_resumes(train, tmp_path, 2, 4)
    assert meters[-1].tokens_generated == rows_of(tmp_path / "stopped")["token_count"].sum()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> PolicyRecord:
    """GRPO's policy after two steps."""
    folder = tmp_path_factory.mktemp("grpo")
    warm_up(folder, easy(10), k=2, lora=NO_DROPOUT, group_size=4)
    return replace(
        tiny_policy(),
        policy_id="tiny/seed0/grpo/g4/k2",
        regime="grpo",
        k=2,
        seed=0,
        adapter=str(folder / "adapter"),
        weights_sha256=adapter_digest(folder),
    )


@dataclass
class FromStart:
    """Trainings from a start, without a sync."""

    work: Path  # of the training with the start as its reference
    of_start: list[dict[str, Any]]
    of_m0: list[dict[str, Any]]  # with M0 as its reference


@pytest.fixture(scope="module")
def from_start(start: PolicyRecord, tmp_path_factory: pytest.TempPathFactory) -> FromStart:
    folder = tmp_path_factory.mktemp("from-start")
    changes = {"k": 2, "lora": NO_DROPOUT, "started": start, "sync_every": "never"}
    of_start = semi_online(folder / "own", reference="start", **changes)
    return FromStart(folder / "own", of_start, semi_online(folder / "m0", **changes))


def test_a_training_with_its_start_as_reference_begins_at_a_margin_of_0(from_start: FromStart) -> None:
    first = with_a_pair(from_start.of_start)[0]
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert first["rewards/chosen"] == pytest.approx(0, abs=1e-6)


def test_a_training_with_m0_as_reference_begins_at_its_start_too(from_start: FromStart) -> None:
    first = with_a_pair(from_start.of_m0)[0]
    of_start = with_a_pair(from_start.of_start)[0]
    assert first["logps/chosen"] == pytest.approx(of_start["logps/chosen"], abs=1e-5)
    assert abs(first["rewards/chosen"]) > 1e-6


def test_a_training_from_a_start_begins_with_its_own_learning_rate(from_start: FromStart) -> None:
    assert from_start.of_start[0]["learning_rate"] == SETTINGS["learning_rate"]


def test_a_training_from_a_start_draws_a_harvest_of_it(from_start: FromStart, start: PolicyRecord) -> None:
    seed = seed_after(0, start)
    rows = rows_of(from_start.work)
    assert set(rows["generated_at"]) == {1}
    assert list(rows["problem_id"][::4]) == ids_in_order(seed)[:8]
    assert all(equals_harvest(rows, start, seed))


def test_the_random_numbers_after_a_start_depend_on_seed_and_start(start: PolicyRecord) -> None:
    other = replace(start, policy_id="tiny/k4")
    assert len({0, seed_after(0, start), seed_after(1, start), seed_after(0, other)}) == 4


@pytest.mark.parametrize(("sync_every", "reference"), [(1, "base"), (4, "sync"), ("never", "start")])
def test_a_training_from_a_start_resumes_with_the_same_bits(
    tmp_path: Path, start: PolicyRecord, sync_every: Any, reference: str
) -> None:
    """Stopped within the interval of the start and after a sync, and in a chain."""
    changes = {"sync_every": sync_every, "reference": reference, "started": start, "lora": NO_DROPOUT}
    straight = assert_resumes(lambda work: semi_online(work, **changes), tmp_path, 2, 5)
    semi_online(tmp_path / "to-3", k=3, **changes)
    assert semi_online(tmp_path / "chained", resume_from=tmp_path / "to-3/checkpoint", **changes) == straight
    assert adapter_digest(tmp_path / "chained") == adapter_digest(tmp_path / "straight")


@dataclass
class Chain:
    """A training to K=6, and the same in two jobs."""

    folder: Path
    straight: list[dict[str, Any]]
    chained: list[dict[str, Any]]  # its second job
    tokens_generated: int  # by the second job
    sync_every: int


@pytest.fixture(scope="module", params=[{"sync_every": 2}, {"sync_every": 4, "reference": "sync"}])
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    folder = tmp_path_factory.mktemp("chain")
    straight = semi_online(folder / "straight", **request.param)
    semi_online(folder / "first", k=3, **request.param)
    meter = Meter("tests", "train_semi_online_dpo")
    checkpoint = folder / "first/checkpoint"
    chained = semi_online(folder / "second", resume_from=checkpoint, meter=meter, **request.param)
    return Chain(folder, straight, chained, meter.tokens_generated, request.param["sync_every"])


def test_a_chain_equals_one_uninterrupted_run_also_if_k_is_between_two_syncs(chain: Chain) -> None:
    assert chain.chained == chain.straight
    assert adapter_digest(chain.folder / "second") == adapter_digest(chain.folder / "straight")


def test_updates_between_two_syncs_have_rollouts_of_the_earlier_one(chain: Chain) -> None:
    generated = rows_of(chain.folder / "straight").groupby("step")["generated_at"].first().tolist()
    expected = {2: [1, 1, 3, 3, 5, 5], 4: [1, 1, 1, 1, 5, 5]}
    assert generated == expected[chain.sync_every]


def test_each_job_of_a_chain_keeps_and_pays_for_the_rollouts_of_its_updates(chain: Chain) -> None:
    first, second = rows_of(chain.folder / "first"), rows_of(chain.folder / "second")
    pd.testing.assert_frame_equal(pd.concat([first, second], ignore_index=True), rows_of(chain.folder / "straight"))
    assert chain.tokens_generated == second["token_count"].sum()


def test_the_last_job_of_a_chain_leaves_a_checkpoint_at_its_k(chain: Chain) -> None:
    assert require_intact(chain.folder / "second/checkpoint")["step"] == 6


@pytest.mark.parametrize("lora", [Lora(), Lora.model_validate("none")], ids=["lora", "none"])
def test_an_update_without_a_pair_has_a_zero_gradient(tmp_path: Path, lora: Lora) -> None:
    """No rollout can be right. Such updates are logged, and a run resumes from them."""
    changes = {"k": 3, "problems": impossible(easy(10)), "lora": lora}
    rows = semi_online(tmp_path / "straight", **changes)
    for name in ("pairs", "grad_norm", "pairable"):
        assert metric(rows, name) == [0, 0, 0]
    with terminated_after(1), pytest.raises(TrainingStoppedError):
        semi_online(tmp_path / "stopped", **changes)
    assert semi_online(tmp_path / "stopped", **changes) == rows


def test_an_update_does_not_depend_on_how_it_is_split_into_passes(tmp_path: Path) -> None:
    extras = {"pairs": "all", "nll_weight": 0.5, "entropy_coefficient": 0.1, "grpo_weight": 0.01}
    of_two = semi_online(tmp_path / "2", k=2, lora=NO_DROPOUT, per_device_batch_size=2, **extras)
    for size in (8, 64):
        log = semi_online(tmp_path / str(size), k=2, lora=NO_DROPOUT, per_device_batch_size=size, **extras)
        for name in ("loss", "grad_norm", "rewards/margins", "entropy", "logps/chosen", "num_tokens"):
            assert metric(log, name) == pytest.approx(metric(of_two, name), rel=2e-3, abs=1e-5)


def test_the_terms_of_the_loss_add_up(tmp_path: Path) -> None:
    """ln 2 at the reference, plus the weighted NLL of the chosen tokens, minus the weighted entropy."""
    plain = semi_online(tmp_path / "plain", k=1, lora=NO_DROPOUT)[0]
    assert plain["loss"] == pytest.approx(math.log(2), abs=1e-6)
    with_nll = semi_online(tmp_path / "nll", k=1, lora=NO_DROPOUT, nll_weight=0.5)[0]
    double = semi_online(tmp_path / "double", k=1, lora=NO_DROPOUT, nll_weight=1.0)[0]
    assert double["loss"] - plain["loss"] == pytest.approx(2 * (with_nll["loss"] - plain["loss"]), rel=1e-4)
    assert with_nll["loss"] > plain["loss"]
    entropy = semi_online(tmp_path / "entropy", k=1, lora=NO_DROPOUT, entropy_coefficient=0.5)[0]
    assert entropy["loss"] < plain["loss"]


def test_the_loss_is_divided_by_the_prompts_with_a_pair_or_by_all(tmp_path: Path) -> None:
    """Nobody can answer every second problem, so that a prompt has no pair."""
    problems = easy(10)
    problems[1::2] = impossible(problems[1::2])
    given: dict[str, Any] = {"k": 1, "lora": NO_DROPOUT, "problems": problems}
    by_pairable = semi_online(tmp_path / "pairable", **given)[0]
    by_asked = semi_online(tmp_path / "asked", normalise_by="all", **given)[0]
    assert 0 < by_pairable["pairable"] < 1
    assert by_pairable["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert by_asked["loss"] == pytest.approx(by_pairable["pairable"] * math.log(2), rel=1e-4)


def test_the_period() -> None:
    assert sync_period(1, 7) == 1
    assert sync_period(10, 7) == 10
    assert sync_period("pass", 7) == 7
    assert sync_period("never", 7) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sync_every": 0}, "sync_every: 0 is not a number of updates"),
        ({"sync_every": "often"}, "sync_every"),
        ({"sync_every": "never", "reference": "sync"}, "reference: sync has no effect with sync_every: never"),
        ({"sync_every": 2, "grpo_weight": 0.1}, "grpo_weight: .* sync_every is 2"),
        ({"steps": [0, 2]}, "steps: list every K once, at least one, without 0"),
        ({"steps": [4, 2]}, "steps: list the values of K in ascending order"),
        ({"steps": [4], "horizon": 3}, "K=4 exceeds horizon=3"),
        ({"start": "warmup"}, "start_step: missing: name the K of warmup"),
        ({"start_step": 2}, "start_step=2: M0 has no K: drop the key, or name a start"),
        ({"reference": "start"}, "reference: start is M0 if start is base"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SemiOnlineDpo.model_validate(SETTINGS | changes)


def test_all_files_of_the_adapter_name_its_modules_in_order(tmp_path: Path) -> None:
    """PEFT has a set, so two runs would differ."""
    semi_online(tmp_path, k=2)
    written = sorted(tmp_path.rglob("adapter_config.json"))
    assert [str(file.parent.relative_to(tmp_path)) for file in written if "step-" not in str(file)] == [
        "adapter",
        "checkpoint",
        "checkpoint/generator",
    ]
    for file in written:
        modules = json.loads(file.read_text())["target_modules"]
        assert modules == sorted(modules)
        assert len(modules) == 7
