"""Confounders and an early-stopping warm-up in a finished grid; its other jobs do not run again."""

from __future__ import annotations

import copy
import json
from typing import Any

import pandas as pd
import pytest

from g2d.analysis.informativeness import informativeness
from g2d.jobs.cost import read_cost
from g2d.policies import read_policy
from tests.workflow.conftest import Project, copy_of_micro
from tests.workflow.micro import SUMMARIES, on_one

CONFOUNDERS = {
    "fewest": {"steps": [0], "dpo": {"match_pairs_to": "min"}},
    "four-steps": {"steps": [2], "dpo": {"max_steps": 4}},
    "per-k": {
        "steps": [2],
        "warmup": {"schedule": "per_k", "max_completion_length": 24},
        "dpo": {"max_steps": 4},
        "policies": ["dpo", "grpo"],
    },
}


@pytest.fixture(scope="module")
def extended(micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, int]]:
    """The finished grid with confounders, and the added jobs."""
    project = copy_of_micro(micro_config, tmp_path_factory.mktemp("confounded") / "g2d")
    more = copy.deepcopy(micro_config) | on_one(micro_config)
    more["ablations"] |= CONFOUNDERS
    more["warmup"]["auto"] = {"every": 2, "prompts": 20, "patience": 1}
    more["calibration"] |= {"factorial_temperatures": [0.8]}
    return project, project.extended(more)


@pytest.fixture(scope="module")
def project(extended: tuple[Project, dict[str, int]]) -> Project:
    return extended[0]


def lines(project: Project, file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project.results / "micro/seed0" / file).read_text().splitlines()]


def test_only_jobs_of_the_confounders_run(extended: tuple[Project, dict[str, int]]) -> None:
    project, planned = extended
    added = {
        "calibrate_temperature": 1,
        "train_grpo": 1,
        "train_grpo_auto": 1,
        "harvest_rollouts": 2,
        "build_pairs": 2,
        "train_dpo": 4,
        "evaluate": 5,
    }
    assert planned == added | SUMMARIES
    assert project.planned() == {}


@pytest.fixture
def main(project: Project) -> pd.DataFrame:
    """Table 1 by policy and K, with one of the two GRPO baselines."""
    table = pd.read_csv(project.results / "tables/main.csv").query("group_size != 4")
    return table.set_index(["policy", "K"])


def test_a_row_of_an_ablation_has_its_changes(main: pd.DataFrame) -> None:
    assert main.loc[("fewest", 0), "change"] == "match_pairs_to=min"
    assert main.loc[("per-k/grpo", 2), "change"] == "warmup.max_completion_length=24, warmup.schedule=per_k"
    assert main.loc["g2d"]["change"].isna().all()


def test_an_ablation_can_have_as_many_pairs_as_the_smallest_harvest(project: Project, main: pd.DataFrame) -> None:
    n_pairs = [len(lines(project, f"harvest/{folder}/pairs.jsonl")) for folder in ("g0/k0", "g2/k2", "g2/k4")]
    assert main.loc[("fewest", 0), "n_pairs"] == min(n_pairs)


def test_an_ablation_can_take_more_steps(main: pd.DataFrame) -> None:
    assert main.loc[("four-steps", 2), "updates"] > main.loc[("g2d", 2), "updates"]


@pytest.mark.parametrize("policy", ["four-steps", "per-k/dpo"])
def test_a_row_of_an_ablation_has_its_compute(main: pd.DataFrame, policy: str) -> None:
    assert main.loc[(policy, 2), "tokens_generated"] > 0
    assert main.loc[(policy, 2), "device_hours"] > 0


def test_a_changed_warmup_is_trained_from_m0(project: Project) -> None:
    folder = project.results / "micro/seed0/per-k/grpo/g2/k2"
    warmup = read_policy(folder / "policy.json")
    assert (warmup.regime, warmup.continued_from) == ("per-k/grpo", None)
    assert warmup.settings["warmup"]["max_completion_length"] == 24
    assert (folder / "eval/arithmetic.parquet").exists()


def test_a_changed_warmup_has_a_harvest_of_its_own(project: Project) -> None:
    harvest = pd.read_parquet(project.results / "micro/seed0/per-k/harvest/g2/k2/rollouts.parquet")
    assert set(harvest["policy_id"]) == {"micro/seed0/per-k/grpo/g2/k2"}


def test_dpo_after_a_changed_warmup_trains_on_pairs_of_its_harvest(project: Project) -> None:
    pairs = lines(project, "per-k/harvest/g2/k2/pairs.jsonl")
    trained = read_policy(project.results / "micro/seed0/per-k/dpo/g2/k2/policy.json")
    assert (trained.regime, trained.statistics["n_pairs"]) == ("per-k/dpo", len(pairs))


@pytest.fixture
def cells(project: Project) -> pd.DataFrame:
    return pd.read_csv(project.results / "tables/factorial.csv").set_index(["level", "temperature"])


