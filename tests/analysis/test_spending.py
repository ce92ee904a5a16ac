"""Boundaries of group-sequential tests: values published for Lan-DeMets spending, and the laws that they follow."""

import numpy as np
import pytest
from scipy.stats import norm

from g2d.analysis.spending import boundaries, nominal_level


@pytest.mark.parametrize(
    ("spending", "published"),
    [  # five equal looks, two-sided 5 %: Reboussin, DeMets, Kim and Lan (2000), as ldbounds and gsDesign print them
        ("obrien_fleming", [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]),
        ("pocock", [2.4380, 2.4268, 2.4101, 2.3966, 2.3859]),
    ],
)
def test_boundaries_of_five_equal_looks_are_those_published(spending, published):
    assert boundaries((0.2, 0.4, 0.6, 0.8, 1.0), 0.05, spending) == pytest.approx(published, abs=1e-3)
    assert boundaries((1.0,), 0.05, spending) == pytest.approx([norm.isf(0.025)])  # one look is the fixed test


def test_a_look_without_new_information_has_the_level_of_the_look_before_it():
    assert nominal_level([0.6, 0.6], 0.05, "pocock") == nominal_level([0.6], 0.05, "pocock")


@pytest.mark.parametrize("power", [1.0, 2.0])
@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
def test_looks_that_share_most_of_their_information_err_together_as_said(spending, power):
    fractions = np.array([0.6, 0.7, 0.9, 1.0])
    steps = np.random.default_rng(0).normal(size=(100_000, 4)) * np.sqrt(np.diff(fractions, prepend=0))
    z = np.abs(steps.cumsum(axis=1)) / np.sqrt(fractions)
    crossed = (z >= boundaries(tuple(fractions), 0.05, spending, power)).any(axis=1).mean()
    assert crossed == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 100_000))
