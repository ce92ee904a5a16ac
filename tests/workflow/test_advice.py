"""A finished grid with advice, sampled answers, and GRPO at every K.

test_reruns.py has the jobs that each of them plans.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import g2d
from g2d.advice.probe import METRICS
from g2d.jobs.cost import read_cost
from g2d.rollouts.rollout import OF_TOKENS
from tests.workflow.conftest import Project
from tests.workflow.test_grid import SUMMARIES
from tests.workflow.test_sweep import DEVELOPMENT

PROBED = {"probe": {"prompts": 20, "compare": True}}
ADVICE = {"draw_probe": 3, "advise": 1}
SAMPLED = {"sampled": {"n": 4, "temperature": 1.0, "beside_greedy": True}}
# One benchmark and the policies of the main grid: M0, DPO at K = 0, 2, 4 and GRPO with G = 2 and 4.
MEASURED = {"evaluate": 1, "draw_samples": 7, "make_sample_table": 1}


@pytest.fixture(scope="module")
def measured_config(micro_config: dict[str, Any]) -> dict[str, Any]:
    """Without advice."""
    return micro_config | {
        "benchmarks": {"arithmetic": micro_config["benchmarks"]["arithmetic"]},
        "ablations": {},
        "evaluation": micro_config["evaluation"] | SAMPLED,
        "baselines": {"grpo_steps": "all"},
    }


@pytest.fixture(scope="module")
def advised(micro_grid: Project, tmp_path_factory: pytest.TempPathFactory, measured_config: dict[str, Any]) -> Project:
    """A copy of the finished grid with its measurements, advice and the check of the advice."""
    project = micro_grid.copied(tmp_path_factory.mktemp("advice") / "g2d")
    project.configure(measured_config | PROBED)
    assert project.planned("advice") == ADVICE | {"advice": 1}
    assert project.planned() == ADVICE | {"check_advice": 1} | MEASURED | SUMMARIES
    project.build("--quiet", "rules")
    return project


def rollouts(project: Project, stage: str, k: int) -> pd.DataFrame:
    return pd.read_parquet(project.results / f"micro/seed0/{stage}/g{2 if k else 0}/k{k}/rollouts.parquet")


@pytest.mark.parametrize("k", [0, 2, 4])
def test_a_probe_has_the_first_rows_of_the_harvest(advised: Project, k: int) -> None:
    probe, harvest = rollouts(advised, "probe", k), rollouts(advised, "harvest", k)
    assert len(probe) == 20 * 8
    pd.testing.assert_frame_equal(probe, harvest.head(len(probe)).drop(columns=[*OF_TOKENS]))  # nobody trains on it
    cost = read_cost(advised.results / f"micro/seed0/probe/g{2 if k else 0}/k{k}/cost.json")
    assert cost.own.tokens_generated == probe.token_count.sum()
    assert [record.stage for record in cost.ancestry] == ["calibrate"] + ["train_grpo"] * (k // 2)


def test_the_advice_counts_candidates_of_a_sweep(
    advised: Project, tmp_path: Path, micro_config: dict[str, Any]
) -> None:
    project = advised.copied(tmp_path / "g2d")
    sweep = {"development": DEVELOPMENT, "regimes": {"dpo": {"learning_rate": [1e-4, 5e-4]}}, "at": {"dpo": 0}}
    project.configure(micro_config | PROBED | {"sweep": sweep})
    project.build("advice", "--quiet", "rules")
    hours = pd.read_csv(project.results / "tables/advice_hours.csv")
    grid = hours[hours.scope == "grid"].set_index("stage")
    assert (grid.n_jobs["train_dpo"], grid.n_jobs["evaluate"]) == (6 + 2, 18 + 2)
    assert grid.device_hours["evaluate"] > 0


def test_the_advice_counts_the_probe(advised: Project) -> None:
    tables = advised.results / "tables"
    steps, hours = (pd.read_csv(tables / f"advice{name}.csv") for name in ("", "_hours"))
    assert [*steps.K] == [0, 2, 4]
    assert steps.advised.sum() == 1
    assert steps.p_best_entropy.sum() == pytest.approx(1, abs=0.05)
    for row in steps.itertuples():
        p_hat = rollouts(advised, "probe", row.K).groupby("problem_id").reward.mean()
        assert row.n_pairs == pytest.approx(60 * ((p_hat > 0) & (p_hat < 1)).mean())
    grid = hours[hours.scope == "grid"].set_index("stage")
    # One seed: its warm-up to K=4 with G=2 is done, the baseline with G=4 is not.
    left = {"train_grpo": 1, "harvest_rollouts": 3, "train_dpo": 3, "evaluate": 7, "draw_samples": 7}
    assert dict(grid.n_jobs) == left
    assert grid.device_hours.notna().to_dict() == {stage: stage != "train_dpo" for stage in left}


def test_the_check_compares_the_advice_with_the_grid(advised: Project) -> None:
    check = pd.read_csv(advised.results / "tables/advice_check.csv")
    harvest = pd.read_csv(advised.results / "tables/harvest.csv").set_index("K")
    measured = check.set_index(["metric", "K"]).found
    for metric in ("pairability", "n_pairs", "entropy", "mid_band"):
        assert measured[metric].to_numpy() == pytest.approx(harvest[metric].to_numpy(), rel=1e-4)
    cost = pd.read_csv(advised.results / "tables/cost.csv")
    trained = cost[cost.stage == "train_dpo"].cpu_s.sum() / 3600  # the probe ran on a CPU
    assert check.set_index("metric").found["device_hours_train_dpo"] == pytest.approx(trained, rel=1e-4)
    alone = cost[(cost.policy == "grpo") & (cost.group_size == 4) & (cost.stage == "train_grpo")].cpu_s.sum() / 3600
    assert check.set_index("metric").found["device_hours_train_grpo"] == pytest.approx(alone, rel=1e-4)
    main = pd.read_csv(advised.results / "tables/main.csv")
    accuracy = main.query("benchmark == 'arithmetic' and policy in ('dpo', 'g2d')").set_index("K").accuracy
    (row,) = check[check.metric == "accuracy_minus_best_K"].to_dict("records")
    assert row["found"] == pytest.approx(accuracy[row["K"]] - accuracy.max(), abs=1e-5)


def test_the_advice_is_in_its_file_on_the_page_and_on_the_terminal(advised: Project) -> None:
    text = (advised.results / "advice.md").read_text()
    assert text.startswith("# Advice: Micro grid\n")
    sentence = next(line for line in text.splitlines() if line.startswith("K: "))
    page = (advised.results / "report/index.html").read_text()
    assert f"<p>{sentence}</p>" in page
    assert sentence in advised.build("--quiet", "rules", "--", "advice")
    assert advised.planned() == {}
    assert advised.planned("advice", "-R", "advice") == ADVICE | {"advice": 1}


def test_without_the_comparison_only_the_summaries_change(advised: Project, measured_config: dict[str, Any]) -> None:
    advised.configure(measured_config)
    try:
        assert advised.planned() == {"make_sample_table": 1} | SUMMARIES
    finally:
        advised.configure(measured_config | PROBED)


def test_more_prompts_than_there_are_is_all_of_them(
    advised: Project, measured_config: dict[str, Any], tmp_path: Path
) -> None:
    """The forecast is then exact."""
    project = advised.copied(tmp_path / "g2d")
    project.configure(measured_config | {"probe": {"prompts": 500}})
    project.build("--quiet", "rules", "--", "advice_check")
    check = pd.read_csv(project.results / "tables/advice_check.csv")
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


def test_samples_and_a_learning_curve_are_added_to_a_finished_grid(advised: Project) -> None:
    results, tables = advised.results, advised.results / "tables"
    main = pd.read_csv(tables / "main.csv")
    assert set(main[main.policy == "grpo"][["K", "group_size"]].itertuples(index=False, name=None)) == {
        *((2, 2.0), (4, 2.0), (4, 4.0))
    }
    compared = pd.read_csv(tables / "comparisons.csv")
    assert set(compared[compared.policy == "grpo"].K) == {4}

    drawn = pd.read_parquet(results / "micro/seed0/dpo/g2/k4/samples/arithmetic.parquet")
    assert (len(drawn), drawn.temperature.unique().tolist()) == (4 * 40, [1.0])
    samples = pd.read_csv(tables / "samples.csv")
    share = samples[(samples.policy == "g2d") & (samples.K == 4)].set_index(["measure", "k"]).share
    by_problem = drawn.groupby("problem_id").reward
    assert share["pass", 1] == round(by_problem.mean().mean(), 6)
    assert share["pass", 4] == round(by_problem.max().mean(), 6)
    assert share["pass", 1] <= share["pass", 2] <= share["pass", 4]
    assert list(share.index) == [("pass", 1), ("pass", 2), ("pass", 4), ("maj", 4)]
    cost = pd.read_csv(tables / "cost.csv").query("policy == 'g2d' and K == 4").set_index("stage")
    assert cost.n_jobs["draw_samples"] == 1
    assert cost.tokens_generated["draw_samples"] == drawn.token_count.sum()
    page = (results / "report/index.html").read_text()
    assert "pass@k" in page
    opened = g2d.open(results)
    assert len(opened.tables["samples"]) == 7 * 4
    assert opened.samples("micro/seed0/dpo/g2/k4", "arithmetic").equals(drawn)
