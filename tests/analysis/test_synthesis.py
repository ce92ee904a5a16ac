"""The meta-analysis against published numbers, by hand, and in simulations; the table that pools a grid's studies."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, t

from g2d.analysis.synthesis import pool_studies
from g2d.experiment.keys import PolicyKey
from g2d.tables.synthesis import STUDY, synthesis_table

# Thirteen trials of the BCG vaccine (Colditz et al. 1994; dat.bcg in R's metafor): cases and others, with and without.
BCG = np.array(
    [
        *([4, 119, 11, 128], [6, 300, 29, 274], [3, 228, 11, 209], [62, 13536, 248, 12619], [33, 5036, 47, 5761]),
        *([180, 1361, 372, 1079], [8, 2537, 10, 619], [505, 87886, 499, 87892], [29, 7470, 45, 7232]),
        *([17, 1699, 65, 1600], [186, 50448, 141, 27197], [5, 2493, 3, 2338], [27, 16886, 29, 17825]),
    ]
)


def test_published_trials() -> None:
    """metafor: rma(yi, vi, data=escalc("RR", ...), method="DL") prints -0.7141, se 0.1787, tau^2 0.3088, I^2 92.12 %,
    Q 152.2330, and 0.1807 for the standard error with test="knha"."""
    a, b, c, d = BCG.T
    pooled = pool_studies(np.log(a / (a + b)) - np.log(c / (c + d)), 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))
    assert round(pooled.effect, 4) == -0.7141
    assert round(pooled.standard_error, 4) == 0.1807
    assert round(pooled.tau**2, 4) == 0.3088
    assert round(100 * pooled.i_squared, 2) == 92.12
    assert pooled.p_heterogeneity < 1e-20
    reach = t.ppf(0.975, 11) * math.sqrt(0.30876 + 0.18070**2)
    assert pooled.prediction(0.05) == pytest.approx((-0.71412 - reach, -0.71412 + reach), abs=1e-4)


def test_studies_that_agree_by_hand() -> None:
    """Effects of 1, 2 and 3 with variance 4: they scatter by less than their errors, so tau is 0.
    Hartung and Knapp's factor of 1/4 is raised to 1."""
    pooled = pool_studies([1.0, 2.0, 3.0], [4.0, 4.0, 4.0])
    assert (pooled.effect, pooled.tau, pooled.i_squared) == (2.0, 0.0, 0.0)
    assert pooled.standard_error == pytest.approx(math.sqrt(4 / 3))
    assert pooled.interval(0.05)[1] == pytest.approx(2 + t.ppf(0.975, 2) * math.sqrt(4 / 3))
    low = pooled.interval(pooled.p_value)[0]
    assert low == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="at least 3"):
        pool_studies([1.0, 2.0], [1.0, 1.0])


@pytest.mark.parametrize("n", [3, 6])
@pytest.mark.parametrize("tau", [0.0, 0.02])
def test_the_interval_covers_the_mean_and_the_prediction_another_study(n: int, tau: float) -> None:
    rng, runs, covered, predicted = np.random.default_rng(0), 400, 0, 0
    for _ in range(runs):
        variances = rng.uniform(0.01, 0.03, n) ** 2
        truth = rng.normal(0.03, tau, n + 1)
        pooled = pool_studies(rng.normal(truth[:n], np.sqrt(variances)), variances)
        low, high = pooled.interval(0.05)
        covered += low <= 0.03 <= high
        low, high = pooled.prediction(0.05)
        predicted += low <= truth[n] <= high
    assert binomtest(covered, runs, 0.95, alternative="less").pvalue > 0.001
    assert predicted / runs > 0.87


def test_benchmarks_that_share_their_trainings_are_no_independent_studies() -> None:
    """Seeds move eight benchmarks of one model together: the mean's interval covers only with the shared part."""
    rng, runs, n, covered, naive = np.random.default_rng(1), 400, 8, 0, 0
    questions, seeds = np.full(n, 0.015**2), np.full(n, 0.012**2)
    for _ in range(runs):
        effects = 0.02 + rng.normal(0, 0.012) + rng.normal(0, 0.015, n)
        low, high = pool_studies(effects, questions + seeds, seeds, ["m"] * n).interval(0.05)
        covered += low <= 0.02 <= high
        low, high = pool_studies(effects, questions + seeds).interval(0.05)
        naive += low <= 0.02 <= high
    assert binomtest(covered, runs, 0.95, alternative="less").pvalue > 0.001
    assert naive / runs < 0.9


def evaluations(n_models: int, n_benchmarks: int, gain: float) -> dict[tuple[PolicyKey, str], pd.DataFrame]:
    rng, answers_of = np.random.default_rng(2), {}
    for model in range(n_models):
        keys = [PolicyKey(f"m{model}", "base", 0, 0, None)]
        keys += [PolicyKey(f"m{model}", "dpo", 2 if k else 0, k, seed) for k in (0, 10, 20) for seed in (0, 1)]
        for benchmark in range(n_benchmarks):
            for key in keys:
                right = rng.random(300) < 0.5 + gain * (key.k > 0)
                rows = {"problem_id": [f"p{i:03d}" for i in range(300)], "reward": right.astype(float)}
                answers_of[key, f"b{benchmark}"] = pd.DataFrame(rows)
    return answers_of


@pytest.mark.parametrize(
    ("grid", "over"),
    [
        ((1, 2), []),
        ((1, 3), ["3 benchmarks"]),
        ((2, 2), ["2 benchmarks"]),
        ((3, 1), ["models, b0"]),
        ((3, 2), ["models, b0", "models, b1", "models, mean of their benchmarks"]),
    ],
)
def test_what_is_pooled(grid: tuple[int, int], over: list[str]) -> None:
    table = synthesis_table(evaluations(*grid, gain=0.2))
    pooled = table[table["over"] != STUDY]
    assert list(dict.fromkeys(pooled["over"])) == over
    assert len(pooled) == 2 * len(over)  # two K against DPO at K=0; there is no GRPO
    if over:
        assert (pooled["family_size"] == 2).all()
        assert pooled["difference"].between(0.1, 0.3).all()
        assert ((pooled["p_holm"] <= 0.05) == (pooled["family_low"] >= 0)).all()
        assert (pooled["prediction_low"] < pooled["ci_low"]).all()
        studies = table[table["over"] == STUDY]
        assert len(studies) == 2 * grid[0] * grid[1]


def test_no_interval_has_what_no_difference_of_accuracies_can_be() -> None:
    gains = [evaluations(1, 1, gain=gain) for gain in (-0.4, 0.0, 0.4)]
    answers_of = {
        (replace(key, model=f"m{n}"), name): rows for n, own in enumerate(gains) for (key, name), rows in own.items()
    }
    table = synthesis_table(answers_of)
    pooled = table[table["over"] != STUDY]
    assert (pooled[["family_low", "prediction_low"]] == -1).all(axis=None)
    assert (pooled[["family_high", "prediction_high"]] == 1).all(axis=None)
