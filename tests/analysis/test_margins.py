"""How much worse than the best a policy can be: bounds by hand, as laws, and how often they are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from g2d.analysis.comparisons import compare
from g2d.analysis.margins import Differences, smallest_margins
from tests.analysis.test_frontier import answers, grid, pool_of


def test_by_hand() -> None:
    outcomes = answers(80, 160, 110)
    smallest = smallest_margins(Differences(outcomes), 0.05)
    assert [one.behind for one in smallest] == pytest.approx([0.4, -0.25, 0.25])
    # Two others, so each bound is one-sided at 2.5 %: the end of a two-sided 95 % interval.
    assert smallest[0].margin_shown == pytest.approx(compare(outcomes[1], outcomes[0]).ci_high)
    assert smallest[2].margin_shown == pytest.approx(compare(outcomes[1], outcomes[2]).ci_high)
    assert smallest[1].margin_shown == 0  # it is shown to be the best
    assert [one.enough for one in smallest] == [False, True, False]
    (alone,) = smallest_margins(Differences(answers(80)), 0.05)
    assert (alone.behind, alone.margin_shown, alone.enough) == (0, 0, True)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 6), seeds=st.integers(1, 4), margin=st.floats(0.01, 0.5))
def test_laws(seed: int, n: int, seeds: int, margin: float) -> None:
    rng = np.random.default_rng(seed)
    outcomes = [(rng.random((1 if i == 0 else seeds, 60)) < rng.uniform(0.4, 0.7)).astype(float) for i in range(n)]
    differences = Differences(outcomes)
    smallest = smallest_margins(differences, margin)
    for one in smallest:
        assert one.margin_shown >= max(one.behind * 60 / 62, 0)  # one question of either kind is added
        if abs(one.margin_shown - margin) > 1e-9:
            assert one.enough == (one.margin_shown < margin)
    for one in smallest_margins(differences, 1.0):
        assert one.enough or one.margin_shown == 1


@pytest.mark.parametrize(
    ("n_seeds", "seed_effect", "truth"),
    [(1, 0.0, [0.5] * 4), (2, 0.015, [0.5, 0.5, 0.58, 0.55]), (5, 0.015, [0.5] * 4), (8, 0.015, [0.5] * 4)],
)
def test_all_bounds_hold_at_once_in_19_experiments_of_20(n_seeds: int, seed_effect: float, truth: list[float]) -> None:
    rng = np.random.default_rng(5)
    runs, wrong = 150, 0
    for _ in range(runs):
        outcomes = grid(rng, [0.4, *truth], n_seeds, seed_effect)
        pool = pool_of(outcomes)
        smallest = smallest_margins(Differences(outcomes[1:], lambda i, j, pool=pool: pool(i + 1, j + 1)), 0.02)  # type: ignore[misc]
        wrong += any(max(truth) - accuracy > one.margin_shown for accuracy, one in zip(truth, smallest, strict=True))
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.001
