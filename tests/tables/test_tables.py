"""The tables: which rows, in which order, and every number in them worked out by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import chain

import numpy as np
import pandas as pd
import pytest

from g2d.analysis.comparisons import margins_behind_best
from g2d.analysis.informativeness import informativeness
from g2d.analysis.statistics import accuracy_interval
from g2d.config.sections import Ablation
from g2d.grid.runs import Harvest, Policy, Run
from g2d.jobs.cost import Cost, CostFile
from g2d.policies import PolicyRecord
from g2d.rollouts.rollout import to_frame
from g2d.tables.accuracy import DECOMPOSITION_COLUMNS, MAIN_COLUMNS, decomposition_table, main_table
from g2d.tables.families import COMPARISON_COLUMNS, comparison_table
from g2d.tables.frames import read_table, write_table
from g2d.tables.harvest import (
    CELL_COLUMNS,
    CORRELATION_COLUMNS,
    HARVEST_COLUMNS,
    calibration_table,
    correlation_points,
    correlation_table,
    factorial_table,
    harvest_table,
)
from g2d.tables.inputs import with_steps_taken
from g2d.tables.trainings import AUTO_COLUMNS, COST_COLUMNS, auto_table, cost_table
from tests.frames import RECOMPUTED_CORRELATIONS, answers, group, groups, published, solved, summarised
from tests.main_policies import AUTO_REGIME, BASE, policy


def half_solved(keys: Iterable[Policy]) -> dict[tuple[Policy, str], pd.DataFrame]:
    """Return evaluations in which every policy solved the same 2 of 4 problems."""
    return {(key, "id"): solved(2) for key in keys}


def test_rows_follow_the_grid_whatever_their_order():
    keys = [
        policy("grpo", 300, group_size=4),
        policy("grpo", 300),
        policy("dpo", 300, seed=1),
        policy("ipo", 150),
        policy("dpo", 150),
        policy("dpo", 300),
        BASE,
        policy("dpo", 0),
    ]
    table = main_table(half_solved(keys), {})
    assert tuple(table.columns) == tuple(MAIN_COLUMNS)
    rows = table[["policy", "K", "group_size", "n_seeds"]].fillna({"group_size": 0})
    assert rows.to_numpy().tolist() == [
        ["base", 0, 0, 1],
        ["dpo", 0, 0, 1],
        ["g2d", 150, 2, 1],
        ["g2d", 300, 2, 2],
        ["grpo", 300, 2, 1],
        ["grpo", 300, 4, 1],
        ["ipo", 150, 2, 1],
    ]


def test_at_k_0_there_is_no_group_size():
    table = main_table(half_solved([BASE, policy("dpo", 0), policy("dpo", 150)]), {})
    assert table["group_size"].isna().tolist() == [True, True, False]


def test_models_and_benchmarks_are_in_the_order_of_the_configuration():
    evaluations = {}
    for model in ("zeta", "alpha"):
        for benchmark in ("z", "a"):
            evaluations[policy("dpo", 0, model=model), benchmark] = solved(1)
    table = main_table(evaluations, {})
    assert list(table["model"]) == ["zeta", "zeta", "alpha", "alpha"]
    assert list(table["benchmark"]) == ["z", "a", "z", "a"]


def two_seeds() -> pd.Series:
    """The row of two seeds that solved 3 and 2 of 4 questions and cost 2 and 3 device-hours; one is in other order."""
    first = policy("dpo", 150, 0)
    second = policy("dpo", 150, 1)
    evaluations = {(first, "id"): solved(3), (second, "id"): solved(2).iloc[::-1]}
    return main_table(evaluations, {first: 2.0, second: 3.0}).iloc[0]


def test_accuracy_is_the_mean_over_seeds():
    row = two_seeds()
    assert (row["n_seeds"], row["n_problems"]) == (2, 4)
    assert row["accuracy"] == 0.625
    assert row["by_seed"] == "0.75 0.5"


def test_the_spread_over_seeds_has_one_degree_of_freedom_less():
    assert two_seeds()["std_over_seeds"] == pytest.approx(0.125 * math.sqrt(2))


def test_the_interval_takes_answers_of_seeds_by_question():
    row = two_seeds()
    assert (row["ci_low"], row["ci_high"]) == accuracy_interval(np.array([[1, 1, 1, 0], [1, 1, 0, 0]]))


def test_device_hours_are_the_mean_over_seeds():
    assert two_seeds()["device_hours"] == 2.5


def test_costs_and_pairs_are_means_over_seeds():
    spent = {
        policy("dpo", 300, 0): {"tokens_generated": 9, "updates": 4, "n_pairs": 708},
        policy("dpo", 300, 1): {"tokens_generated": 10, "updates": 4, "n_pairs": 708},
    }
    [row] = main_table(half_solved(spent), dict.fromkeys(spent, 2.0), dict.fromkeys(spent, 0.5), spent).itertuples()
    assert row.device_hours_without_calibration == 1.5
    assert (row.tokens_generated, row.updates, row.n_pairs) == (9.5, 4, 708)


def test_an_ablation_has_its_change():
    changed = Ablation(steps=[300], dpo={"loss": "ipo", "beta": 0.2})
    ablated = Policy("m", Run("ipo", "dpo", "ablation", entry=changed), 2, 300, 0)
    table = main_table(half_solved([policy("dpo", 300), ablated]), {})
    assert table.set_index("policy")["change"].dropna().to_dict() == {"ipo": "loss=ipo, beta=0.2"}


def test_each_k_of_the_main_policies_has_a_bound_against_the_best_other_k():
    evaluations = {
        (BASE, "id"): solved(80, of=200),
        (policy("dpo", 0), "id"): solved(80, of=200),
        (policy("dpo", 150), "id"): solved(160, of=200),
        (policy("dpo", 300), "id"): solved(110, of=200),
        (policy("grpo", 300), "id"): solved(190, of=200),
        (policy("ipo", 300), "id"): solved(190, of=200),
    }
    table = main_table(evaluations, {}).set_index(["policy", "K"])
    assert table["behind"].dropna().to_dict() == {
        ("dpo", 0): pytest.approx(0.4),
        ("g2d", 150): pytest.approx(-0.25),
        ("g2d", 300): pytest.approx(0.25),
    }
    answered = (np.arange(200) < np.array([[[80]], [[160]], [[110]]])).astype(float)
    bounds = pd.DataFrame(margins_behind_best([*answered]))
    assert table["at_least"].dropna().tolist() == bounds["at_least"].tolist()
    assert table["at_most"].dropna().tolist() == bounds["at_most"].tolist()


def test_a_gain_that_is_one_part_has_the_interval_of_the_comparison():
    """All answers finish in a box, so the gain is all of right answers."""
    evaluations = {
        (BASE, "id"): solved(30, of=60),
        (policy("dpo", 150, 0), "id"): solved(36, of=60),
        (policy("dpo", 150, 1), "id"): solved(41, of=60),
        (policy("dpo", 150, 2), "id"): solved(33, of=60),
    }
    [comparison] = comparison_table(evaluations).itertuples()
    part = decomposition_table(evaluations).iloc[-1]
    assert part["from_reasoning"] == pytest.approx(comparison.difference)
    assert (part["from_reasoning_low"], part["from_reasoning_high"]) == pytest.approx(
        (comparison.ci_low, comparison.ci_high), abs=1e-6
    )


def test_while_seeds_are_missing_no_k_has_a_bound():
    evaluations = {}
    for key in (policy("dpo", 0, 0), policy("dpo", 0, 1), policy("dpo", 150, 0)):
        evaluations[key, "id"] = solved(2)
        evaluations[key, "ood"] = solved(2)
    assert main_table(evaluations, {})[["behind", "at_least", "at_most"]].isna().all(axis=None)

    evaluations[policy("dpo", 150, 1), "ood"] = solved(2)
    table = main_table(evaluations, {})
    assert set(table.loc[table["behind"].notna(), "benchmark"]) == {"ood"}


def test_a_single_k_is_not_said_to_be_the_best():
    table = main_table({(policy("dpo", 0), "id"): solved(2), (BASE, "id"): solved(1)}, {})
    assert table[["behind", "at_least", "at_most"]].isna().all(axis=None)


def test_the_benchmark_that_selects_has_no_bound():
    evaluations = {}
    for key in (policy("dpo", 0), policy("dpo", 150)):
        evaluations[key, "picks"] = solved(2)
        evaluations[key, "id"] = solved(2)
    table = main_table(evaluations, {}, select_by="picks")
    assert list(table.loc[table["at_most"].notna(), "benchmark"]) == ["id", "id"]


def test_sampled_answers_are_averaged_within_their_problem_first():
    [row] = main_table({(BASE, "id"): answers({"a": [1, 0, 0, 0], "b": [1]})}, {}).itertuples()
    assert row.accuracy == (0.25 + 1) / 2


def test_one_seed_has_no_spread():
    [row] = main_table({(BASE, "id"): solved(2)}, {}).itertuples()
    assert math.isnan(row.std_over_seeds)


def test_a_policy_without_a_cost_has_no_device_hours():
    [row] = main_table({(BASE, "id"): solved(2)}, {}).itertuples()
    assert math.isnan(row.device_hours)


def test_seeds_must_have_answered_the_same_problems():
    evaluations = {(policy("dpo", 150, 0), "id"): solved(1), (policy("dpo", 150, 1), "id"): solved(1, of=3)}
    with pytest.raises(ValueError, match=r"m/seed1/dpo/g2/k150 on id: answered 3 problems, .* 4 problems"):
        main_table(evaluations, {})


def stopped(*ks: int) -> list[Policy]:
    """Return policies of seeds 0, 1, ... with an early-stopping warm-up that stopped at these K, of at most 300."""
    records = {}
    for seed, k in enumerate(ks):
        records[policy(AUTO_REGIME, 300, seed)] = PolicyRecord("", "m", AUTO_REGIME, "", k=k)
    return list(with_steps_taken(records).values())


def test_tables_have_the_steps_that_an_early_stopping_warmup_took():
    keys = [BASE, policy("dpo", 300), policy("grpo", 300), *stopped(100, 150, 150)]
    table = main_table(half_solved(keys), {})
    assert table[["policy", "K", "n_seeds"]].to_numpy().tolist() == [
        ["base", 0, 1],
        ["g2d", 300, 1],
        ["g2d-auto", 133, 3],
        ["grpo", 300, 1],
    ]
    [key] = stopped(150)
    assert list(cost_table({key: [Cost("j", "train_grpo_auto", 1, 1, 1, "cpu", 1, 1, 1)]})["K"]) == [150]


def test_the_folder_of_an_early_stopping_warmup_has_its_largest_k():
    assert stopped(150)[0].folder == "m/seed0/auto/dpo/g2/k300"


def test_probes_of_every_seed_in_the_order_of_the_steps():
    values = {"n_prompts": 50, "pass_at_1": 0.5, "pairability": 0.4, "pairability_low": 0.3, "pairability_high": 0.5}
    nothing = dict.fromkeys(filter(re.compile("entropy|mid_band").match, AUTO_COLUMNS))
    frame = pd.DataFrame({"step": [50, 99], **values, **nothing, "tokens_generated": 9})
    first = policy("auto/grpo", 300, 0)
    second = policy("auto/grpo", 300, 1)
    table = auto_table({second: frame.assign(chosen=[True, False]), first: frame.assign(chosen=[False, True])})
    assert tuple(table.columns) == tuple(AUTO_COLUMNS)
    assert table[["seed", "step", "chosen"]].to_numpy().tolist() == [
        [0, 50, False],
        [0, 99, True],
        [1, 50, True],
        [1, 99, False],
    ]
    assert table["entropy"].isna().all()


@pytest.fixture
def harvest_rows() -> pd.DataFrame:
    """Harvests at K = 0 (mixed prompts), 150 (mixed in one of two seeds) and 300 (none mixed)."""
    decided = groups([(0, 8), (8, 8)])
    mixed = groups([(4, 8), (1, 8)])
    harvests = {
        Harvest("m", 2, 300, 0): decided,
        Harvest("m", 2, 150, 1): mixed.iloc[::-1],
        Harvest("m", 2, 150, 0): decided,
        Harvest("m", 0, 0, 0): mixed,
    }
    return harvest_table(*summarised(harvests))


def test_harvests_are_in_the_order_of_k(harvest_rows: pd.DataFrame):
    assert tuple(harvest_rows.columns) == tuple(HARVEST_COLUMNS)
    assert list(harvest_rows["K"]) == [0, 150, 300]
    assert list(harvest_rows["n_seeds"]) == [1, 2, 1]
    assert harvest_rows["group_size"].isna().tolist() == [True, False, False]


def test_harvest_means_are_over_seeds(harvest_rows: pd.DataFrame):
    row = harvest_rows.iloc[1]
    assert (row["pairability"], row["n_pairs"]) == (0.5, 1)
    assert row["pairability_std"] == pytest.approx(math.sqrt(0.5))


def test_harvest_means_skip_seeds_without_a_value(harvest_rows: pd.DataFrame):
    """The seed without pairable prompts has no mu."""
    row = harvest_rows.iloc[1]
    assert row["mid_band"] == informativeness(groups([(4, 8), (1, 8)])).mid_band == 0.5
    assert math.isnan(row["mid_band_std"])


def test_a_harvest_without_pairable_prompts_has_no_entropy(harvest_rows: pd.DataFrame):
    assert harvest_rows.iloc[2][["entropy", "entropy_low", "mid_band_high"]].isna().all()


def test_harvest_means_are_in_their_intervals(harvest_rows: pd.DataFrame):
    row = harvest_rows.iloc[1]
    assert row["entropy_low"] < row["entropy"] < row["entropy_high"]
    assert 0 <= row["pairability_low"] < row["pairability"] < row["pairability_high"] <= 1


def test_the_seeds_of_a_harvest_share_their_prompts():
    keys = [Harvest("m", 2, 150, seed) for seed in (0, 1)]
    with pytest.raises(ValueError, match=r"m/seed0/harvest/g2/k150: .* different prompts"):
        harvest_table(*summarised({keys[0]: groups([(1, 8)]), keys[1]: groups([(1, 8), (2, 8)])}))


def rewarded(rewards: dict[str, list[float | None]]) -> pd.DataFrame:
    """Rollouts with these rewards by prompt, all with the right answer."""
    frame = groups([(len(of_prompt), len(of_prompt)) for of_prompt in rewards.values()])
    given = [*chain.from_iterable(rewards.values())]
    return frame.assign(reward=pd.Series(given, frame.index, dtype=float))


def test_scalar_rewards_have_no_intervals_of_shares_of_right_rollouts():
    keys = [Harvest("m", 2, 150, seed) for seed in (0, 1)]
    apart = {"a": [0.1, 0.7], "b": [-1.3, 2.0]}
    row = harvest_table(*summarised(dict.fromkeys(keys, rewarded(apart)))).iloc[0]
    assert row["pairability"] == 1
    assert math.isnan(row["pairability_low"])


def test_a_prompt_without_a_reward_in_one_seed_is_left_out_of_the_interval():
    keys = [Harvest("m", 2, 150, seed) for seed in (0, 1)]
    late = {"a": [0.0, 1.0], "b": [None, None], "c": [1.0, 1.0]}
    in_time = {"a": [0.0, 1.0], "b": [0.0, 1.0], "c": [1.0, 1.0]}
    row = harvest_table(*summarised({keys[0]: rewarded(late), keys[1]: rewarded(in_time)})).iloc[0]
    assert row["pairability"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert row["pairability_low"] <= 1 / 2 <= row["pairability_high"]


def test_correlations_of_the_published_tables():
    paper = published("table1").query("method != 'SFT'")
    trained = paper[paper["method"].isin(["DPO", "G2D"])].rename(columns={"math500": "accuracy"})
    points = published("table2").merge(trained.query("model == 'Qwen2.5-7B-Instruct'")[["model", "K", "accuracy"]])
    points = points.assign(benchmark="MATH-500", seed=0, group_size=0)
    table = correlation_table(points).set_index("metric")
    assert table["pearson_r"].to_dict() == pytest.approx(RECOMPUTED_CORRELATIONS, abs=0.0005)
    assert (table["n"] == 6).all()


@pytest.fixture
def points() -> pd.DataFrame:
    """Points of two seeds at K = 0, 1 and 2, with as many pairable prompts as K; other policies are no points."""
    evaluations = {(BASE, "id"): solved(0), (policy("ipo", 2), "id"): solved(4), (policy("grpo", 2), "id"): solved(4)}
    harvests = {}
    for k in (0, 1, 2):
        for seed in (0, 1):
            evaluations[policy("dpo", k, seed), "id"] = solved(k + seed)
            harvests[Harvest("m", 2 if k else 0, k, seed)] = groups([(1, 8)] * k + [(8, 8)])
    summaries, _ = summarised(harvests)
    return correlation_points(summaries, evaluations)


def test_a_point_is_a_harvest_and_the_policy_trained_on_it(points: pd.DataFrame):
    assert list(points.query("seed == 1")["accuracy"]) == [0.25, 0.5, 0.75]
    assert points["entropy"].isna().tolist() == [True, True, False, False, False, False]


def test_correlations_are_between_means_over_seeds(points: pd.DataFrame):
    pairability = points.groupby("K")["pairability"].mean()
    accuracy = pd.Series({0: 0.125, 1: 0.375, 2: 0.625})
    table = correlation_table(points).set_index("metric")
    assert table.loc["pairability", "pearson_r"] == pytest.approx(pairability.corr(accuracy))


def test_two_points_have_no_correlation(points: pd.DataFrame):
    """They are always on a line."""
    table = correlation_table(points)
    assert list(table["n"]) == [3, 2, 2]
    assert table["pearson_r"].isna().tolist() == [False, True, True]


@pytest.fixture
def cells() -> pd.DataFrame:
    """Two prompts of levels 2 and 5 at two temperatures, with eight rollouts each."""
    hot = [group("a", 4, level=2), group("b", 8, level=2), group("c", 0, level=5), group("d", 1, level=5)]
    cold = [group("a", 8, level=2), group("b", 8, level=2), group("c", 0, level=5), group("d", 0, level=5)]
    return factorial_table({"m": {1.3: to_frame(list(chain(*hot))), 0.8: to_frame(list(chain(*cold)))}})


def test_cells_are_ordered_by_level_and_temperature(cells: pd.DataFrame):
    assert tuple(cells.columns) == tuple(CELL_COLUMNS)
    assert cells["level"].tolist() == [2, 2, 5, 5]
    assert cells["temperature"].tolist() == [0.8, 1.3, 0.8, 1.3]


def test_a_cell_has_the_shares_of_its_rollouts_and_prompts(cells: pd.DataFrame):
    assert list(cells["pass_at_1"]) == [1, 0.75, 0, 1 / 16]
    assert list(cells["pairability"]) == [0, 0.5, 0, 0.5]
    assert list(cells["all_wrong"]) == [0, 0, 1, 0.5]


def test_a_cell_without_pairable_prompts_has_no_middle_band(cells: pd.DataFrame):
    assert list(cells["mid_band"].fillna(-1)) == [-1, 1, -1, 0]


def test_the_entropy_of_a_cell_is_over_its_pairable_prompts(cells: pd.DataFrame):
    assert cells["entropy"][3] == pytest.approx(-(1 / 8) * math.log2(1 / 8) - (7 / 8) * math.log2(7 / 8))


def test_problems_without_levels_have_no_cells():
    assert factorial_table({"m": {0.8: to_frame(group("p", 2, 8, level=None))}}).empty


def test_calibration_tables_are_stacked_by_model():
    outcomes = {"pairable": 2, "all_wrong": 1, "all_correct": 0}
    levels = pd.DataFrame([{"levels": "2-4", "selected": True, "n": 3, **outcomes}])
    table = calibration_table({"b": levels, "a": levels})
    assert table.columns[:4].tolist() == ["model", "levels", "selected", "n"]
    assert list(table["model"]) == ["b", "a"]


@pytest.fixture
def costs() -> CostFile:
    """The cost of a DPO after two warm-ups of M0, on several devices."""

    def cost(job: str, stage: str, hours: float, device: str = "A100") -> Cost:
        return Cost(job, stage, hours * 1800, 60, 2, device, hours * 3600, 10, int(hours * 1e9))

    ancestry = (cost("b", "base", 0, "cpu"), cost("w1", "warmup", 2), cost("w2", "warmup", 3, "H100"))
    return CostFile(cost("d", "dpo", 1), ancestry)


def test_costs_have_a_row_for_each_stage_of_a_policy(costs: CostFile):
    table = cost_table({policy("dpo", 300, seed=4): costs.records, BASE: [costs.ancestry[0]]})
    assert list(table["stage"]) == ["base", "warmup", "dpo", "base"]
    assert table["seed"].isna().tolist() == [False, False, False, True]
    assert table["device_hours"][:3].sum() == costs.device_hours == 6


def test_jobs_of_a_stage_are_added(costs: CostFile):
    warmup = cost_table({policy("dpo", 300, seed=4): costs.records}).iloc[1]
    assert warmup[["model", "policy", "K", "group_size", "seed", "regime"]].tolist() == ["m", "g2d", 300, 2, 4, "dpo"]
    assert warmup[["n_jobs", "wall_s", "cpu_s", "device_hours", "tokens_generated"]].tolist() == [2, 9000, 120, 5, 20]


def test_devices_and_peak_memory_of_a_stage_are_of_all_its_jobs(costs: CostFile):
    warmup = cost_table({policy("dpo", 300, seed=4): costs.records}).iloc[1]
    assert warmup[["devices", "device", "peak_memory_gb"]].tolist() == [2, "A100, H100", 3]


@pytest.fixture
def small_table() -> pd.DataFrame:
    return main_table({(BASE, "id"): solved(1, of=3), (policy("dpo", 150), "id"): solved(2, of=3)}, {})


def test_a_table_read_from_csv_has_its_types_and_nulls(tmp_path, small_table: pd.DataFrame):
    write_table(tmp_path / "main.csv", small_table)
    pd.testing.assert_frame_equal(read_table(tmp_path / "main.csv", MAIN_COLUMNS), small_table, rtol=1e-5)


def test_a_table_is_written_with_the_same_bytes_each_time(tmp_path, small_table: pd.DataFrame):
    write_table(tmp_path / "first.csv", small_table)
    write_table(tmp_path / "second.csv", small_table)
    written = (tmp_path / "first.csv").read_text()
    assert (tmp_path / "second.csv").read_text() == written
    assert "m,base,0,,id,,1,3,3,0.333333,0,0.886251,0.3333,,,,,,,,,\n" in written


@pytest.mark.parametrize("content", ["", "model,K\nm,many\n"])
def test_a_broken_csv_is_named(tmp_path, content):
    path = tmp_path / "main.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"main\.csv"):
        read_table(path, MAIN_COLUMNS)


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (main_table({}, {}), MAIN_COLUMNS),
        (harvest_table({}, {}), HARVEST_COLUMNS),
        (correlation_table(correlation_points({}, {})), CORRELATION_COLUMNS),
        (comparison_table({}), COMPARISON_COLUMNS),
        (decomposition_table({}), DECOMPOSITION_COLUMNS),
        (cost_table({}), COST_COLUMNS),
    ],
    ids=["main", "harvest", "correlations", "comparisons", "decomposition", "cost"],
)
def test_an_empty_grid_gives_empty_tables_with_their_columns(table: pd.DataFrame, columns):
    assert table.empty
    assert tuple(table.columns) == tuple(columns)