def test_levels_and_temperatures_are_crossed(cells: pd.DataFrame) -> None:
    assert sorted(cells.index) == [(level, t) for level in range(1, 6) for t in (0.8, 1.3)]
    assert (cells["n"] == 12).all()


def test_cells_of_the_temperature_of_the_calibration_are_its_levels(project: Project, cells: pd.DataFrame) -> None:
    calibration = pd.read_csv(project.results / "tables/calibration.csv").set_index("levels")
    for level in range(1, 6):
        assert cells.loc[(level, 1.3), "pass_at_1"] == pytest.approx(calibration.loc[str(level), "pass_at_1"], rel=1e-5)


def test_another_temperature_is_sampled_for_itself(project: Project) -> None:
    cooler = pd.read_parquet(project.results / "micro/calibration/t0.8/rollouts.parquet")
    assert set(cooler["temperature"]) == {0.8}


# -------------------------------------------------------------------------------------------- early-stopping warm-up


AUTO = "micro/seed0/auto"


def test_an_early_stopping_warmup_is_probed_at_every_second_step(project: Project) -> None:
    folder = project.results / AUTO / "grpo/g2/k6"
    probes = pd.read_csv(folder / "probes.csv")
    policy = read_policy(folder / "policy.json")
    assert probes["step"].tolist() == list(range(2, policy.statistics["steps_trained"] + 1, 2))
    assert probes.loc[probes["chosen"], "step"].tolist() == [policy.k]


def test_an_early_stopping_warmup_repeats_the_steps_of_the_chain(project: Project) -> None:
    policy = read_policy(project.results / AUTO / "grpo/g2/k6/policy.json")
    auto = lines(project, "auto/grpo/g2/k6/metrics.jsonl")
    chain = lines(project, "grpo/g2/k4/metrics.jsonl")
    assert len(auto) == policy.k
    for ours, theirs in zip(auto, chain, strict=False):
        assert ours | {"step_time": 0} == theirs | {"step_time": 0}


def test_a_finished_early_stopping_warmup_leaves_no_work_folder(project: Project) -> None:
    assert not (project.results / AUTO / "grpo/g2/k6/work").exists()


def test_its_probe_is_part_of_its_harvest(project: Project) -> None:
    probes = pd.read_csv(project.results / AUTO / "grpo/g2/k6/probes.csv")
    [chosen] = probes[probes["chosen"]].to_dict("records")
    harvest = pd.read_parquet(project.results / AUTO / "harvest/g2/k6/rollouts.parquet")
    probe = harvest[: 20 * 8]
    assert len(harvest) == 60 * 8
    assert chosen["n_prompts"] == 20
    assert chosen["tokens_generated"] == probe["token_count"].sum()
    expected = informativeness(probe)
    for metric in ("pass_at_1", "pairability", "entropy", "mid_band"):
        assert chosen[metric] == pytest.approx(getattr(expected, metric), rel=1e-5)


@pytest.fixture
def stopped_at(project: Project) -> int:
    """The K at which the warm-up stopped."""
    return read_policy(project.results / AUTO / "grpo/g2/k6/policy.json").k


def test_dpo_after_it_has_its_k(project: Project, stopped_at: int) -> None:
    dpo = read_policy(project.results / AUTO / "dpo/g2/k6/policy.json")
    assert (dpo.regime, dpo.k) == ("auto/dpo", stopped_at)


@pytest.mark.parametrize("name", ["main", "comparisons", "decomposition", "cost"])
def test_tables_show_the_k_at_which_it_stopped(project: Project, stopped_at: int, name: str) -> None:
    table = pd.read_csv(project.results / f"tables/{name}.csv").query("policy == 'g2d-auto'")
    assert set(table["K"]) == {stopped_at}


def test_dpo_after_it_pays_for_its_training_and_probes(project: Project) -> None:
    cost = read_cost(project.results / AUTO / "dpo/g2/k6/cost.json")
    stages = [record.stage for record in cost.records]
    assert stages == ["calibrate", "train_grpo_auto", "harvest_rollouts", "train_dpo"]
    main = pd.read_csv(project.results / "tables/main.csv").query("policy == 'g2d-auto'")
    assert main["device_hours"].iloc[0] == pytest.approx(cost.device_hours, rel=1e-5)
    probes = pd.read_csv(project.results / "tables/auto.csv")
    assert cost.records[1].tokens_generated > probes["tokens_generated"].sum() > 0


def test_the_page_shows_the_table_of_probes(project: Project) -> None:
    assert 'id="table-auto"' in (project.results / "report/index.html").read_text()


def test_the_card_has_the_k_at_which_it_stopped(project: Project, stopped_at: int) -> None:
    assert f"K={stopped_at}, " in (project.results / AUTO / "dpo/g2/k6/adapter/README.md").read_text()


def test_the_largest_k_of_an_early_stopping_warmup_is_no_target(project: Project) -> None:
    assert "k6" not in project.snakemake("--list-target-rules").stdout.split()
