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
from g2d.regimes.on_policy.rollouts import OnPolicyRollouts, seed_after, sync_period
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo
from g2d.rewards.controls import Random
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import to_frame
from tests.models import rollouts_of, tiny_policy
from tests.regimes.stops import assert_resumes, terminated_after
from tests.regimes.trainings import NO_DROPOUT, SETTINGS, adapter_digest, easy, rows_of, semi_online, warm_up


def equals_harvest(rows: pd.DataFrame, policy: PolicyRecord, seed: int) -> list[bool]:
    """Return whether each recorded text is the harvest's for its problem and sample."""
    rows = rows.dropna(subset="completion_text")
    decoding = Decoding(4, 1.0, 1.0, 12, 64, seed=seed)
    harvest = to_frame(rollouts_of(policy, easy(10), Prompt(), decoding)).set_index(["problem_id", "sample"])
    texts = harvest["completion_text"].loc[list(zip(rows["problem_id"], rows["sample"], strict=True))]
    return [*(texts.to_numpy() == rows["completion_text"].to_numpy())]


def test_without_a_sync_it_trains_on_the_rollouts_of_the_harvest_of_m0(tmp_path: Path) -> None:
    """10 problems, 4 an update: the first pass ends within the third update, and further visits are drawn anew."""
    semi_online(tmp_path, sync_every="never")
    rows = rows_of(tmp_path)
    assert set(rows["generated_at"]) == {1}
    assert list(rows["step"].unique()) == [1, 2, 3, 4, 5, 6]
    asked = [easy(10)[i].problem_id for i in prompt_order(10, 24, 0)]
    assert list(rows["problem_id"][::4]) == asked
    same = equals_harvest(rows, tiny_policy(), seed=0)
    assert all(same[:12])  # a text of each update is recorded
    assert not all(same[12:])


def test_online_every_update_learns_from_the_policy_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before update i, the generator is the adapter of a run to K = i."""
    synced: list[tuple[int, str]] = []
    receive = Sampler._receive

    def noted(self: Sampler, step: int) -> None:
        receive(self, step)
        synced.append((step, sha256(self.folder / "adapter_model.safetensors")))

    monkeypatch.setattr(Sampler, "_receive", noted)
    semi_online(tmp_path / "all", k=4)
    assert [step for step, _ in synced] == [1, 2, 3]
    assert len({digest for _, digest in synced}) == 3
    for step, digest in synced.copy():
        semi_online(tmp_path / f"to-{step}", k=step)
        assert adapter_digest(tmp_path / f"to-{step}") == digest
    assert rows_of(tmp_path / "all").groupby("step")["generated_at"].unique().map(list).to_dict() == {
        step: [step] for step in (1, 2, 3, 4)
    }


def test_a_long_interval_drawn_in_parts_gives_the_same_rollouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a run can stop while M0 samples for hundreds of updates."""
    semi_online(tmp_path / "at-once", sync_every="never")
    monkeypatch.setattr(on_policy, "TOGETHER", 2 * 4 * 4)  # two updates
    drawn: list[tuple[int, int]] = []
    draw = OnPolicyRollouts._drawn

    def noted(self: OnPolicyRollouts, first: int, last: int) -> pd.DataFrame:
        drawn.append((first, last))
        return draw(self, first, last)

    monkeypatch.setattr(OnPolicyRollouts, "_drawn", noted)
    semi_online(tmp_path / "in-parts", sync_every="never")
    assert drawn == [(0, 2), (2, 4), (4, 6)]
    pd.testing.assert_frame_equal(rows_of(tmp_path / "in-parts"), rows_of(tmp_path / "at-once"))
    assert adapter_digest(tmp_path / "in-parts") == adapter_digest(tmp_path / "at-once")


def test_with_a_reference_that_follows_at_once_the_loss_never_leaves_ln_2(tmp_path: Path) -> None:
    log = [row for row in semi_online(tmp_path, reference="sync") if row["pairs"]]
    assert [row["loss"] for row in log] == pytest.approx([math.log(2)] * len(log), abs=1e-6)
    assert [row["rewards/margins"] for row in log] == pytest.approx([0.0] * len(log), abs=1e-6)
    fixed = [row for row in semi_online(tmp_path / "fixed", lora=NO_DROPOUT) if row["pairs"]]
    assert len(fixed) > 1
    assert fixed[-1]["loss"] != pytest.approx(math.log(2), abs=1e-3)


def test_a_reference_that_follows_stays_between_two_syncs(tmp_path: Path) -> None:
    """Updates 1, 3 and 5 begin at the reference, the others do not. Every update has pairs, by random rewards."""
    log = semi_online(tmp_path, reference="sync", sync_every=2, reward=Random(reward="random"))
    margins = [row["rewards/margins"] for row in log]
    assert margins[::2] == pytest.approx([0.0] * 3, abs=1e-6)
    assert [margin for margin in margins[1::2] if abs(margin) < 1e-4] == []


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
    adapter = {
        "adapter": str(folder / "adapter"),
        "weights_sha256": sha256(folder / "adapter/adapter_model.safetensors"),
    }
    return replace(tiny_policy(), policy_id="tiny/seed0/grpo/g4/k2", regime="grpo", k=2, seed=0, **adapter)


