"""The tables: which rows, in which order, and every number in them worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from g2d.analysis.informativeness import informativeness
from g2d.analysis.margins import smallest_margins
from g2d.analysis.statistics import accuracy_interval
from g2d.config.sections import Ablation
from g2d.grid.policy import Harvest, Policy
from g2d.grid.run import Run
from g2d.jobs.cost import Cost, CostFile
from g2d.policies import PolicyRecord
from g2d.rollouts.rollout import to_frame
from g2d.tables.accuracy import MAIN_COLUMNS, main_table
from g2d.tables.costs import COST_COLUMNS, cost_table
from g2d.tables.families import COMPARISON_COLUMNS, comparison_table
from g2d.tables.frames import read_table, write_table
from g2d.tables.harvest import (
    AUTO_COLUMNS,
    CELL_COLUMNS,
    HARVEST_COLUMNS,
    auto_table,
    calibration_table,
    correlation_points,
    correlation_table,
    factorial_table,
    harvest_table,
)
from g2d.tables.inputs import with_steps_taken
from g2d.tables.parts import DECOMPOSITION_COLUMNS, decomposition_table
from tests.frames import RECOMPUTED_CORRELATIONS, answers, group, groups, published, summarised
from tests.main_policies import MAIN

BASE = Policy("m")
AUTO_REGIME = "auto/dpo"


def policy(regime: str, k: int, seed: int = 0, group_size: int = 2, model: str = "m") -> Policy:
    """Return the key of a main policy, or of an ablation for other names; `x/grpo` ablates the warm-up."""
    kind = "grpo" if regime.endswith("/grpo") else "dpo"
    arm = MAIN.get(regime, Run(regime, kind, "ablation"))
    if regime == AUTO_REGIME:
        arm = Run(regime, kind, "auto", variant="auto")
    return Policy(model, arm, group_size if k else 0, k, seed)


def solved(n: int, of: int = 4) -> pd.DataFrame:
    return answers({f"q{i}": [float(i < n)] for i in range(of)})


def test_rows_follow_the_grid_whatever_their_order():
    keys = [policy("grpo", 300, group_size=4), policy("grpo", 300), policy("dpo", 300, seed=1), policy("ipo", 150)]
    keys += [policy("dpo", 150), policy("dpo", 300), BASE, policy("dpo", 0)]
    table = main_table({(key, benchmark): solved(2) for key in keys for benchmark in ("ood", "id")}, {})
    assert tuple(table.columns) == tuple(MAIN_COLUMNS)
    rows = table[table["benchmark"] == "id"]
    assert list(zip(rows["policy"], rows["K"], rows["group_size"].fillna(0), rows["n_seeds"], strict=True)) == [
        *(("base", 0, 0, 1), ("dpo", 0, 0, 1), ("g2d", 150, 2, 1), ("g2d", 300, 2, 2)),
        *(("grpo", 300, 2, 1), ("grpo", 300, 4, 1), ("ipo", 150, 2, 1)),
    ]
    assert table.loc[table["K"] == 0, "group_size"].isna().all()
    two = main_table({(policy("dpo", 0, model=m), b): solved(1) for m in ("zeta", "alpha") for b in "zab"}, {})
    assert list(two["model"]) == ["zeta"] * 3 + ["alpha"] * 3  # as configured
    assert list(two["benchmark"]) == [*"zab", *"zab"]


def test_accuracy_spread_interval_and_cost_by_hand():
    keys = [policy("dpo", 150, seed) for seed in (0, 1)]
    table = main_table(
        {(keys[0], "id"): solved(3), (keys[1], "id"): solved(2).iloc[::-1]}, {keys[0]: 2.0, keys[1]: 3.0}
    )
    (row,) = table.to_dict("records")
    assert (row["n_seeds"], row["n_problems"]) == (2, 4)
    assert row["accuracy"] == 0.625
    assert row["std_over_seeds"] == pytest.approx(0.125 * math.sqrt(2))
    assert (row["ci_low"], row["ci_high"]) == accuracy_interval(np.array([[1, 1, 1, 0], [1, 1, 0, 0]]))
    assert row["by_seed"] == "0.75 0.5"
    assert row["device_hours"] == 2.5


def test_costs_and_pairs_are_means_over_seeds_and_an_ablation_has_its_change():
    changed = Ablation(steps=[300], dpo={"loss": "ipo", "beta": 0.2})
    ablated = Policy("m", Run("ipo", "dpo", "ablation", written=changed), 2, 300, 0)
    keys = [policy("dpo", 300, 0), policy("dpo", 300, 1), ablated]
    spent = {key: {"tokens_generated": 9 + key.seed, "updates": 4, "n_pairs": 708} for key in keys}
    table = main_table(
        {(key, "id"): solved(2) for key in keys},
        dict.fromkeys(keys, 2.0),
        dict.fromkeys(keys, 0.5),
        spent,
    ).set_index("policy")
    assert table["change"].dropna().to_dict() == {"ipo": "loss=ipo, beta=0.2"}
    assert table["device_hours_without_calibration"].tolist() == [1.5, 1.5]
    assert table["tokens_generated"].tolist() == [9.5, 9]
    assert (table[["updates", "n_pairs"]] == [4, 708]).all(axis=None)


def test_each_k_has_a_bound_against_the_best_other_k():
    keys = [BASE, *(policy("dpo", k) for k in (0, 150, 300)), policy("grpo", 300), policy("ipo", 300)]
    right = dict(zip(keys, (80, 80, 160, 110, 190, 190), strict=True))
    table = main_table({(key, "id"): solved(n, of=200) for key, n in right.items()}, {}).set_index(["policy", "K"])
    assert table["behind"].dropna().to_dict() == {
        **{("dpo", 0): pytest.approx(0.4), ("g2d", 150): pytest.approx(-0.25), ("g2d", 300): pytest.approx(0.25)}
    }
    bounds = smallest_margins([(np.arange(200)[None] < right[key]).astype(float) for key in keys[1:4]])
    assert table["margin_shown"].dropna().tolist() == [bound.margin_shown for bound in bounds]


def test_while_seeds_are_missing_no_k_has_a_bound():
    keys = [policy("dpo", 0, 0), policy("dpo", 0, 1), policy("dpo", 150, 0)]
    table = main_table({(key, benchmark): solved(2) for key in keys for benchmark in ("id", "ood")}, {})
    assert table[["behind", "margin_shown"]].isna().all(axis=None)
    last = policy("dpo", 150, 1), "ood"
    table = main_table({(key, b): solved(2) for key in keys for b in ("id", "ood")} | {last: solved(2)}, {})
    assert table["behind"].notna().tolist() == [benchmark == "ood" for benchmark in table["benchmark"]]


def test_the_benchmark_that_selects_has_no_bound():
    keys = [policy("dpo", k) for k in (0, 150)]
    answered = {(key, benchmark): solved(2) for key in keys for benchmark in ("picks", "id")}
    table = main_table(answered, {}, select_by="picks")
    assert table["margin_shown"].notna().tolist() == [benchmark == "id" for benchmark in table["benchmark"]]


def test_sampled_answers_are_averaged_within_their_problem_first():
    table = main_table({(BASE, "id"): answers({"a": [1, 0, 0, 0], "b": [1]})}, {})
    (row,) = table.to_dict("records")
    assert row["accuracy"] == (0.25 + 1) / 2
    assert math.isnan(row["std_over_seeds"])
    assert math.isnan(row["device_hours"])


def test_seeds_must_have_answered_the_same_problems():
    evaluations = {(policy("dpo", 150, 0), "id"): solved(1), (policy("dpo", 150, 1), "id"): solved(1, of=3)}
    with pytest.raises(ValueError, match=r"m/seed1/dpo/g2/k150 on id: answered 3 problems, .* 4 problems"):
        main_table(evaluations, {})


def stopped(*ks: int) -> list[Policy]:
    """Return policies of seeds 0, 1, ... with an early-stopping warm-up that stopped at these K, of at most 300."""
    keys = [policy(AUTO_REGIME, 300, seed) for seed in range(len(ks))]
    records = {key: PolicyRecord("", "m", AUTO_REGIME, "", k=k) for key, k in zip(keys, ks, strict=True)}
    return list(with_steps_taken(records).values())


def test_tables_have_the_steps_that_an_early_stopping_warmup_took():
    keys = [BASE, policy("dpo", 300), policy("grpo", 300), *stopped(100, 150, 150)]
    table = main_table({(key, "id"): solved(2) for key in keys}, {})
    assert list(zip(table["policy"], table["K"], table["n_seeds"], strict=True)) == [
        *(("base", 0, 1), ("g2d", 300, 1), ("g2d-auto", 133, 3), ("grpo", 300, 1))
    ]
    assert keys[-1].folder == "m/seed2/auto/dpo/g2/k300"
    (key,) = stopped(150)
    assert list(cost_table({key: [Cost("j", "train_grpo_auto", 1, 1, 1, "cpu", 1, 1, 1)]})["K"]) == [150]


def test_probes_of_every_seed_in_the_order_of_the_steps():
    values = {"n_prompts": 50, "pass_at_1": 0.5, "pairability": 0.4, "pairability_low": 0.3, "pairability_high": 0.5}
    nothing = dict.fromkeys(column for column in AUTO_COLUMNS if column.startswith(("entropy", "mid_band")))
    frame = pd.DataFrame([{"step": k, **values, **nothing, "chosen": k == 50, "tokens_generated": 9} for k in (50, 99)])
    first, second = (policy("auto/grpo", 300, seed) for seed in (0, 1))
    table = auto_table({second: frame, first: frame.assign(chosen=[False, True])})
    assert tuple(table.columns) == tuple(AUTO_COLUMNS)
    assert list(zip(table["seed"], table["step"], table["chosen"], strict=True)) == [
        *((0, 50, False), (0, 99, True)),
        *((1, 50, True), (1, 99, False)),
    ]
    assert table["entropy"].isna().all()


def test_harvest_means_skip_seeds_without_a_value():
    decided, mixed = groups([(0, 8), (8, 8)]), groups([(4, 8), (1, 8)])
    harvests = {Harvest("m", 2, 300, 0): decided, Harvest("m", 2, 150, 1): mixed.iloc[::-1]}
    harvests |= {Harvest("m", 2, 150, 0): decided, Harvest("m", 0, 0, 0): mixed}
    table = harvest_table(*summarised(harvests))
    assert tuple(table.columns) == tuple(HARVEST_COLUMNS)
    assert list(table["K"]) == [0, 150, 300]
    assert list(table["n_seeds"]) == [1, 2, 1]
    assert table["group_size"].isna().tolist() == [True, False, False]
    middle = table.iloc[1]
    assert (middle["pairability"], middle["n_pairs"]) == (0.5, 1)
    assert middle["pairability_std"] == pytest.approx(math.sqrt(0.5))
    assert middle["mid_band"] == informativeness(mixed).mid_band == 0.5, "the seed without pairable prompts has no mu"
    assert math.isnan(middle["mid_band_std"])
    assert table.iloc[2][["entropy", "entropy_low", "mid_band_high"]].isna().all()
    assert middle["entropy_low"] < middle["entropy"] < middle["entropy_high"]
    assert 0 <= middle["pairability_low"] < 0.5 < middle["pairability_high"] <= 1


def test_the_seeds_of_a_harvest_share_their_prompts():
    keys = [Harvest("m", 2, 150, seed) for seed in (0, 1)]
    with pytest.raises(ValueError, match=r"m/seed0/harvest/g2/k150: .* different prompts"):
        harvest_table(*summarised({keys[0]: groups([(1, 8)]), keys[1]: groups([(1, 8), (2, 8)])}))


def test_correlations_of_the_published_tables():
    paper = published("table1").query("method != 'SFT'")
    trained = paper[paper["method"].isin(["DPO", "G2D"])].rename(columns={"math500": "accuracy"})
    points = published("table2").merge(trained.query("model == 'Qwen2.5-7B-Instruct'")[["model", "K", "accuracy"]])
    points = points.assign(benchmark="MATH-500", seed=0, group_size=0)
    table = correlation_table(points).set_index("metric")
    assert table["pearson_r"].to_dict() == pytest.approx(RECOMPUTED_CORRELATIONS, abs=0.0005)
    assert (table["n"] == 6).all()


def test_a_point_is_a_harvest_and_the_policy_trained_on_it():
    evaluations = {(policy("dpo", k, seed), "id"): solved(k + seed) for k in (0, 1, 2) for seed in (0, 1)}
    evaluations |= {(policy(regime, 2), "id"): solved(4) for regime in ("ipo", "grpo")} | {(BASE, "id"): solved(0)}
    summaries, _ = summarised(
        {Harvest("m", 2 if k else 0, k, seed): groups([(1, 8)] * k + [(8, 8)]) for k in (0, 1, 2) for seed in (0, 1)}
    )
    points = correlation_points(summaries, evaluations)
    assert list(points.query("seed == 1")["accuracy"]) == [0.25, 0.5, 0.75]
    assert points["entropy"].isna().tolist() == [True, True] + [False] * 4
    table = correlation_table(points).set_index("metric")
    assert list(table["n"]) == [3, 2, 2]
    pairability = points.groupby("K")["pairability"].mean()
    assert table.loc["pairability", "pearson_r"] == pytest.approx(
        pairability.corr(pd.Series({0: 0.125, 1: 0.375, 2: 0.625}))
    )
    assert table["pearson_r"].isna().tolist() == [False, True, True]  # two points are always on a line


def test_difficulty_by_level_and_temperature():
    def sampled(successes: Mapping[int, list[int]]) -> pd.DataFrame:
        rows = [group(f"{at}/{i}", n, 8, level=at) for at, counts in successes.items() for i, n in enumerate(counts)]
        return to_frame([rollout for rollouts in rows for rollout in rollouts])

    cells = factorial_table({"m": {1.3: sampled({2: [4, 8], 5: [0, 1]}), 0.8: sampled({2: [8, 8], 5: [0, 0]})}})
    assert tuple(cells.columns) == tuple(CELL_COLUMNS)
    assert list(zip(cells["level"], cells["temperature"], strict=True)) == [(2, 0.8), (2, 1.3), (5, 0.8), (5, 1.3)]
    assert list(cells["pass_at_1"]) == [1, 0.75, 0, 1 / 16]
    assert list(cells["pairability"]) == [0, 0.5, 0, 0.5]
    assert list(cells["all_wrong"]) == [0, 0, 1, 0.5]
    assert cells["mid_band"].isna().tolist() == [True, False, True, False]
    assert list(cells["mid_band"])[1::2] == [1, 0]
    assert cells["entropy"][3] == pytest.approx(-(1 / 8) * math.log2(1 / 8) - (7 / 8) * math.log2(7 / 8))
    assert factorial_table({"m": {0.8: to_frame(group("p", 2, 8, level=None))}}).empty


def test_calibration_tables_are_stacked_by_model():
    outcomes = {"pairable": 2, "all_wrong": 1, "all_correct": 0}
    levels = pd.DataFrame([{"levels": "2-4", "selected": True, "n": 3, **outcomes}])
    table = calibration_table({"b": levels, "a": levels})
    assert table.columns[:4].tolist() == ["model", "levels", "selected", "n"]
    assert list(table["model"]) == ["b", "a"]


def test_the_bill_by_stage():
    def cost(job: str, stage: str, hours: float, device: str = "A100") -> Cost:
        return Cost(job, stage, hours * 1800, 60, 2, device, hours * 3600, 10, int(hours * 1e9))

    bill = CostFile(
        cost("d", "dpo", 1), (cost("b", "base", 0, "cpu"), cost("w1", "warmup", 2), cost("w2", "warmup", 3, "H100"))
    )
    table = cost_table({policy("dpo", 300, seed=4): bill.records, BASE: [bill.ancestry[0]]})
    assert list(table["stage"]) == ["base", "warmup", "dpo", "base"]
    assert table["device_hours"][:3].sum() == bill.device_hours == 6
    warmup = table.iloc[1]
    assert tuple(warmup[["model", "policy", "K", "group_size", "seed", "regime"]]) == ("m", "g2d", 300, 2, 4, "dpo")
    assert tuple(warmup[["n_jobs", "wall_s", "cpu_s", "device_hours", "tokens_generated"]]) == (2, 9000, 120, 5, 20)
    assert tuple(warmup[["devices", "device", "peak_memory_gb"]]) == (2, "A100, H100", 3)
    assert table["seed"].isna().tolist() == [False, False, False, True]


def test_csv_keeps_types_nulls_and_bytes(tmp_path):
    table = main_table({(BASE, "id"): solved(1, of=3), (policy("dpo", 150), "id"): solved(2, of=3)}, {})
    for name in ("first.csv", "second.csv"):
        write_table(tmp_path / name, table)
    pd.testing.assert_frame_equal(read_table(tmp_path / "first.csv", MAIN_COLUMNS), table, rtol=1e-5)
    assert (tmp_path / "first.csv").read_bytes() == (tmp_path / "second.csv").read_bytes()
    assert "m,base,0,,id,,1,3,0.333333,0,0.886251,0.3333,,,,,,,,\n" in (tmp_path / "first.csv").read_text()


@pytest.mark.parametrize("content", ["", "model,K\nm,many\n"])
def test_a_broken_csv_is_named(tmp_path, content):
    path = tmp_path / "main.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"main\.csv"):
        read_table(path, MAIN_COLUMNS)


def test_an_empty_grid_gives_empty_tables_with_their_columns():
    assert main_table({}, {}).empty
    assert harvest_table({}, {}).empty
    assert correlation_table(correlation_points({}, {})).empty
    assert tuple(comparison_table({}).columns) == tuple(COMPARISON_COLUMNS)
    assert tuple(decomposition_table({}).columns) == tuple(DECOMPOSITION_COLUMNS)
    assert tuple(cost_table({}).columns) == tuple(COST_COLUMNS)
