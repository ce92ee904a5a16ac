"""H and mu with the bias of eight rollouts removed, against simulations whose truth is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from g2d.analysis.informativeness import GRID, binary_entropy, corrected, mixing_distribution

PRIORS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "skewed": lambda rng, n: rng.beta(0.5, 0.8, n),
    "middle": lambda rng, n: rng.beta(2, 2, n),
    "two kinds": lambda rng, n: np.where(rng.random(n) < 0.5, rng.beta(8, 40, n), rng.beta(40, 8, n)),
    "some never, some always": lambda rng, n: np.where(
        rng.random(n) < 0.4, rng.integers(0, 2, n).astype(float), rng.beta(2, 2, n)
    ),
}


def counts(p: np.ndarray, rng: np.random.Generator, n: int = 8) -> pd.DataFrame:
    return pd.DataFrame({"n": n, "correct": rng.binomial(n, p)})


def truth(p: np.ndarray, n: int = 8) -> tuple[float, float]:
    p = p[(p > 0) & (p < 1)]
    weights = 1 - p**n - (1 - p) ** n
    inside = (p >= 3 / 8) & (p <= 5 / 8)
    return float(weights @ binary_entropy(p) / weights.sum()), float(weights @ inside / weights.sum())


@pytest.mark.parametrize("prior", PRIORS)
def test_the_correction_is_closer_to_the_truth_than_the_plug_in(prior):
    rng = np.random.default_rng(0)
    entropy, middle = truth(PRIORS[prior](rng, 400_000))
    found, plug_in = [], []
    for _ in range(20):
        table = counts(PRIORS[prior](rng, 1500), rng)
        found.append(corrected(table))
        share = table["correct"][table["correct"].between(1, 7)] / 8
        plug_in.append((binary_entropy(share.to_numpy()).mean(), share.between(3 / 8, 5 / 8).mean()))
    (h, mu), (plain_h, plain_mu) = np.mean(found, axis=0), np.mean(plug_in, axis=0)
    assert abs(h - entropy) < 0.5 * abs(plain_h - entropy)
    assert abs(h - entropy) < 0.02  # bits; the plug-in is off by up to 0.06
    assert abs(mu - middle) < 0.8 * abs(plain_mu - middle)


def test_many_rollouts_need_no_correction():
    rng = np.random.default_rng(1)
    p = rng.beta(2, 2, 3000)
    table = counts(p, rng, n=200)
    share = table["correct"] / 200
    entropy, _ = corrected(table)
    assert entropy == pytest.approx(binary_entropy(share[share.between(1e-9, 1 - 1e-9)].to_numpy()).mean(), abs=0.01)


def test_the_distribution_is_one_and_sees_impossible_prompts():
    rng = np.random.default_rng(2)
    table = counts(np.repeat([0.0, 0.5], 500), rng)
    weights = mixing_distribution(table)
    assert weights.sum() == pytest.approx(1)
    assert weights[GRID < 0.1].sum() == pytest.approx(0.5, abs=0.03)


def test_groups_of_different_size_and_nothing_pairable():
    mixed = pd.DataFrame({"n": [2, 8, 8], "correct": [1, 4, 0]})
    assert all(0 <= value <= 1 for value in corrected(mixed))
    assert corrected(mixed.iloc[::-1]) == corrected(mixed)
    assert corrected(pd.DataFrame({"n": [8, 8], "correct": [0, 8]})) == (None, None)
    assert corrected(pd.DataFrame({"n": [], "correct": []}, dtype="int64")) == (None, None)
