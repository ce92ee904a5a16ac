"""The frontier of accuracy against cost: statuses by hand, as laws and in simulations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from g2d.analysis.comparisons import compare
from g2d.analysis.crossed import SeedPool, stable
from g2d.analysis.frontier import BEATEN, CHEAPEST, ON, OPEN, Standing, cost_interval, on_axis
from g2d.analysis.margins import Differences, Pool, smallest_margins


def enough(differences: Differences, margin: float) -> list[bool]:
    return [policy.enough for policy in smallest_margins(differences, margin)]


def standings(
    costs: Sequence[float], answers: Sequence[np.ndarray], margin: float = 0.02, pool: Pool = lambda i, j: None
) -> list[Standing]:
    differences = Differences(answers, pool)
    return on_axis([np.array([float(cost)]) for cost in costs], differences, enough(differences, margin))


def answers(*rights: int, n: int = 200) -> list[np.ndarray]:
    """One seed each; a policy has the first so many of n questions right, so the better one has all of the other's."""
    return [(np.arange(n) < right)[None].astype(float) for right in rights]


def test_three_policies_by_hand() -> None:
    standing = standings([0, 1, 2], answers(80, 160, 110))
    assert [policy.status for policy in standing] == [CHEAPEST, ON, BEATEN]  # M0 has nothing to be better than
    assert [policy.beaten_by for policy in standing] == [None, None, 1]
    assert [policy.cheapest_enough for policy in standing] == [False, True, False]
    assert math.isnan(standing[0].p_on)
    assert standing[0].p_beaten == 1
    best, worse, m0 = (outcomes[0] for outcomes in (answers(160), answers(110), answers(80)))
    # Corrected over the two that are undercut: the smaller p counts twice, the larger once.
    p_value = compare(best, m0).p_value
    assert standing[1].p_on == pytest.approx(2 * p_value)
    assert standing[2].p_beaten == pytest.approx(2 * 2 * compare(best, worse).p_value)
    assert standing[2].p_on == 1
    # Two policies are undercut, the last by two: of four statements the interval holds this one with 5 % / 4.
    assert standing[2].beaten == pytest.approx(-0.25)
    both = compare(worse, best, family=4)
    assert (standing[2].beaten_low, standing[2].beaten_high) == pytest.approx((both.family_low, both.family_high))
    assert math.isnan(standing[1].beaten_low)


def test_nothing_is_said_of_policies_that_answer_alike() -> None:
    standing = standings([0, 1, 2], answers(100, 101, 100), margin=0.05)
    assert [policy.status for policy in standing] == [CHEAPEST, OPEN, OPEN]
    assert [policy.cheapest_enough for policy in standing] == [True, False, False]
    assert not any(policy.cheapest_enough for policy in standings([0, 1, 2], answers(100, 101, 100), margin=0.001))


def test_of_equal_costs_each_undercuts_the_other_and_a_single_policy_is_the_frontier() -> None:
    assert [policy.status for policy in standings([1, 1], answers(60, 140))] == [BEATEN, ON]
    assert [policy.status for policy in standings([1, 1], answers(100, 100))] == [OPEN, OPEN]
    (alone,) = standings([3], answers(100))
    assert (alone.status, alone.cheapest_enough) == (CHEAPEST, True)


def test_a_policy_is_cheaper_only_where_the_costs_of_its_seeds_say_so() -> None:
    """5.2 +- .4 s is not shown to undercut 5.6 +- .5 s: neither beats the other, and neither is on the frontier unless
    it is better than the other. Two hours are less than four."""
    outcomes = [np.repeat(one, 3, axis=0) for one in answers(80, 160)]
    differences = Differences(outcomes)

    def on(first: list[float], second: list[float]) -> list[tuple[str, bool]]:
        standing = on_axis([np.array(first), np.array(second)], differences, enough(differences, 0.6))
        return [(one.status, one.cheapest_enough) for one in standing]

    assert on([5.6, 5.1, 6.1], [5.2, 4.8, 5.6]) == [(BEATEN, False), (CHEAPEST, True)]  # seed by seed it is cheaper
    assert on([5.6, 5.1, 6.1], [5.2, 5.6, 4.8]) == [(OPEN, True), (ON, True)]
    assert on([2.1, 2.0, 1.9], [4.0, 4.1, 3.9]) == [(CHEAPEST, True), (ON, False)]
    assert cost_interval(np.array([4.8, 5.2, 5.6])) == pytest.approx((5.2 - 0.9937, 5.2 + 0.9937), abs=1e-4)
    assert cost_interval(np.array([3.0])) == (3, 3)


