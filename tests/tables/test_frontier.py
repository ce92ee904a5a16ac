"""The frontier as tables and words; every number worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from g2d.experiment.arms import Arm
from g2d.experiment.config import read
from g2d.experiment.grid import policies
from g2d.experiment.keys import PolicyKey
from g2d.jobs.cost import Cost, merge_costs
from g2d.report import frontier
from g2d.report.frontier import picture, sentences
from g2d.rollouts.rollout import to_frame
from g2d.tables.costs import (
    HOURS_OF_HARVEST_AND_DPO,
    HOURS_PER_COMPLETION,
    PUBLISHED,
    cost_table,
    costs_of,
    critical_path_s,
    paper_hours,
)
from g2d.tables.frontier import AXES, frontier_table
from tests.frames import rollout

MICRO = Path(__file__).parents[1] / "workflow/micro.yaml"
N = 200


def solved(right: int) -> pd.DataFrame:
    return to_frame([rollout(f"p{i:03}", 0, "correct" if i < right else "incorrect", 1) for i in range(N)])


def key(regime: str, k: int = 0, g: int = 2, kind: str = "", role: str = "") -> PolicyKey:
    arm = Arm(regime, kind or regime, role or regime)
    return PolicyKey.of("m", arm, (g if k else 0, k), None if regime == "base" else 0)


M0, DPO, G2D, GRPO = key("base"), key("dpo"), key("dpo", 50), key("grpo", 100)
ONLINE = [key("online", k, 8, kind="semi_online_dpo", role="entry") for k in (10, 20)]
IPO = key("ipo", 50, kind="dpo", role="ablation")
RIGHT = {M0: 80, DPO: 150, G2D: 152, GRPO: 100, ONLINE[0]: 120, ONLINE[1]: 170, IPO: 190}
TOKENS = {DPO: 10, G2D: 30, GRPO: 20, ONLINE[0]: 15, ONLINE[1]: 40, IPO: 5}
EVALUATIONS = {(policy, "test"): solved(right) for policy, right in RIGHT.items()}
COSTS = {policy: dict.fromkeys(AXES, float(tokens)) | {"paper_hours": math.nan} for policy, tokens in TOKENS.items()}
SPENT = {"tokens_generated": 9.0, "updates": 4.0}
COSTS[GRPO]["paper_hours"] = COSTS[DPO]["paper_hours"] = 2.0


def with_tests(axis: str = "tokens_generated", margin: float = 0.02) -> pd.DataFrame:

    return frontier_table(EVALUATIONS, COSTS, margin, tested_axis=axis)


def test_policies_have_costs_on_each_known_axis_and_a_status_on_the_tested_one() -> None:
    table = with_tests()
    others = table[table["axis"] != "tokens_generated"]
    assert set(others["status"]) == {"not tested"}
    assert others[["p_on", "p_beaten", "beaten_by"]].isna().all(axis=None)
    assert not others["cheapest_enough"].any()
    shown = table.groupby(["policy", "K"])[["p_enough", "margin_shown_any", "enough"]].nunique()
    assert (shown == 1).all(axis=None)  # the margin is the same at any cost
    by_tokens = table[table["axis"] == "tokens_generated"].set_index(["policy", "K"])
    assert "ipo" not in set(table["policy"])  # an ablation of DPO is in Table 3
    assert by_tokens["cost"].to_dict() == {
        ("base", 0): 0, ("dpo", 0): 10, ("g2d", 50): 30, ("online", 10): 15, ("online", 20): 40, ("grpo", 100): 20,
    }  # fmt: skip
    assert by_tokens["status"].to_dict() == {
        ("base", 0): "nothing cheaper", ("dpo", 0): "on the frontier", ("g2d", 50): "open", ("online", 10): "beaten",
        ("online", 20): "on the frontier", ("grpo", 100): "beaten",
    }  # fmt: skip
    assert by_tokens.loc[("grpo", 100), ["beaten_by", "beaten_by_K"]].tolist() == ["dpo", 0]
    assert by_tokens["enough"].sum() == by_tokens["cheapest_enough"].sum() == 1
    assert by_tokens.loc[("online", 20), "cheapest_enough"]
    with_hours = table[table["axis"] == "paper_hours"]
    assert list(with_hours["policy"]) == ["base", "dpo", "grpo"]
    wide = with_tests(margin=0.2).query("axis == 'tokens_generated'")
    assert list(wide.loc[wide["enough"], "policy"]) == ["dpo", "g2d", "online"]
    assert list(wide.loc[wide["cheapest_enough"], "policy"]) == ["dpo"]


def test_curve_points_and_ablations_are_drawn_and_in_no_test() -> None:
    """A grid without GRPO's learning curve and ablations gives the other policies the same p-values."""
    more = {key("grpo", 50, role="curve"): 150, key("no-ratio/grpo", 100, kind="grpo", role="ablation"): 170}
    evaluations = EVALUATIONS | {(policy, "test"): solved(right) for policy, right in more.items()}
    table = frontier_table(evaluations, COSTS | {policy: dict.fromkeys(AXES, 5.0) for policy in more}, margin=0.02)
    untested = table[table["margin_shown_any"].isna()]
    assert set(zip(untested["policy"], untested["K"], strict=True)) == {("grpo", 50), ("no-ratio/grpo", 100)}
    assert set(untested["status"]) == {"not tested"}
    assert untested[["p_on", "p_beaten", "p_enough"]].isna().all(axis=None)
    assert not untested[["enough", "cheapest_enough"]].any(axis=None)
    rest = table.drop(untested.index).query("axis != 'paper_hours'").reset_index(drop=True)
    alone = frontier_table(EVALUATIONS, COSTS, margin=0.02).query("axis != 'paper_hours'")
    pd.testing.assert_frame_equal(rest, alone.reset_index(drop=True))


