"""The advice before the grid, compared with values by hand; its certainty by simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from g2d.advice.check import accuracy_check, harvest_check, hours_check
from g2d.advice.probe import level_advice, step_advice
from g2d.advice.words import advice_text, level_words, score_words, step_words
from g2d.analysis.calibration import level_table, with_mixes
from g2d.analysis.informativeness import informativeness, success_counts
from g2d.analysis.statistics import part_interval, wilson_interval
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.forecast.probe_hours import hours_advice, rates
from tests.forecast.test_probe_hours import COST, bills, small
from tests.frames import answers, group, groups, published, to_frame

ONE, TWO = HarvestKey("demo", 0, 0, 0), HarvestKey("demo", 2, 25, 0)


def counts(correct: np.ndarray, n: int = 8) -> pd.DataFrame:
    names = [f"p{i:04d}" for i in range(len(correct))]
    return pd.DataFrame({"problem_id": names, "n": n, "correct": correct, "p_hat": correct / n})


# ------------------------------------------------------------------------------------------------------------ levels


def test_levels_of_the_papers_table_4() -> None:
    """Level 5 has 66 % of prompts without a right answer: it is below the window, with fewer pairs than level 4."""
    table = published("table4").astype({"n": int, "pairable": int})
    shares = ["pass_at_1", "pairable_share", "all_wrong_share"]
    table[shares] = table[shares].astype(float) / 100
    advice = level_advice("qwen", table.assign(selected=False), (0.3, 0.6)).set_index("levels")
    hard = advice.loc["5"]
    assert hard["all_wrong_share"] == pytest.approx(0.66, abs=0.005)
    assert not hard["in_window"]
    for row in advice.reset_index().to_dict("records"):
        assert row["pairability_low"] < row["pairability"] < row["pairability_high"]
        assert row["pairs_per_100"] == pytest.approx(100 * row["pairability"])


def levels_by_hand() -> pd.DataFrame:
    """Level 1: p = 1/2, 1, half pairable. Level 2: p = 0, 1/4, 1/8, two of three pairable."""
    rows = [*group("a", 4, level=1), *group("b", 8, level=1)]
    rows += [*group("c", 0, level=2), *group("d", 2, level=2), *group("e", 1, level=2)]
    return with_mixes(level_table(to_frame(rows)), [1])


def test_the_window_is_separate_from_the_selection() -> None:
    advice = level_advice("demo", levels_by_hand(), (0.1, 0.6)).set_index("levels")
    assert list(advice.index) == ["1", "2", "all"]
    assert [*advice["selected"]] == [True, False, False]
    assert [*advice["in_window"]] == [False, True, True]  # pass@1 = .75, .125, .375
    assert advice.loc["2", "pairability"] == pytest.approx(2 / 3)
    ends = advice.loc["2", ["pairability_low", "pairability_high"]]
    assert tuple(ends) == pytest.approx(wilson_interval(2, 3))


def test_a_level_outside_that_gives_more_pairs_is_named() -> None:
    table = level_advice("demo", levels_by_hand(), (0.1, 0.6))
    words = level_words(small(calibration={"levels": [1], "window": (0.1, 0.6)}), "demo", table)
    assert "level 1 is pinned; the window (pass@1 of 10 to 60 %) holds level 2." in words
    assert "Of 100 prompts there, 50 give a pair with M0." in words
    assert "Level 2 would give more: 67 (21 to 94), at pass@1 12 % and 33 % all wrong." in words
    chosen = table.assign(selected=[False, True, False])
    words = level_words(small(calibration={"window": (0.1, 0.6)}), "demo", chosen)
    assert words.startswith("Levels: train on level 2, inside the window (pass@1 of 10 to 60 %).")
    assert words.endswith("No level outside gives more than the best of them.")


# ----------------------------------------------------------------------------------------------------------------- K


def test_a_part_of_a_population_narrows_its_interval() -> None:
    assert part_interval(3, 10, 10) == (0.3, 0.3)
    # One of two is known to succeed: a total of 1 shows that with chance 1/2, a total of 2 with chance 1.
    assert part_interval(1, 1, 2) == (0.5, 1)
    # 3 of 10 out of 20: with 3 in all the chance of 3 is 10.5 %. With 11 the chance of at most 3 is 3.5 %, with 12 1 %.
    assert part_interval(3, 10, 20) == (3 / 20, 11 / 20)
    wide = stats.binomtest(3, 10).proportion_ci(method="exact")
    assert part_interval(3, 10, 5000) == pytest.approx((wide.low, wide.high), abs=2e-3)
    with pytest.raises(ValueError, match="11 known members of a population of 10"):
        part_interval(3, 11, 10)


def test_two_steps_worked_out_by_hand() -> None:
    probes = {
        TWO: success_counts(groups([(2, 8), (4, 8), (4, 8), (8, 8)])),
        ONE: success_counts(groups([(0, 8), (1, 8), (4, 8), (8, 8)])),
    }
    first, second = step_advice(probes, 4).to_dict("records")
    assert (first["K"], second["K"], second["group_size"]) == (0, 25, 2)
    assert pd.isna(first["group_size"])
    assert (first["pairability"], first["n_pairs"], second["n_pairs"]) == (0.5, 2, 3)
    # H(1/8) = 3 - 7/8 log2 7, H(1/4) = 2 - 3/4 log2 3
    assert first["entropy"] == pytest.approx((0.5435644432 + 1) / 2)
    assert second["entropy"] == pytest.approx((0.8112781245 + 2) / 3)
    assert (first["mid_band"], second["mid_band"]) == (0.5, pytest.approx(2 / 3))
    # Every prompt of the training set was probed: nothing is left to chance.
    for row in (first, second):
        for metric in ("pairability", "n_pairs", "entropy", "mid_band"):
            assert row[f"{metric}_low"] == row[metric] == row[f"{metric}_high"]
    assert (first["p_best_entropy"], second["p_best_entropy"]) == (0, 1)
    assert (first["advised"], second["advised"], first["as_good"]) == (False, True, False)
    assert first["behind_advised"] == pytest.approx(second["entropy"] - first["entropy"])
    unsure = step_advice(probes, 1000).set_index("K")
    assert 0.5 <= unsure.loc[25, "p_best_entropy"] < 1
    assert unsure["advised"].tolist() == [False, True]
    assert unsure.loc[0, "as_good"]
    assert unsure.loc[0, "n_pairs"] == 500


def test_the_smaller_of_equal_steps_is_advised() -> None:
    same = success_counts(groups([(2, 8), (4, 8), (0, 8)]))
    advice = step_advice({TWO: same, ONE: same}, 50).set_index("K")
    assert [*advice["advised"]] == [True, False]
    assert [*advice["p_best_entropy"]] == pytest.approx([0.5, 0.5], abs=0.1)  # a draw may hold no pairable prompt
    assert advice.loc[25, "behind_advised"] == 0


def test_nothing_pairable_gives_no_advice() -> None:
    nothing = success_counts(groups([(0, 8), (8, 8)]))
    advice = step_advice({ONE: nothing, TWO: nothing}, 50)
    assert not advice["advised"].any()
    assert advice["n_pairs"].tolist() == [0, 0]
    assert "nothing to choose by" in step_words(advice)
    some = step_advice({ONE: nothing, TWO: success_counts(groups([(4, 8), (4, 8)]))}, 50)
    assert some["advised"].tolist() == [False, True]
    assert "No smaller K can be as good" in step_words(some)
    first = step_advice({ONE: success_counts(groups([(4, 8)])), TWO: nothing.head(1)}, 9)
    assert "No K is cheaper" in step_words(first)


def test_probes_of_different_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"demo/seed0/probe/g2/k25: not the prompts of demo/seed0/probe/g0/k0"):
        step_advice({ONE: counts(np.array([1, 2])), TWO: counts(np.array([1, 2, 3]))}, 50)
    with pytest.raises(ValueError, match="2 prompts of a training set of 1"):
        step_advice({ONE: counts(np.array([1, 2]))}, 1)


STEPS = (0, 25, 50, 100)


def simulated(n: int, rng: np.random.Generator) -> dict[HarvestKey, pd.DataFrame]:
    """Prompts of which more are easy coin flips at K=50 than at any other K; the same prompts throughout."""
    difficulty = rng.normal(size=n)
    harvests = {}
    for k, shift in zip(STEPS, (2.0, 1.0, 0.0, 2.5), strict=True):
        p = 1 / (1 + np.exp(-(difficulty + shift)))
        harvests[HarvestKey("demo", 2 if k else 0, k, 0)] = counts(rng.binomial(8, p))
    return harvests


def test_the_best_k_is_found_and_more_surely_with_more_prompts() -> None:
    rng = np.random.default_rng(1)
    surety, hits = {}, {}
    for n in (10, 160):
        tables = [step_advice(simulated(n, rng), 300).set_index("K") for _ in range(15)]
        surety[n] = np.mean([table.loc[50, "p_best_entropy"] for table in tables])
        hits[n] = np.mean([table.loc[50, "advised"] for table in tables])
    assert surety[10] < surety[160] - 0.1
    assert hits[160] > 0.9 > hits[10] > 0.4
    # Said to be sure in so many cases, right in so many.
    assert surety[160] == pytest.approx(hits[160], abs=0.1)


def test_a_probe_of_equal_steps_does_not_claim_to_know_the_best() -> None:
    """Plain resampling gives the best of four equal steps 60 %, and is right in 38 %."""
    rng = np.random.default_rng(3)
    keys = [HarvestKey("demo", 2 if k else 0, k, 0) for k in STEPS]
    surety = []
    for _ in range(20):
        p = 1 / (1 + np.exp(-rng.normal(size=30)))
        surety.append(step_advice({key: counts(rng.binomial(8, p)) for key in keys}, 300)["p_best_entropy"].max())
    assert 0.25 < np.mean(surety) < 0.5


def test_intervals_contain_the_values_of_the_whole_harvest() -> None:
    """95 % intervals of a probe of 50 out of 300, against the 300; one standard error of the coverage is 2 points."""
    rng = np.random.default_rng(2)
    inside: dict[str, list[bool]] = {"n_pairs": [], "entropy": [], "mid_band": []}
    for _ in range(50):
        whole = {key: frame for key, frame in simulated(300, rng).items() if key.k in (0, 50)}
        probed = step_advice({key: frame.head(50) for key, frame in whole.items()}, 300)
        for row, truth in zip(probed.to_dict("records"), step_advice(whole, 300).to_dict("records"), strict=True):
            for metric, held in inside.items():
                held.append(row[f"{metric}_low"] <= truth[metric] <= row[f"{metric}_high"])
    coverage = {metric: np.mean(held) for metric, held in inside.items()}
    assert all(0.9 < share < 0.995 for share in coverage.values()), coverage


# -------------------------------------------------------------------------------------------------------------- text


def test_the_text_names_the_demonstration_and_every_model() -> None:
    config = small(title="Mine", demonstration="Only a test.", calibration={"levels": [1]})
    levels = level_advice("demo", levels_by_hand(), (0.3, 0.6))
    steps = step_advice({ONE: counts(np.array([1, 2, 4])), TWO: counts(np.array([4, 4, 3]))}, 100)
    hours = hours_advice(config, "demo", rates(small(), "demo", bills(), 10), (2, 10), {"held-out": 50})
    text = advice_text(config, levels, steps, hours)
    assert text.startswith("# Advice: Mine\n\nOnly a test.\n\n## demo\n\nLevels:")
    assert "K=25 (G=2) looks best" in text
    assert "by 3 of 100 prompts" in text
    assert "nan" not in text.lower().replace("informativenan", "")


# ------------------------------------------------------------------------------------------------------------- check


def test_the_check_has_predicted_and_measured_values() -> None:
    whole = {
        ONE: groups([(0, 8), (1, 8), (4, 8), (8, 8)]),
        TWO: groups([(4, 8), (4, 8), (3, 8), (8, 8)]),
        replace(ONE, seed=1): groups([(0, 8), (0, 8), (4, 8), (8, 8)]),
    }
    summaries = {key: informativeness(frame) for key, frame in whole.items()}
    steps = step_advice({key: success_counts(whole[key]).head(2) for key in (ONE, TWO)}, 4)
    check = harvest_check(steps, summaries, 0).set_index(["K", "metric"])
    pairs = check.loc[(0, "n_pairs")]
    assert (pairs["predicted"], pairs["found"], pairs["inside"], pairs["mean_over_seeds"]) == (2, 2, True, 1.5)
    assert (pairs["low"], pairs["high"]) == (steps["n_pairs_low"][0], steps["n_pairs_high"][0])
    best = check.loc[(25, "best_K_by_entropy")]
    assert (best["predicted"], best["found"], best["inside"]) == (25, 25, True)
    assert (pairs["width"], pairs["seeds_inside"]) == (pairs["high"] - pairs["low"], 1.0)


def test_the_set_of_k_is_scored_by_the_seeds_whose_best_k_it_has() -> None:
    """The probe leaves only K=25. Seed 0 has the highest H and accuracy there, seed 1 and the average at K=0."""
    few, many = [(0, 8), (1, 8), (1, 8)], [(4, 8), (4, 8), (4, 8)]
    steps = step_advice({ONE: success_counts(groups(few)), TWO: success_counts(groups(many))}, 3)
    whole = {ONE: few, TWO: many, replace(ONE, seed=1): many, replace(TWO, seed=1): few}
    check = harvest_check(steps, {key: informativeness(groups(rollouts)) for key, rollouts in whole.items()}, 0)
    [best] = check[check["metric"] == "best_K_by_entropy"].to_dict("records")
    assert (best["low"], best["high"], best["width"], best["inside"], best["seeds_inside"]) == (25, 25, 1, True, 0.5)
    assert best["note"] == "1 of 2 K, chance 1.00"
    right = {(0, 0): 3, (25, 0): 6, (0, 1): 9, (25, 1): 2}
    policies = {
        PolicyKey("demo", "dpo", 2 if k else 0, k, seed): answers({f"q{i}": [i < n] for i in range(10)})
        for (k, seed), n in right.items()
    }
    accuracy = accuracy_check(steps, policies, "held-out")
    [row] = accuracy[accuracy["metric"] == "best_K_by_accuracy"].to_dict("records")
    assert (row["predicted"], row["found"], row["inside"], row["seeds_inside"]) == (25, 0, False, 0.5)
    [sentence] = score_words(pd.concat([check, accuracy]))
    assert sentence.startswith("The forecast for demo, scored: ")
    assert "The K of the highest accuracy is 0, outside the set that the probe left (1 of 2 K)" in sentence


def test_the_advised_k_against_the_best_one() -> None:
    steps = step_advice({ONE: counts(np.array([1, 2, 4])), TWO: counts(np.array([4, 4, 3]))}, 100)
    policies = {
        PolicyKey("demo", "dpo", 0, 0, 0): answers({f"q{i}": [i < 6] for i in range(10)}),
        PolicyKey("demo", "dpo", 2, 25, 0): answers({f"q{i}": [i < 4] for i in range(10)}),
    }
    row, _ = accuracy_check(steps, policies, "held-out").to_dict("records")
    assert (row["K"], row["metric"], row["found"]) == (25, "accuracy_minus_best_K", pytest.approx(-0.2))
    assert row["low"] < row["found"] < row["high"]
    assert row["note"].startswith("best K=0 on held-out")
    assert accuracy_check(steps, {}, "held-out").empty


def test_hours_count_every_job_once_and_not_what_ran_before() -> None:
    hours = hours_advice(small(), "demo", rates(small(), "demo", bills(), 10), None, {"held-out": 50})
    before = replace(COST, job="results/demo/seed0/grpo/g2/k10/cost", stage="train_grpo", device_s=3600.0)
    later = replace(before, job="results/demo/seed1/grpo/g2/k10/cost", device_s=7200.0)
    check = hours_check(hours, [before], [before, later, later]).set_index("metric")
    assert check.loc["device_hours_train_grpo", "found"] == 2
    assert check.loc["device_hours_evaluate", "found"] == 0
