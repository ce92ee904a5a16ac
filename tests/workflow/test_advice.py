"""The advice through the real DAG, and what the finished micro grid says to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.advice.probe import METRICS
from g2d.jobs.cost import read_cost
from g2d.rollouts.rollout import OF_TOKENS
from tests.workflow.conftest import Project
from tests.workflow.test_grid import SUMMARIES
from tests.workflow.test_sweep import DEVELOPMENT

PROBED = {"probe": {"prompts": 20, "compare": True}}
ADVICE = {"draw_probe": 3, "advise": 1}


@pytest.fixture(scope="module")
def advised(micro_grid: Project, tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> Project:
    """A copy of the finished grid, advised and compared."""
    project = micro_grid.copied(tmp_path_factory.mktemp("advice") / "g2d")
    project.configure(micro_config | PROBED)
    assert project.planned("advice") == ADVICE | {"advice": 1}
    assert project.planned() == ADVICE | {"check_advice": 1} | SUMMARIES
    project.build("--quiet", "rules")
    return project


def rollouts(project: Project, stage: str, k: int) -> pd.DataFrame:
    return pd.read_parquet(project.results / f"micro/seed0/{stage}/g{2 if k else 0}/k{k}/rollouts.parquet")


@pytest.mark.parametrize("k", [0, 2, 4])
def test_a_probe_is_the_harvests_own_rows(advised: Project, k: int) -> None:
    probe, harvest = rollouts(advised, "probe", k), rollouts(advised, "harvest", k)
    assert len(probe) == 20 * 8
    pd.testing.assert_frame_equal(probe, harvest.head(len(probe)).drop(columns=[*OF_TOKENS]))  # nobody trains on it
    bill = read_cost(advised.results / f"micro/seed0/probe/g{2 if k else 0}/k{k}/cost.json")
    assert bill.own.tokens_generated == probe.token_count.sum()
    assert [record.stage for record in bill.ancestry] == ["calibrate"] + ["train_grpo"] * (k // 2)


def test_the_advice_counts_what_a_sweep_tries(
    micro_grid: Project, tmp_path: Path, micro_config: dict[str, Any]
) -> None:
    project = micro_grid.copied(tmp_path / "g2d")
    sweep = {"development": DEVELOPMENT, "regimes": {"dpo": {"learning_rate": [1e-4, 5e-4]}}, "at": {"dpo": 0}}
    project.configure(micro_config | PROBED | {"sweep": sweep})
    project.build("advice", "--quiet", "rules")
    hours = pd.read_csv(project.results / "tables/advice_hours.csv")
    grid = hours[hours.scope == "grid"].set_index("stage")
    assert (grid.n_jobs["train_dpo"], grid.n_jobs["evaluate"]) == (6 + 2, 18 + 2)
    assert grid.device_hours["evaluate"] > 0


def test_the_advice_counts_the_probe(advised: Project) -> None:
    tables = advised.results / "tables"
    steps, levels, hours = (pd.read_csv(tables / f"advice{name}.csv") for name in ("", "_levels", "_hours"))
    assert [*steps.K] == [0, 2, 4]
    assert steps.advised.sum() == 1
    assert steps.p_best_entropy.sum() == pytest.approx(1, abs=0.05)
    for row in steps.itertuples():
        p_hat = rollouts(advised, "probe", row.K).groupby("problem_id").reward.mean()
        assert row.n_pairs == pytest.approx(60 * ((p_hat > 0) & (p_hat < 1)).mean())
    calibration = pd.read_csv(tables / "calibration.csv")
    assert levels.pairability.to_numpy() == pytest.approx(calibration.pairable_share.to_numpy())
    grid = hours[hours.scope == "grid"].set_index("stage")
    # One seed: its warm-up to K=4 with G=2 is done, the baseline with G=4 is not.
    assert dict(grid.n_jobs) == {"train_grpo": 1, "harvest_rollouts": 3, "train_dpo": 6, "evaluate": 18}
    assert grid.device_hours.notna().to_dict() == {
        "train_grpo": True,
        "harvest_rollouts": True,
        "train_dpo": False,
        "evaluate": True,
    }


def test_the_check_finds_what_the_grid_has_shown(advised: Project) -> None:
    check = pd.read_csv(advised.results / "tables/advice_check.csv")
    harvest = pd.read_csv(advised.results / "tables/harvest.csv").set_index("K")
    found = check.set_index(["metric", "K"]).found
    for metric in ("pairability", "n_pairs", "entropy", "mid_band"):
        assert found[metric].to_numpy() == pytest.approx(harvest[metric].to_numpy(), rel=1e-4)
    cost = pd.read_csv(advised.results / "tables/cost.csv")
    trained = cost[cost.stage == "train_dpo"].device_hours.sum()
    assert check.set_index("metric").found["device_hours_train_dpo"] == pytest.approx(trained, rel=1e-4)
    alone = cost[(cost.policy == "grpo") & (cost.group_size == 4) & (cost.stage == "train_grpo")].device_hours.sum()
    assert check.set_index("metric").found["device_hours_train_grpo"] == pytest.approx(alone, rel=1e-4)
    main = pd.read_csv(advised.results / "tables/main.csv")
    accuracy = main.query("benchmark == 'arithmetic' and policy in ('dpo', 'g2d')").set_index("K").accuracy
    (row,) = check[check.metric == "accuracy_minus_best_K"].to_dict("records")
    assert row["found"] == pytest.approx(accuracy[row["K"]] - accuracy.max(), abs=1e-5)


def test_people_find_it(advised: Project) -> None:
    text = (advised.results / "advice.md").read_text()
    assert text.startswith("# Advice: Micro grid\n\nMicro grid of the tests.\n\n## micro\n")
    sentence = next(line for line in text.splitlines() if line.startswith("K: "))
    page = (advised.results / "report/index.html").read_text()
    assert f"<p>{sentence}</p>" in page and "The forecast for micro, scored:" in page
    assert "Was the advice right?" in (advised.results / "report.html").read_text()
    assert sentence in advised.build("--quiet", "rules", "--", "advice")
    assert advised.planned() == {}
    assert advised.planned("advice", "-R", "advice") == ADVICE | {"advice": 1}


def test_without_the_comparison_only_the_summaries_change(advised: Project, micro_config: dict[str, Any]) -> None:
    advised.configure(micro_config)
    try:
        assert advised.planned() == SUMMARIES
    finally:
        advised.configure(micro_config | PROBED)


def test_more_prompts_than_there_are_is_all_of_them(advised: Project, micro_config: dict[str, Any]) -> None:
    """Then nothing is left to guess, and the harvest is what the probe says."""
    advised.configure(micro_config | {"probe": {"prompts": 500}})
    advised.build("--quiet", "rules", "--", "advice_check")
    check = pd.read_csv(advised.results / "tables/advice_check.csv")
    harvested = check[check.low.notna() & check.metric.isin(METRICS)]
    assert len(harvested) >= 9
    assert harvested.inside.astype(bool).all()
    assert harvested.found.to_numpy() == pytest.approx(harvested.predicted.to_numpy(), rel=1e-4)
    assert check[check.metric == "best_K_by_entropy"].inside.astype(bool).all()


def test_advice_needs_no_dpo_and_no_evaluation(tmp_path: Path, micro_config: dict[str, Any]) -> None:
    project = Project.create(tmp_path / "g2d", micro_config | {"seeds": [0, 1]})
    assert project.planned("advice") == ADVICE | {
        "advice": 1,
        "scratch_model": 1,
        "load_problems": 3,
        "calibrate": 1,
        "select_training_set": 1,
        "train_grpo": 2,
    }