def test_the_sentences_agree_with_the_table() -> None:
    first, second = sentences(with_tests())
    assert first.startswith("By tokens generated per seed, DPO (K=0) and online (K=20) are on the frontier with these ")
    assert "2 of 5 policies" in first
    assert "GRPO (K=100) by DPO (K=0), −25.0 points [−34.0, −15.5]; online (K=10) by DPO (K=0), −15.0" in first
    assert "; 1 is open" in first
    assert "is online (K=20), 85.0 % for 40 tokens generated per seed, at most 0.0 points worse" in second
    answers = {(policy, "test"): solved(100) for policy in RIGHT}
    first, second = sentences(frontier_table(answers, COSTS, margin=0.001, tested_axis="updates"))
    assert first.startswith("By gradient steps per seed, no policy is shown to be better")
    assert "0 of 5 policies" in first
    assert "; 5 are open" in first
    assert second.startswith("No policy is shown to be less than 0.1 points worse")
    assert "M0 comes nearest, at most 1.7 points worse" in second
    (alone, _) = sentences(frontier_table({(M0, "test"): solved(100)}, {}, margin=0.02))
    assert alone.startswith("There is nothing to compare by device-hours per seed")
    assert sentences(with_tests().query("axis == 'updates'")) == ()
    assert tuple(frontier.AXES) == AXES


def test_costs_have_an_interval_over_seeds() -> None:
    seeds = [replace(DPO, seed=seed) for seed in (0, 1, 2)]
    evaluations = {(M0, "test"): solved(80)} | {(policy, "test"): solved(150) for policy in seeds}
    hours = {policy: dict.fromkeys(AXES, cost) for policy, cost in zip(seeds, (4.8, 5.2, 5.6), strict=True)}
    table = frontier_table(evaluations, hours, margin=0.02, tested_axis="updates")
    row = table[(table["axis"] == "updates") & (table["policy"] == "dpo")].iloc[0]
    assert tuple(row[["cost", "cost_low", "cost_high"]]) == pytest.approx((5.2, 4.2063, 6.1937), abs=1e-4)
    assert "75.0 % for 5.2 [4.21, 6.19] gradient steps per seed" in sentences(table)[1]
    assert "these weights" not in " ".join(sentences(table))