def test_of_eight_equally_cheap_policies_one_is_called_dearer_in_at_most_5_percent() -> None:
    """If each pair is tested at 5 %, some good enough policy is dropped as dearer in 68 %."""
    rng, runs, wrong = np.random.default_rng(12), 200, 0
    same = Differences([np.repeat(one, 3, axis=0) for one in answers(*[100] * 8)])
    good = enough(same, 0.5)
    for _ in range(runs):
        standing = on_axis([rng.normal(10, 0.5, 3) for _ in range(8)], same, good)
        wrong += not all(one.cheapest_enough for one in standing)
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.01, wrong / runs


def test_m0_is_cheaper_than_whatever_cost_something() -> None:
    base, *others = answers(*[100] * 8)
    differences = Differences([base, *(np.repeat(one, 3, axis=0) for one in others)])
    costs = [np.zeros(1), *(np.array([1.0, 6.0, 11.0]) + i for i in range(7))]
    standing = on_axis(costs, differences, enough(differences, 0.5))
    assert [one.cheapest_enough for one in standing] == [True] + [False] * 7
    assert standing[0].status == CHEAPEST


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 6), seeds=st.integers(1, 3))
def test_laws(seed: int, n: int, seeds: int) -> None:
    """The cheapest is on the frontier, nobody is on it and beaten, and only the order of costs counts."""
    rng = np.random.default_rng(seed)
    outcomes = [(rng.random((1 if i == 0 else seeds, 60)) < rng.uniform(0.2, 0.9)).astype(float) for i in range(n)]
    costs = [np.array([cost]) for cost in rng.permutation(n).astype(float)]
    differences = Differences(outcomes)
    standing = on_axis(costs, differences, enough(differences, 0.02))
    assert standing[int(np.argmin(costs))].status == CHEAPEST
    squeezed = on_axis([np.exp(cost) for cost in costs], differences, enough(differences, 0.02))
    assert repr(standing) == repr(squeezed)  # NaN is not equal to NaN
    for i, one in enumerate(standing):
        assert (one.beaten_by is not None) == (one.status == BEATEN) == (one.p_beaten <= 0.05)
        if one.beaten_by is not None:
            assert costs[one.beaten_by] <= costs[i]
            assert outcomes[one.beaten_by].mean() > outcomes[i].mean()
            assert one.beaten_low < one.beaten < one.beaten_high <= 0


N_QUESTIONS = 200


def grid(rng: np.random.Generator, accuracies: list[float], n_seeds: int, seed_effect: float) -> list[np.ndarray]:
    """Policies of the given true accuracies on questions of different difficulty; the first is M0, without seeds."""
    difficulty = rng.normal(0, 0.15, N_QUESTIONS)
    difficulty -= difficulty.mean()
    policies = []
    for i, accuracy in enumerate(accuracies):
        n = 1 if i == 0 else n_seeds
        shift = rng.normal(0, 0.05, N_QUESTIONS)
        chance = accuracy + difficulty + (shift - shift.mean()) + rng.normal(0, seed_effect, (n, 1)) * (i > 0)
        policies.append((rng.random((n, N_QUESTIONS)) < chance.clip(0, 1)).astype(float))
    return policies


def pool_of(outcomes: list[np.ndarray]) -> Pool:
    """Return the pools of `g2d.tables.families.Paired`; the first policy is M0."""
    means = np.stack([policy.mean(axis=1) for policy in outcomes[1:]])
    inside = stable(means)
    return lambda i, j: SeedPool(means[inside], all(inside[k - 1] for k in (i, j) if k)) if means.shape[1] > 1 else None


@pytest.mark.parametrize(
    ("n_seeds", "seed_effect", "truth", "false_on"),
    [
        (3, 0.015, [0.5, 0.5, 0.5, 0.5, 0.5], {1, 2, 3, 4}),  # accuracy does not rise with costs: only M0 is on it
        (2, 0.01, [0.4, 0.6, 0.6, 0.6, 0.6], {2, 3, 4}),
        (1, 0.0, [0.4, 0.6, 0.55, 0.6, 0.65], {2, 3}),
        (5, 0.015, [0.4, 0.6, 0.55, 0.6, 0.65], {2, 3}),
    ],
)
def test_false_claims_about_the_frontier_are_rare(
    n_seeds: int, seed_effect: float, truth: list[float], false_on: set[int]
) -> None:
    rng = np.random.default_rng(1)
    runs, wrong = 150, 0
    for _ in range(runs):
        outcomes = grid(rng, truth, n_seeds, seed_effect)
        standing = standings(range(5), outcomes, pool=pool_of(outcomes))
        on = {i for i, one in enumerate(standing) if one.status == ON}
        beaten = {i for i, one in enumerate(standing) if one.status == BEATEN}
        truly_beaten = {i for i in range(5) if any(truth[j] > truth[i] for j in range(i))}
        wrong += bool(on & false_on or beaten - truly_beaten)
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.001
