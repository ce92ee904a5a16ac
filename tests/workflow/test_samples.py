"""Several answers beside the greedy ones, the divergence from M0, and GRPO at every K, added to a finished grid."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import g2d
from tests.workflow.conftest import Project
from tests.workflow.test_grid import SUMMARIES

SAMPLED = {"sampled": {"n": 4, "temperature": 1.0, "beside_greedy": True}}


def test_samples_and_a_learning_curve_are_added_to_a_finished_grid(
    own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    """On one benchmark and the main grid's policies: M0, DPO at K = 0, 2, 4 and GRPO with G = 2 and 4."""
    smaller = {"benchmarks": {"arithmetic": micro_config["benchmarks"]["arithmetic"]}, "ablations": {}}
    more = {"evaluation": micro_config["evaluation"] | SAMPLED, "baselines": {"grpo_steps": "all"}}
    more["drift"] = {"problems": 8, "samples_per_prompt": 2}
    own_micro_grid.configure(micro_config | smaller | more)
    assert own_micro_grid.planned() == {
        **{"evaluate": 1, "draw_samples": 7, "make_sample_table": 1, "measure_drift": 6},
        **SUMMARIES,
    }
    own_micro_grid.build("--quiet", "rules")
    assert own_micro_grid.planned() == {}

    tables = own_micro_grid.results / "tables"
    main = pd.read_csv(tables / "main.csv")
    assert set(main[main.policy == "grpo"][["K", "group_size"]].itertuples(index=False, name=None)) == {
        *((2, 2.0), (4, 2.0), (4, 4.0))
    }
    compared = pd.read_csv(tables / "comparisons.csv")
    assert set(compared[compared.policy == "grpo"].K) == {4}

    drawn = pd.read_parquet(own_micro_grid.results / "micro/seed0/dpo/g2/k4/samples/arithmetic.parquet")
    assert (len(drawn), drawn.temperature.unique().tolist()) == (4 * 40, [1.0])
    samples = pd.read_csv(tables / "samples.csv")
    own = samples[(samples.policy == "g2d") & (samples.K == 4)].set_index(["measure", "k"]).share
    by_problem = drawn.groupby("problem_id").reward
    assert own["pass", 1] == round(by_problem.mean().mean(), 6)
    assert own["pass", 4] == round(by_problem.max().mean(), 6)
    assert own["pass", 1] <= own["pass", 2] <= own["pass", 4]
    assert list(own.index) == [("pass", 1), ("pass", 2), ("pass", 4), ("maj", 4)]
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'g2d' and K == 4").set_index("stage")
    assert billed.n_jobs["draw_samples"] == 1
    assert billed.tokens_generated["draw_samples"] == drawn.token_count.sum()
    apart = pd.read_parquet(own_micro_grid.results / "micro/seed0/dpo/g2/k4/drift/arithmetic.parquet")
    assert (len(apart), apart.problem_id.nunique(), (apart.kl >= 0).all()) == (16, 8, True)
    assert billed.tokens_generated["measure_drift"] == apart.token_count.sum()
    drift = pd.read_csv(tables / "drift.csv").set_index(["policy", "K", "group_size"]).kl
    assert drift["g2d", 4, 2.0] == pytest.approx(apart.kl.mean(), rel=1e-5)
    assert drift.isna().sum() == 1  # M0's own
    page = (own_micro_grid.results / "report/index.html").read_text()
    assert "nats per answer" in page and "at equal gain" in page
    said = (own_micro_grid.results / "methods.md").read_text()
    assert "by greedy decoding, and beside it on 4 samples per problem (temperature 1, top-p 0.95)" in said
    assert "pass@k" in (own_micro_grid.results / "report/index.html").read_text()
    opened = g2d.open(own_micro_grid.results)
    assert len(opened.tables["samples"]) == 7 * 4
    assert opened.samples("micro/seed0/dpo/g2/k4", "arithmetic").equals(drawn)
