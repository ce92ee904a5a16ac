"""The advice before the grid: by hand where it can be, and by simulation where its certainty is at stake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from g2d.advice.check import accuracy_check, harvest_check, hours_check
from g2d.advice.hours import Rates, hours_advice, rates, remaining_jobs
from g2d.advice.probe import level_advice, step_advice
from g2d.advice.words import advice_text, hours_words, level_words, step_words
from g2d.analysis.calibration import level_table, with_mixes
from g2d.analysis.informativeness import informativeness, success_counts
from g2d.analysis.statistics import part_interval, wilson_interval
from g2d.experiment.config import Config, load
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.jobs.cost import Cost, CostFile
from tests.experiment.test_config import MINIMAL
from tests.frames import answers, group, groups, published, to_frame

ONE, TWO = HarvestKey("demo", 0, 0, 0), HarvestKey("demo", 2, 25, 0)


def small(**changes: Any) -> Config:
    settings = {"seeds": [0, 1], "warmup": {"steps": [0, 10, 30]}, "training_set": {"n": 100}}
    return load(MINIMAL | settings | changes)


def counts(correct: np.ndarray, n: int = 8) -> pd.DataFrame:
    names = [f"p{i:04d}" for i in range(len(correct))]
    return pd.DataFrame({"problem_id": names, "n": n, "correct": correct, "p_hat": correct / n})


# ------------------------------------------------------------------------------------------------------------ levels


def test_levels_of_the_papers_table_4() -> None:
    """Of level 5, 66 % of the prompts are all wrong: it lies below the window, and gives fewer pairs than level 4."""
    table = published("table4").rename(columns={"n": "n"}).astype({"n": int, "pairable": int})
    for name in ("pass_at_1", "pairable_share", "all_wrong_share"):
        table[name] = table[name].astype(float) / 100
    found = level_advice("qwen", table.assign(selected=False), (0.3, 0.6)).set_index("levels")
    hard = found.loc["5"]
    assert hard["all_wrong_share"] == pytest.approx(0.66, abs=0.005)
    assert not hard["in_window"]
    for row in found.reset_index().to_dict("records"):
        assert row["pairability_low"] < row["pairability"] < row["pairability_high"]
        assert row["pairs_per_100"] == pytest.approx(100 * row["pairability"])


def levels_by_hand() -> pd.DataFrame:
    """Level 1: p = 1/2, 1, half pairable. Level 2: p = 0, 1/4, 1/8, two of three pairable."""
    rows = [*group("a", 4, level=1), *group("b", 8, level=1)]
    rows += [*group("c", 0, level=2), *group("d", 2, level=2), *group("e", 1, level=2)]
    return with_mixes(level_table(to_frame(rows)), [1])


def test_the_window_is_kept_apart_from_what_is_selected() -> None:
    found = level_advice("demo", levels_by_hand(), (0.1, 0.6)).set_index("levels")
    assert list(found.index) == ["1", "2", "all"]
    assert [*found["selected"]] == [True, False, False]
    assert [*found["in_window"]] == [False, True, True]  # pass@1 = .75, .125, .375
    assert found.loc["2", "pairability"] == pytest.approx(2 / 3)
    assert (found.loc["2", "pairability_low"], found.loc["2", "pairability_high"]) == pytest.approx(
        wilson_interval(2, 3)
    )


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
    # 3 of 10 out of 20: with 3 in all the chance of as many is 10.5 %; with 11 that of as few is 3.5 %, with 12, 1.0 %.
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


def test_of_equal_steps_the_smaller_is_advised() -> None:
    same = success_counts(groups([(2, 8), (4, 8), (0, 8)]))
    found = step_advice({TWO: same, ONE: same}, 50).set_index("K")
    assert [*found["advised"]] == [True, False]
    assert [*found["p_best_entropy"]] == pytest.approx([0.5, 0.5], abs=0.1)  # a draw may hold no pairable prompt
    assert found.loc[25, "behind_advised"] == 0


def test_nothing_pairable_gives_no_advice() -> None:
    nothing = success_counts(groups([(0, 8), (8, 8)]))
    found = step_advice({ONE: nothing, TWO: nothing}, 50)
    assert not found["advised"].any()
    assert found["n_pairs"].tolist() == [0, 0]
    assert "nothing to choose by" in step_words(found)
    some = step_advice({ONE: nothing, TWO: success_counts(groups([(4, 8), (4, 8)]))}, 50)
    assert some["advised"].tolist() == [False, True]
    assert "No smaller K can be as good" in step_words(some)
    assert "No K is cheaper" in step_words(
        step_advice({ONE: success_counts(groups([(4, 8)])), TWO: nothing.head(1)}, 9)
    )


def test_probes_of_different_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"demo/seed0/probe/g2/k25: not the prompts of demo/seed0/probe/g0/k0"):
        step_advice({ONE: counts(np.array([1, 2])), TWO: counts(np.array([1, 2, 3]))}, 50)
    with pytest.raises(ValueError, match="2 prompts of a training set of 1"):
        step_advice({ONE: counts(np.array([1, 2]))}, 1)


STEPS = (0, 25, 50, 100)


def simulated(n: int, rng: np.random.Generator) -> dict[HarvestKey, pd.DataFrame]:
    """Prompts of which more are easy coin flips at K=50 than at any other K; the same prompts throughout."""
    difficulty = rng.normal(size=n)
    found = {}
    for k, shift in zip(STEPS, (2.0, 1.0, 0.0, 2.5), strict=True):
        p = 1 / (1 + np.exp(-(difficulty + shift)))
        found[HarvestKey("demo", 2 if k else 0, k, 0)] = counts(rng.binomial(8, p))
    return found


def test_the_best_k_is_found_and_more_surely_with_more_prompts() -> None:
    rng = np.random.default_rng(1)
    surety, hits = {}, {}
    for n in (10, 160):
        tables = [step_advice(simulated(n, rng), 300).set_index("K") for _ in range(30)]
        surety[n] = np.mean([table.loc[50, "p_best_entropy"] for table in tables])
        hits[n] = np.mean([table.loc[50, "advised"] for table in tables])
    assert surety[10] < surety[160] - 0.1
    assert hits[160] > 0.9 > hits[10] > 0.4
    # Said to be sure in so many cases, right in so many.
    assert surety[160] == pytest.approx(hits[160], abs=0.1)


def test_a_probe_of_equal_steps_does_not_claim_to_know_the_best() -> None:
    """Counted resamples are 60 % sure of the best of four that differ by chance alone, and right in 38 %."""
    rng = np.random.default_rng(3)
    keys = [HarvestKey("demo", 2 if k else 0, k, 0) for k in STEPS]
    surety = []
    for _ in range(40):
        p = 1 / (1 + np.exp(-rng.normal(size=30)))
        surety.append(step_advice({key: counts(rng.binomial(8, p)) for key in keys}, 300)["p_best_entropy"].max())
    assert 0.25 < np.mean(surety) < 0.5


def test_intervals_hold_what_the_whole_harvest_shows() -> None:
    """95 % intervals of a probe of 50 out of 300, against the 300; one standard error of the coverage is 1 point."""
    rng = np.random.default_rng(2)
    inside: dict[str, list[bool]] = {"n_pairs": [], "entropy": [], "mid_band": []}
    for _ in range(100):
        whole = {key: frame for key, frame in simulated(300, rng).items() if key.k in (0, 50)}
        probed = step_advice({key: frame.head(50) for key, frame in whole.items()}, 300)
        for row, truth in zip(probed.to_dict("records"), step_advice(whole, 300).to_dict("records"), strict=True):
            for metric, held in inside.items():
                held.append(row[f"{metric}_low"] <= truth[metric] <= row[f"{metric}_high"])
    coverage = {metric: np.mean(held) for metric, held in inside.items()}
    assert all(0.91 < share < 0.99 for share in coverage.values()), coverage


# ------------------------------------------------------------------------------------------------------ device-hours

COST = Cost("job", "draw_probe", 1.0, 1.0, 1, "cpu", 1.0, 0, 0)


def bills() -> dict[HarvestKey, CostFile]:
    """Start-up 2 s and 1 ms per token; a step of warm-up takes 3 s."""

    def drawn(job: str, stage: str, tokens: int) -> Cost:
        return replace(COST, job=job, stage=stage, tokens_generated=tokens, device_s=2 + tokens / 1000)

    calibrated = drawn("calibration", "calibrate", 10_000)
    steps = [replace(COST, job=f"grpo/{k}", stage="train_grpo", device_s=s) for k, s in ((10, 30.0), (30, 60.0))]
    return {
        HarvestKey("demo", 0, 0, 0): CostFile(drawn("k0", "draw_probe", 400), (calibrated,)),
        HarvestKey("demo", 2, 10, 0): CostFile(drawn("k10", "draw_probe", 480), (calibrated, steps[0])),
        HarvestKey("demo", 2, 30, 0): CostFile(drawn("k30", "draw_probe", 560), (calibrated, *steps)),
    }


def test_rates_come_from_the_bills_of_calibration_and_probe() -> None:
    found = rates(small(), "demo", bills(), n_probed=10)
    assert found.seconds_per_completion == pytest.approx(90 / 30 / 16)
    assert (found.start_up, found.seconds_per_token) == pytest.approx((2, 0.001))
    assert found.tokens == {(0, 0): 40, (2, 10): 48, (2, 30): 56}
    assert found.tokens_per_completion == pytest.approx(48 / 8)
    assert found.harvested((4, 30)) == pytest.approx(48)


def test_a_rate_is_never_negative() -> None:
    """Where the larger job was the faster one, a line would promise jobs that take less than no time."""
    fast = {
        key: replace(bill, own=replace(bill.own, device_s=20.0, tokens_generated=10)) for key, bill in bills().items()
    }
    found = rates(small(), "demo", fast, n_probed=10)
    assert found.start_up >= 0
    assert found.seconds_per_token >= 0
    assert found.generation(1000, 1) > 0


def test_the_rest_of_the_grid_is_what_the_probe_has_not_made() -> None:
    config = small(baselines={"grpo_group_sizes": [2, 4]}, ablations={"ipo": {"steps": [10], "dpo": {"loss": "ipo"}}})
    jobs = remaining_jobs(config, "demo", None)
    # Steps of the other seed's chain, 10 and 20, and of the baseline with G=4, 30 with both seeds.
    assert sorted(job.completions / 16 for job in jobs["train_grpo"]) == [10, 20, 30, 30]
    assert len(jobs["harvest_rollouts"]) == 3 * 2
    assert len(jobs["train_dpo"]) == 3 * 2 + 2
    assert len(jobs["evaluate"]) == 1 + 3 * 2 + 2 * 2 + 2
    alone = remaining_jobs(config, "demo", (2, 10))
    assert [job.completions / 16 for job in alone["train_grpo"]] == [10]
    assert {stage: len(found) for stage, found in alone.items() if stage != "train_grpo"} == {
        "harvest_rollouts": 2,
        "train_dpo": 2,
        "evaluate": 1 + 2,
    }
    assert sorted(job.completions / 16 for job in remaining_jobs(config, "demo", (2, 30))["train_grpo"]) == [10, 20]
    separate = small(warmup={"steps": [0, 10, 30], "schedule": "per_k"})
    assert [job.completions / 16 for job in remaining_jobs(separate, "demo", (2, 30))["train_grpo"]] == [30]
    assert remaining_jobs(config, "demo", (0, 0))["train_grpo"] == []


def test_an_ablation_with_a_warmup_of_its_own_is_not_forgotten() -> None:
    other = {"warmup": {"mask_truncated": True}, "steps": [10, 30], "policies": ["dpo", "grpo"]}
    jobs = remaining_jobs(small(baselines={"grpo_group_sizes": [2]}, ablations={"masked": other}), "demo", None)
    assert sorted(job.completions / 16 for job in jobs["train_grpo"]) == [10, 10, 10, 20, 20, 20]
    assert len(jobs["harvest_rollouts"]) == 3 * 2 + 2 * 2
    assert len(jobs["train_dpo"]) == 3 * 2 + 2 * 2
    alone = remaining_jobs(small(ablations={"masked": other | {"policies": ["grpo"]}}), "demo", None)
    assert len(alone["harvest_rollouts"]) == 3 * 2


def test_a_warmup_that_stops_by_itself_counts_with_all_its_steps() -> None:
    auto = {"warmup": {"steps": [0, 10, 30], "auto": {"every": 5, "prompts": 50}}}
    plain, more = (remaining_jobs(small(**own), "demo", None) for own in ({"warmup": {"steps": [0, 10, 30]}}, auto))
    added = {stage: len(more[stage]) - len(plain[stage]) for stage in plain}
    assert added == {"train_grpo": 2, "harvest_rollouts": 2, "train_dpo": 2, "evaluate": 2}
    added_jobs = more["train_grpo"][len(plain["train_grpo"]) :]
    assert sum(job.completions for job in added_jobs) == 2 * 30 * 16


def test_an_entry_that_is_trained_on_fresh_rollouts_counts_its_own() -> None:
    """Two seeds, updates 1 to 5 and 6 to 20 of 8 prompts with 4 rollouts each; DPO on both harvests."""
    online = {"regime": "semi_online_dpo", "steps": [5, 20], "prompts_per_update": 8, "responses": 4}
    config = small(regimes={"online": online | {"policies": ["online", "dpo"]}})
    jobs = remaining_jobs(config, "demo", None)
    plain = remaining_jobs(small(), "demo", None)
    assert [job.completions for job in jobs["train_semi_online_dpo"]] == [160, 160, 480, 480]
    assert {stage: len(jobs[stage]) - len(found) for stage, found in plain.items()} == {
        "train_grpo": 0,
        "harvest_rollouts": 4,
        "train_dpo": 4,
        "evaluate": 8,
    }
    assert "train_semi_online_dpo" not in remaining_jobs(config, "demo", (2, 10))
    hub = {"demo": {"source": "hub", "id": "a/b", "revision": "a" * 40}}
    measured = rates(config, "demo", bills(), 10)
    # 7.6 billion parameters: updates of 32 completions of 1024 tokens, drawn at once, trained on with 256 of a prompt.
    update = 1024 * (0.07 + 15.2e9 / 3e12) + 8 * 7.6e9 * 32 * 1280 / 3.5e14 + 1
    for models, hours in (({}, None), ({"models": hub}, (4 * 30 + 40 * update) / 3600)):
        table = hours_advice(small(regimes={"online": online}, **models), "demo", measured, None, {"held-out": 50})
        row = table[table["stage"] == "train_semi_online_dpo"].iloc[0]
        assert row["n_jobs"] == 4
        assert pd.isna(row["device_hours"]) if hours is None else row["device_hours"] == pytest.approx(hours)


def test_hours_worked_out_by_hand() -> None:
    measured = Rates(3.0 / 16, 2.0, 0.001, {(0, 0): 40.0, (2, 10): 48.0, (2, 30): 56.0}, 6.0)
    config = small(baselines={"grpo_group_sizes": [2]})
    table = hours_advice(config, "demo", measured, (2, 10), {"held-out": 50}).set_index(["scope", "stage"])
    hours = table["device_hours"] * 3600
    assert hours["grid", "train_grpo"] == pytest.approx(3 * 30)
    assert hours["grid", "harvest_rollouts"] == pytest.approx(2 * (3 * 2 + 0.1 * (40 + 48 + 56)))
    assert hours["grid", "evaluate"] == pytest.approx(9 * (2 + 50 * 6 / 1000))
    assert hours["advised K", "train_grpo"] == pytest.approx(3 * 10)
    assert hours["advised K", "harvest_rollouts"] == pytest.approx(2 * (2 + 4.8))
    # Nobody has measured DPO on a model of one's own; for a pretrained one there is a guess: 150 pairs of 512 tokens.
    assert pd.isna(hours["grid", "train_dpo"])
    assert table.loc[("grid", "train_dpo"), "source"] == "not measured yet"
    assert "6 train_dpo, which nobody has measured" in hours_words(table.reset_index())
    hub = {"demo": {"source": "hub", "id": "a/b", "revision": "a" * 40}}
    pretrained = hours_advice(small(models=hub), "demo", measured, None, {"held-out": 50})
    row = pretrained[pretrained["stage"] == "train_dpo"].iloc[0]
    dpo = 30 + 8 * 7.6e9 * 2 * 150 * 512 / 3.5e14
    assert (row["device_hours"], row["source"]) == (pytest.approx(6 * dpo / 3600), "guess")
    assert set(pretrained["scope"]) == {"grid"}


def test_steps_of_so_many_prompts_cost_more_where_groups_are_larger() -> None:
    warmup = {"steps": [0, 10], "prompts_per_step": 8}
    baselines = {"grpo_group_sizes": [2, 4]}
    rate = rates(small(warmup=warmup), "demo", {key: bill for key, bill in bills().items() if key.k <= 10}, 10)
    assert rate.seconds_per_completion == pytest.approx(30 / 10 / 16)
    jobs = remaining_jobs(small(warmup=warmup, baselines=baselines), "demo", None)["train_grpo"]
    assert sorted((job.group_size, job.completions) for job in jobs) == [(2, 160), (4, 320), (4, 320)]


def test_recorded_completions_have_nothing_to_train() -> None:
    config = small(models={"demo": {"source": "recorded", "path": "file"}}, warmup={"steps": [0, 10]})
    jobs = remaining_jobs(config, "demo", None)
    assert {stage: len(found) for stage, found in jobs.items()} == {
        "train_grpo": 0,
        "harvest_rollouts": 2,
        "train_dpo": 0,
        "evaluate": 0,
    }


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


def test_what_was_predicted_beside_what_was_found() -> None:
    whole = {
        ONE: groups([(0, 8), (1, 8), (4, 8), (8, 8)]),
        TWO: groups([(4, 8), (4, 8), (3, 8), (8, 8)]),
        replace(ONE, seed=1): groups([(0, 8), (0, 8), (4, 8), (8, 8)]),
    }
    summaries = {key: informativeness(frame) for key, frame in whole.items()}
    steps = step_advice({key: success_counts(whole[key]).head(2) for key in (ONE, TWO)}, 4)
    found = harvest_check(steps, summaries, 0).set_index(["K", "metric"])
    pairs = found.loc[(0, "n_pairs")]
    assert (pairs["predicted"], pairs["found"], pairs["inside"], pairs["mean_over_seeds"]) == (2, 2, True, 1.5)
    assert (pairs["low"], pairs["high"]) == (steps["n_pairs_low"][0], steps["n_pairs_high"][0])
    best = found.loc[(25, "best_K_by_entropy")]
    assert (best["predicted"], best["found"], best["inside"]) == (25, 25, True)


def test_the_advised_k_against_the_best_one() -> None:
    steps = step_advice({ONE: counts(np.array([1, 2, 4])), TWO: counts(np.array([4, 4, 3]))}, 100)
    policies = {
        PolicyKey("demo", "dpo", 0, 0, 0): answers({f"q{i}": [i < 6] for i in range(10)}),
        PolicyKey("demo", "dpo", 2, 25, 0): answers({f"q{i}": [i < 4] for i in range(10)}),
    }
    (row,) = accuracy_check(steps, policies, "held-out").to_dict("records")
    assert (row["K"], row["metric"], row["found"]) == (25, "accuracy_minus_best_K", pytest.approx(-0.2))
    assert row["low"] < row["found"] < row["high"]
    assert row["note"].startswith("best K=0 on held-out")
    assert accuracy_check(steps, {}, "held-out").empty


def test_hours_count_every_job_once_and_not_what_ran_before() -> None:
    hours = hours_advice(small(), "demo", rates(small(), "demo", bills(), 10), None, {"held-out": 50})
    before = replace(COST, job="results/demo/seed0/grpo/g2/k10/cost", stage="train_grpo", device_s=3600.0)
    later = replace(before, job="results/demo/seed1/grpo/g2/k10/cost", device_s=7200.0)
    found = hours_check(hours, [before], [before, later, later]).set_index("metric")
    assert found.loc["device_hours_train_grpo", "found"] == 2
    assert found.loc["device_hours_evaluate", "found"] == 0