@dataclass
class FromStart:
    """Trainings from a start, without a sync."""

    work: Path  # of the training with the start as its reference
    of_start: list[dict[str, Any]]
    of_m0: list[dict[str, Any]]  # with M0 as its reference

    @staticmethod
    def first_update(log: list[dict[str, Any]]) -> dict[str, Any]:
        """The first with a pair."""
        return next(row for row in log if row["pairs"])


@pytest.fixture(scope="module")
def from_start(start: PolicyRecord, tmp_path_factory: pytest.TempPathFactory) -> FromStart:
    folder = tmp_path_factory.mktemp("from-start")
    changes = {"k": 2, "lora": NO_DROPOUT, "started": start, "sync_every": "never"}
    of_start = semi_online(folder / "own", reference="start", **changes)
    return FromStart(folder / "own", of_start, semi_online(folder / "m0", **changes))


def test_a_training_with_its_start_as_reference_begins_at_a_margin_of_0(from_start: FromStart) -> None:
    first = from_start.first_update(from_start.of_start)
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert first["rewards/chosen"] == pytest.approx(0, abs=1e-6)


def test_a_training_with_m0_as_reference_begins_at_its_start_too(from_start: FromStart) -> None:
    first = from_start.first_update(from_start.of_m0)
    assert first["logps/chosen"] == pytest.approx(
        from_start.first_update(from_start.of_start)["logps/chosen"], abs=1e-5
    )
    assert abs(first["rewards/chosen"]) > 1e-6


def test_a_training_from_a_start_begins_with_its_own_learning_rate(from_start: FromStart) -> None:
    assert from_start.of_start[0]["learning_rate"] == SETTINGS["learning_rate"]


def test_a_training_from_a_start_draws_a_harvest_of_it(from_start: FromStart, start: PolicyRecord) -> None:
    seed = seed_after(0, start)
    rows = rows_of(from_start.work)
    assert set(rows["generated_at"]) == {1}
    assert list(rows["problem_id"][::4]) == [easy(10)[i].problem_id for i in prompt_order(10, 24, seed)[:8]]
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
    generated = rows_of(chain.folder / "straight").groupby("step")["generated_at"].first().to_dict()
    assert (
        generated
        == {
            2: {1: 1, 2: 1, 3: 3, 4: 3, 5: 5, 6: 5},
            4: {1: 1, 2: 1, 3: 1, 4: 1, 5: 5, 6: 5},
        }[chain.sync_every]
    )


def test_each_job_of_a_chain_keeps_and_pays_for_the_rollouts_of_its_updates(chain: Chain) -> None:
    first, second = rows_of(chain.folder / "first"), rows_of(chain.folder / "second")
    pd.testing.assert_frame_equal(pd.concat([first, second], ignore_index=True), rows_of(chain.folder / "straight"))
    assert chain.tokens_generated == second["token_count"].sum()


def test_the_last_job_of_a_chain_leaves_a_checkpoint_at_its_k(chain: Chain) -> None:
    assert require_intact(chain.folder / "second/checkpoint")["step"] == 6


@pytest.mark.parametrize("lora", [Lora(), Lora.model_validate("none")], ids=["lora", "none"])
def test_an_update_without_a_pair_has_a_zero_gradient(tmp_path: Path, lora: Lora) -> None:
    """No rollout can be right. Such updates are logged, and a run resumes from them."""
    impossible = [Problem(p.problem_id, p.prompt, "x", None, None, "tests") for p in easy(10)]
    changes = {"k": 3, "problems": impossible, "lora": lora}
    rows = semi_online(tmp_path / "straight", **changes)
    assert [row["pairs"] for row in rows] == [0, 0, 0]
    assert [row["grad_norm"] for row in rows] == [0, 0, 0]
    assert [row["pairable"] for row in rows] == [0, 0, 0]
    with terminated_after(1), pytest.raises(TrainingStoppedError):
        semi_online(tmp_path / "stopped", **changes)
    assert semi_online(tmp_path / "stopped", **changes) == rows


def test_an_update_does_not_depend_on_how_it_is_split_into_passes(tmp_path: Path) -> None:
    extras = {"pairs": "all", "nll_weight": 0.5, "entropy_coefficient": 0.1, "grpo_weight": 0.01}
    logs = [
        semi_online(tmp_path / str(size), k=2, lora=NO_DROPOUT, per_device_batch_size=size, **extras)
        for size in (2, 8, 64)
    ]
    for log in logs[1:]:
        for name in ("loss", "grad_norm", "rewards/margins", "entropy", "logps/chosen", "num_tokens"):
            assert [row[name] for row in log] == pytest.approx([row[name] for row in logs[0]], rel=2e-3, abs=1e-5)


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
    problems = [replace(problem, answer="x") if i % 2 else problem for i, problem in enumerate(easy(10))]
    given: dict[str, Any] = {"k": 1, "lora": NO_DROPOUT, "problems": problems}
    by_pairable = semi_online(tmp_path / "pairable", **given)[0]
    by_asked = semi_online(tmp_path / "asked", normalise_by="all", **given)[0]
    assert 0 < by_pairable["pairable"] < 1
    assert by_pairable["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert by_asked["loss"] == pytest.approx(by_pairable["pairable"] * math.log(2), rel=1e-4)


def test_the_period() -> None:
    assert [sync_period(value, 7) for value in (1, 10, "pass", "never")] == [1, 10, 7, None]


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
