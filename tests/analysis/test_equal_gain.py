"""The comparison at equal gain: by hand, its refusals, and the coverage of its interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binomtest

from g2d.analysis.equal_gain import at_equal_gain

GAIN = np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3])
ONLINE = np.array([True, True, True, False, False, False])


def test_ratio_and_test_are_those_of_least_squares() -> None:
    means = np.array([1.0, 2.0, 1.5, 2.0, 3.0, 2.2])
    design = np.column_stack([np.ones(6), GAIN, ONLINE])
    coefficients, (squares,), *_ = np.linalg.lstsq(design, np.log(means), rcond=None)
    error = np.sqrt(squares / 3 * np.linalg.inv(design.T @ design)[2, 2])
    estimate = at_equal_gain(means, GAIN, ONLINE)
    assert (estimate.status, estimate.ratio) == ("compared", pytest.approx(np.exp(coefficients[2])))
    assert estimate.p_value == pytest.approx(2 * stats.t.sf(abs(coefficients[2]) / error, 3))
    higher = np.array([0.2, 0.3, 0.4, 0.1, 0.2, 0.3])  # online policies gain more, and are as far away at equal gain
    assert at_equal_gain(np.exp(9 * higher), higher, ONLINE).ratio == pytest.approx(1)


def test_few_policies_have_a_ratio_and_no_test() -> None:
    estimate = at_equal_gain(np.array([1.0, 2.0, 3.0, 6.0]), GAIN[[0, 1, 3, 4]], ONLINE[[0, 1, 3, 4]])
    assert (estimate.status, estimate.ratio) == ("not tested", pytest.approx(1 / 3))
    assert np.isnan([estimate.ratio_low, estimate.p_value]).all()


@pytest.mark.parametrize(
    ("gain", "online", "status"),
    [
        (GAIN, np.array([True, False, False, False, False, False]), "too few policies"),
        (GAIN, np.ones(6, dtype=bool), "too few policies"),
        (np.array([0.5, 0.6, 0.7, 0.1, 0.2, 0.3]), ONLINE, "no common gain"),
    ],
)
def test_what_cannot_be_compared_is_not(gain: np.ndarray, online: np.ndarray, status: str) -> None:
    estimate = at_equal_gain(np.ones(6), gain, online)
    assert estimate.status == status
    assert np.isnan([estimate.ratio, estimate.p_value]).all()
    nobody = at_equal_gain(np.array([]), np.array([]), np.array([], dtype=bool))  # all policies answer as M0 does
    assert nobody.status == "too few policies"


@pytest.mark.parametrize("per_kind", [3, 6])
def test_policies_that_differ_among_themselves_seldom_make_an_effect(per_kind: int) -> None:
    """A test that takes policies as given found an effect in 22 to 29 % (standard deviation of log KL .3)."""
    rng, runs, missed = np.random.default_rng(0), 500, 0
    online, gain = np.repeat([True, False], per_kind), np.tile(np.linspace(0.1, 0.3, per_kind), 2)
    for _ in range(runs):
        log = 5 * gain + rng.normal(0, 0.3, 2 * per_kind) + np.where(online, np.log(0.5), 0.0)
        estimate = at_equal_gain(np.exp(log), gain, online)
        missed += not estimate.ratio_low <= 0.5 <= estimate.ratio_high
    assert binomtest(missed, runs, 0.05, alternative="greater").pvalue > 0.01