def test_the_picture_names_the_frontier_and_has_every_policy() -> None:
    table = with_tests()
    spec = picture(table[table["axis"] == "tokens_generated"], {})
    json.dumps(spec, allow_nan=False)  # the page's JSON has no NaN, as the cheapest policy's p-value is
    drawn = [row for rows in spec["datasets"].values() for row in rows]
    assert len({row["name"] for row in drawn}) == len(RIGHT) - 1  # without the ablation
    assert {row["name"] for row in drawn if "place" in row} == {"M0", "DPO (K=0)", "online (K=20)"}


def test_shards_and_answers_of_checkpoints_run_side_by_side_and_the_rest_in_a_row() -> None:
    shards = "m/calibration/rollouts.shards"
    walls = {f"{shards}/1-of-2": 5.0, f"{shards}/2-of-2": 7.0, "m/calibration/cost": 1.0, "m/dpo/g0/k0/cost": 11.0}
    bill = [Cost(job, "stage", wall, wall, 2, "gpu", 2 * wall, 0, 1, None) for job, wall in walls.items()]
    assert critical_path_s(bill) == 7 + 1 + 11
    costs = costs_of(DPO, bill, SPENT, read(MICRO))
    assert costs["device_hours"] == pytest.approx(2 * 24 / 3600)
    assert (costs["tokens_generated"], costs["updates"]) == (9, 4)
    stages = [("train", 4.0), ("answer_development", 2.0), ("answer_development", 3.0), ("reply_to_development", 6.0)]
    bill = [Cost(f"m/{i}", name, wall, wall, 1, "gpu", wall, 0, 1, None) for i, (name, wall) in enumerate(stages)]
    assert critical_path_s(bill) == 4 + 3 + 6


H100 = "NVIDIA H100 80GB HBM3"
# A download, half an hour on a card, and two hours on two cards: 4.5 card-hours.
BILL = [
    Cost("m/base/cost", "pretrained_model", 360, 60, 1, "cpu", 360, 0, 1),
    Cost("m/calibration/cost", "calibrate", 1800, 60, 1, H100, 1800, 10, 1),
    Cost("m/seed0/dpo/g0/k0/cost", "train_dpo", 7200, 60, 2, H100, 14400, 0, 1),
]


def test_a_training_with_a_lag_can_overlap_generation() -> None:
    late = [BILL[0], replace(BILL[2], overlap_s=1200), replace(BILL[2], job="m/seed0/dpo/g0/k4/cost", overlap_s=600)]
    assert critical_path_s(late) == critical_path_s(BILL[:1]) + 2 * 7200 - 1800
    assert cost_table({DPO: late})["overlap_s"].tolist() == pytest.approx([math.nan, 1800], nan_ok=True)
    assert merge_costs(BILL[2], late[1]).overlap_s == merge_costs(late[1], BILL[2]).overlap_s == 1200


def test_hours_at_the_papers_rates() -> None:
    """The micro grid: steps of 4 completions; DPO on a harvest costs the paper's row with K=0 on top."""
    config = read(MICRO)
    hours_of = {(key.regime, key.group_size, key.k): paper_hours(key, config) for key in policies(config)}
    assert hours_of["base", 0, 0] == 0
    assert hours_of["dpo", 0, 0] == pytest.approx(HOURS_OF_HARVEST_AND_DPO)
    steps = max(config.warmup.steps)
    online = HOURS_PER_COMPLETION * steps * config.warmup.completions_per_step(2)
    assert hours_of["dpo", 2, steps] == pytest.approx(online + HOURS_OF_HARVEST_AND_DPO)
    assert hours_of["grpo", 2, steps] == pytest.approx(online)
    assert all(math.isnan(hours) for (regime, *_), hours in hours_of.items() if regime == "rft")
    assert 1000 * 8 * (2 + 4) * PUBLISHED["train_grpo"] == pytest.approx(26.6 + 52.2, rel=0.03)
    assert PUBLISHED["harvest_rollouts"] + PUBLISHED["train_dpo"] == pytest.approx(2.4)
