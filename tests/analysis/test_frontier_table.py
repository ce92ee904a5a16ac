"""The frontier as tables and words; every number worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from g2d.experiment.config import read
from g2d.experiment.estimate import HOURS_OF_HARVEST_AND_DPO, HOURS_PER_COMPLETION
from g2d.experiment.grid import policies
from g2d.experiment.keys import PolicyKey
from g2d.jobs.cost import Cost
from g2d.report.frontier import picture, sentences
from g2d.rollouts.rollout import to_frame
from g2d.tables.frontier import AXES, costs_of, critical_path_s, frontier_table, matched_table, paper_hours
from tests.analysis.frames import rollout

MICRO = Path(__file__).parents[1] / "workflow/micro.yaml"
N = 200


def solved(right: int) -> pd.DataFrame:
    return to_frame([rollout(f"p{i:03}", 0, "correct" if i < right else "incorrect", 1) for i in range(N)])


def key(regime: str, k: int = 0, g: int = 2, **more: str) -> PolicyKey:
    return PolicyKey("m", regime, g if k else 0, k, None if regime == "base" else 0, **more)


M0, DPO, G2D, GRPO = key("base"), key("dpo"), key("dpo", 50), key("grpo", 100)
ONLINE = [key("online", k, 8, kind="semi_online_dpo", role="entry") for k in (10, 20)]
IPO = key("ipo", 50, kind="dpo", role="ablation")
RIGHT = {M0: 80, DPO: 150, G2D: 152, GRPO: 100, ONLINE[0]: 120, ONLINE[1]: 170, IPO: 190}
TOKENS = {DPO: 10, G2D: 30, GRPO: 20, ONLINE[0]: 15, ONLINE[1]: 40, IPO: 5}
EVALUATIONS = {(policy, "test"): solved(right) for policy, right in RIGHT.items()}
COSTS = {policy: dict.fromkeys(AXES, float(tokens)) | {"paper_hours": math.nan} for policy, tokens in TOKENS.items()}
COSTS[GRPO]["paper_hours"] = COSTS[DPO]["paper_hours"] = 2.0


def test_every_policy_has_its_place_on_every_axis_that_is_known_for_it() -> None:
    table = frontier_table(EVALUATIONS, COSTS, margin=0.02)
    by_tokens = table[table["axis"] == "tokens_generated"].set_index(["policy", "K"])
    assert "ipo" not in set(table["policy"])  # an ablation of DPO stands in Table 3
    assert by_tokens["cost"].to_dict() == {
        ("base", 0): 0, ("dpo", 0): 10, ("g2d", 50): 30, ("online", 10): 15, ("online", 20): 40, ("grpo", 100): 20,
    }  # fmt: skip
    assert by_tokens["status"].to_dict() == {
        ("base", 0): "on the frontier", ("dpo", 0): "on the frontier", ("g2d", 50): "open", ("online", 10): "beaten",
        ("online", 20): "on the frontier", ("grpo", 100): "beaten",
    }  # fmt: skip
    assert by_tokens.loc[("grpo", 100), ["beaten_by", "beaten_by_K"]].tolist() == ["dpo", 0]
    assert by_tokens["enough"].sum() == by_tokens["cheapest_enough"].sum() == 1
    assert by_tokens.loc[("online", 20), "cheapest_enough"]
    known = table[table["axis"] == "paper_hours"]
    assert list(known["policy"]) == ["base", "dpo", "grpo"]
    wide = frontier_table(EVALUATIONS, COSTS, margin=0.2)
    wide = wide[wide["axis"] == "tokens_generated"]
    assert list(wide.loc[wide["enough"], "policy"]) == ["dpo", "g2d", "online"]
    assert list(wide.loc[wide["cheapest_enough"], "policy"]) == ["dpo"]


def test_what_the_tokens_of_g2d_could_buy() -> None:
    """30 tokens: DPO, GRPO, and of the online entry only the first ten updates."""
    table = matched_table(EVALUATIONS, COSTS)
    assert list(zip(table["K"], table["other"], table["other_K"], table["other_tokens_generated"], strict=True)) == [
        (50, "dpo", 0, 10), (50, "online", 10, 15), (50, "grpo", 100, 20),
    ]  # fmt: skip
    assert list(table["difference"]) == pytest.approx([-2 / N, -32 / N, -52 / N])
    assert list(table["family_size"]) == [3, 3, 3]
    assert list(table["p_corrected"]) == pytest.approx([min(1, 3 * p) for p in table["p_value"]])
    assert ((table["family_low"] <= table["ci_low"]) & (table["ci_high"] <= table["family_high"])).all()


def test_the_words_say_what_the_table_says_and_no_more() -> None:
    table = frontier_table(EVALUATIONS, COSTS, margin=0.02)
    rows = table[table["axis"] == "tokens_generated"]
    first, second = sentences(rows)
    assert first == (
        "By tokens generated per seed, M0, DPO (K=0) and online (K=20) are on the frontier: better than all that cost "
        "as much or less. Of the other 3 policies, 2 are shown to be beaten by one that cost as much or less, and 1 is "
        "open."
    )
    assert second.startswith(
        "The cheapest policy that is less than 2 points worse than any other, at whatever cost, is online (K=20), "
        "85.0 % for 40 tokens generated per seed (non-inferiority, corrected p = 0.001 or less)"
    )
    alike = {(policy, "test"): solved(100) for policy in RIGHT}
    rows = frontier_table(alike, COSTS, margin=0.001)
    first, second = sentences(rows[rows["axis"] == "updates"])
    assert "M0 is on the frontier" in first
    assert "0 are shown to be beaten" in first
    assert second.startswith("No policy is shown to be less than 0.1 points worse than the best")


def test_the_picture_names_the_frontier_and_has_every_policy() -> None:
    table = frontier_table(EVALUATIONS, COSTS, margin=0.02)
    spec = picture(table[table["axis"] == "tokens_generated"])
    json.dumps(spec, allow_nan=False)  # the page's JSON has no NaN, as the cheapest policy's p-value is
    drawn = [row for rows in spec["datasets"].values() for row in rows]
    assert {row["name"] for row in drawn} == {
        "M0", "DPO (K=0)", "G2D (K=50)", "GRPO (K=100)", "online (K=10)", "online (K=20)",
    }  # fmt: skip
    called = next(rows for rows in spec["datasets"].values() if len(rows) == 3)
    assert {row["name"] for row in called} == {"M0", "DPO (K=0)", "online (K=20)"}


def test_shards_run_side_by_side_and_the_rest_in_a_row() -> None:
    walls = {
        "m/calibration/rollouts.shards/1-of-2": 5.0,
        "m/calibration/rollouts.shards/2-of-2": 7.0,
        "m/calibration/cost": 1.0,
        "m/seed0/harvest/g0/k0/rollouts.shards/1-of-1": 3.0,
        "m/seed0/dpo/g0/k0/cost": 11.0,
    }
    bill = [Cost(job, "stage", wall, wall, 2, "gpu", 2 * wall, 0, 1, None) for job, wall in walls.items()]
    assert critical_path_s(bill) == 7 + 1 + 3 + 11
    found = costs_of(DPO, bill, {"tokens_generated": 9.0, "updates": 4.0}, read(MICRO))
    assert found["device_hours"] == pytest.approx(2 * 27 / 3600)
    assert (found["tokens_generated"], found["updates"]) == (9, 4)


def test_candidates_for_a_checkpoint_answer_side_by_side() -> None:
    stages = [("train", 4.0), ("answer_development", 2.0), ("answer_development", 3.0), ("reply_to_development", 6.0)]
    bill = [Cost(f"m/{i}", name, wall, wall, 1, "gpu", wall, 0, 1, None) for i, (name, wall) in enumerate(stages)]
    assert critical_path_s(bill) == 4 + 3 + 6


def test_hours_at_the_papers_rates() -> None:
    """The micro grid: steps of 4 completions; DPO on a harvest costs the paper's row with K=0 on top."""
    config = read(MICRO)
    found = {(own.regime, own.group_size, own.k): paper_hours(own, config) for own in policies(config)}
    assert found["base", 0, 0] == 0
    assert found["dpo", 0, 0] == pytest.approx(HOURS_OF_HARVEST_AND_DPO)
    warmup = config.warmup
    steps = max(warmup.steps)
    online = HOURS_PER_COMPLETION * steps * warmup.completions_per_step(2)
    assert found["dpo", 2, steps] == pytest.approx(online + HOURS_OF_HARVEST_AND_DPO)
    assert found["grpo", 2, steps] == pytest.approx(online)
    assert all(math.isnan(hours) for (regime, *_), hours in found.items() if regime == "rft")
