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
    jobs = {"train_grpo": 1, "train_grpo_auto": 1, "harvest_rollouts": 2, "build_pairs": 2}
    jobs |= {"train_dpo": 4, "evaluate": 5, "calibrate_temperature": 1}
    assert planned == jobs | SUMMARIES
    assert project.planned() == {}


def test_table_3_has_a_row_for_each_with_its_compute(project: Project) -> None:
    table = pd.read_csv(project.results / "tables/main.csv")
    table = table.query("benchmark == 'arithmetic' and group_size != 4").set_index(["policy", "K"])
    assert table.loc[("fewest", 0), "change"] == "match_pairs_to=min"
    assert table.loc[("per-k/grpo", 2), "change"] == "warmup.max_completion_length=24, warmup.schedule=per_k"
    fewest = min(len(lines(project, f"harvest/g{2 if k else 0}/k{k}/pairs.jsonl")) for k in (0, 2, 4))
    assert table.loc[("fewest", 0), "n_pairs"] == fewest
    assert table.loc[("g2d", 2), "updates"] < table.loc[("four-steps", 2), "updates"]
    for policy in ("four-steps", "per-k/dpo"):
        assert table.loc[(policy, 2), "tokens_generated"] > 0
        assert table.loc[(policy, 2), "device_hours"] > 0
    assert table.loc["g2d"]["change"].isna().all()


def test_a_changed_warmup_is_harvested_and_trained_on(project: Project) -> None:
    warmup = read_policy(project.results / "micro/seed0/per-k/grpo/g2/k2/policy.json")
    assert (warmup.regime, warmup.continued_from) == ("per-k/grpo", None)
    assert warmup.settings["warmup"]["max_completion_length"] == 24
    harvest = pd.read_parquet(project.results / "micro/seed0/per-k/harvest/g2/k2/rollouts.parquet")
    assert set(harvest["policy_id"]) == {"micro/seed0/per-k/grpo/g2/k2"}
    pairs = lines(project, "per-k/harvest/g2/k2/pairs.jsonl")
    trained = read_policy(project.results / "micro/seed0/per-k/dpo/g2/k2/policy.json")
    assert (trained.regime, trained.settings["n_pairs"]) == ("per-k/dpo", len(pairs))
    assert (project.results / "micro/seed0/per-k/grpo/g2/k2/eval/arithmetic.parquet").exists()


def test_levels_and_temperatures_are_crossed(project: Project) -> None:
    cells = pd.read_csv(project.results / "tables/factorial.csv").set_index(["level", "temperature"])
    assert sorted(cells.index) == [(level, t) for level in range(1, 6) for t in (0.8, 1.3)]
    assert (cells["n"] == 12).all()
    calibration = pd.read_csv(project.results / "tables/calibration.csv").set_index("levels")
    for level in range(1, 6):
        assert cells.loc[(level, 1.3), "pass_at_1"] == pytest.approx(calibration.loc[str(level), "pass_at_1"], rel=1e-5)
    cooler = pd.read_parquet(project.results / "micro/calibration/t0.8/rollouts.parquet")
    assert set(cooler["temperature"]) == {0.8}


# -------------------------------------------------------------------------------------------- early-stopping warm-up


def test_an_early_stopping_warmup_repeats_the_steps_of_the_chain(project: Project) -> None:
    folder = project.results / "micro/seed0/auto/grpo/g2/k6"
    probes = pd.read_csv(folder / "probes.csv")
    policy = read_policy(folder / "policy.json")
    assert probes["step"].tolist() == list(range(2, policy.settings["steps_trained"] + 1, 2))
    assert probes.loc[probes["chosen"], "step"].tolist() == [policy.k]
    auto, chain = lines(project, "auto/grpo/g2/k6/metrics.jsonl"), lines(project, "grpo/g2/k4/metrics.jsonl")
    assert len(auto) == policy.k
    for ours, theirs in zip(auto, chain, strict=False):
        assert {**ours, "step_time": 0} == {**theirs, "step_time": 0}
    assert not (folder / "work").exists()


def test_its_probe_is_part_of_its_harvest(project: Project) -> None:
    probes = pd.read_csv(project.results / "micro/seed0/auto/grpo/g2/k6/probes.csv")
    chosen = probes[probes["chosen"]].iloc[0]
    harvest = pd.read_parquet(project.results / "micro/seed0/auto/harvest/g2/k6/rollouts.parquet")
    assert len(harvest) == 60 * 8
    expected = informativeness(harvest[: 20 * 8])
    assert (chosen["n_prompts"], chosen["tokens_generated"]) == (20, harvest["token_count"][: 20 * 8].sum())
    for metric in ("pass_at_1", "pairability", "entropy", "mid_band"):
        assert chosen[metric] == pytest.approx(getattr(expected, metric), rel=1e-5)


def test_tables_show_the_k_at_which_it_stopped(project: Project) -> None:
    policy, dpo = (read_policy(project.results / f"micro/seed0/auto/{n}/g2/k6/policy.json") for n in ("grpo", "dpo"))
    assert (dpo.regime, dpo.k) == ("auto/dpo", policy.k)
    tables = project.results / "tables"
    for name in ("main", "comparisons", "decomposition", "cost"):
        table = pd.read_csv(tables / f"{name}.csv").query("policy == 'g2d-auto'")
        assert set(table["K"]) == {policy.k}, name
    main = pd.read_csv(tables / "main.csv").query("policy == 'g2d-auto'")
    cost = read_cost(project.results / "micro/seed0/auto/dpo/g2/k6/cost.json")
    assert [r.stage for r in cost.records] == ["calibrate", "train_grpo_auto", "harvest_rollouts", "train_dpo"]
    assert main["device_hours"].iloc[0] == pytest.approx(cost.device_hours, rel=1e-5)
    probes = pd.read_csv(tables / "auto.csv")
    tokens = next(r.tokens_generated for r in cost.records if r.stage == "train_grpo_auto")
    assert tokens > probes["tokens_generated"].sum() > 0
    assert 'id="table-auto"' in (project.results / "report/index.html").read_text()
    card = (project.results / "micro/seed0/auto/dpo/g2/k6/adapter/README.md").read_text()
    assert f"harvested after {policy.k} steps of GRPO" in card
    assert "| arithmetic |" in card
    assert "k6" not in project.snakemake("--list-target-rules").stdout.split()
