"""Paired comparisons: against hand-computed cases and McNemar, and error rates in simulations with known truth."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, t

from g2d.analysis.comparisons import Comparison, compare, corrected
from g2d.analysis.statistics import POWER, Error, error_of_difference, holm, mean_squares, seeds_to_find
from g2d.grid.runs import Policy, Run
from g2d.tables.families import COMPARISON_COLUMNS, comparison_table
from tests.frames import answers, solved
from tests.main_policies import BASE, policy


def test_a_comparison_counts_gains_and_losses_over_seeds():
    comparison = compare(np.array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]), np.array([[1, 0, 0, 1, 0]]))
    assert (comparison.n_seeds, comparison.n_problems) == (2, 5)
    assert (comparison.difference, comparison.gained, comparison.lost) == pytest.approx((0.1, 0.3, 0.2))


def test_the_p_value_of_one_seed_by_hand():
    """Differences 0, 1, 1/2, -1, 0 and the two added questions: sum 1/2, squares 2.25 + 2, of 7 questions."""
    standard_error = math.sqrt((4.25 / 7 - (0.5 / 7) ** 2) / 7)
    one_seed = compare(np.array([[1, 1, 0.5, 0, 0]]), np.array([[1, 0, 0, 1, 0]]))
    assert one_seed.p_value == pytest.approx(2 * t.sf(0.5 / 7 / standard_error, 6))


def test_the_variances_of_two_seeds_by_hand():
    """Seeds differ by 0.2 on average, on every question alike: all of it is the seeds', nothing is noise."""
    assert mean_squares(np.array([[0.2, 0.4, 0.6], [0.4, 0.6, 0.8]])) == (
        pytest.approx(0.2**2 / 2 / 2),
        pytest.approx(0.2**2 / 3),
        pytest.approx(0),
    )
    error = error_of_difference(np.array([[0.0] * 40, [0.2] * 40]))
    assert (error.seeds, error.seed_degrees, error.noise) == (pytest.approx(0.2**2 / 2 / 2), 1, pytest.approx(0))
    assert error.standard_error**2 == pytest.approx(error.questions + error.seeds)


def test_no_differing_answer_has_an_interval_around_0():
    few = compare(np.ones((5, 100)), np.ones((5, 100)))
    many = compare(np.ones((5, 1319)), np.ones((5, 1319)))
    assert (few.difference, few.p_value, few.ci_low) == (0, 1, -few.ci_high)
    assert 0.015 < few.ci_high < 0.04  # the rule of three says 3 / 100
    assert 0.001 < many.ci_high < 0.003


@pytest.mark.parametrize("reference_seeds", [5, 1])
def test_one_differing_answer_proves_nothing(reference_seeds):
    """One of 5 x 1,319 answers differs. An earlier version had the interval [0.00003, 0.00064] beside p = 1."""
    mine = np.ones((5, 1319))
    mine[3, 700] = 0
    comparison = compare(mine, np.ones((reference_seeds, 1319)))
    assert comparison.ci_low < 0 < comparison.ci_high
    assert comparison.p_value > 0.5


answers_of_two = st.tuples(
    st.integers(1, 6), st.integers(1, 60), st.integers(0, 2**32 - 1), st.floats(0, 1), st.floats(0, 0.5), st.booleans()
)


@settings(deadline=None, max_examples=50)
@given(answers_of_two, st.integers(1, 7))
def test_an_interval_holds_0_exactly_when_its_p_is_above_5_percent(drawn, family):
    n_seeds, n_questions, seed, level, change, m0 = drawn
    rng = np.random.default_rng(seed)
    reference = rng.random((1 if m0 else n_seeds, n_questions)) < level
    policy = np.where(rng.random((n_seeds, n_questions)) < change, rng.random() < level, reference).astype(float)
    comparison = compare(policy, reference, family)
    assert (comparison.ci_low <= 0 <= comparison.ci_high) == (comparison.p_value * family >= 0.05)
    assert comparison.ci_low <= comparison.difference <= comparison.ci_high
    with_these_seeds = compare(policy.mean(axis=0, keepdims=True), reference.mean(axis=0, keepdims=True))
    assert comparison.p_value >= with_these_seeds.p_value * (1 - 1e-9)  # other seeds cannot make it surer


@settings(deadline=None, max_examples=100)
@example(0.00390625, 2, 1e-07, 1, 0.0, 1e-12)  # p is nearly 1, and no alpha lies beyond
@example(0.0078125, 2, 1e-07, 1, 0.0, 1e-09)  # p is nearly 1, and the t distribution is not accurate enough
@given(
    st.floats(1e-8, 1e-2),
    st.integers(1, 2000),
    st.sampled_from([0.0, 1e-7, 1e-4, 1e-2]),
    st.integers(1, 30),
    st.sampled_from([0.0, 1e-6, 1e-3]),
    st.floats(0, 1),
)
def test_p_is_the_level_whose_interval_ends_at_0(questions, question_degrees, seeds, seed_degrees, noise, distance):
    error = Error(distance, questions, question_degrees, seeds, min(seed_degrees, question_degrees), noise)
    p = error.p_value()
    assert error.reach(p) == pytest.approx(distance, rel=1e-6, abs=1e-9) or p == 1e-100


def trained(
    rng: np.random.Generator, n_seeds: int, spread: list[float], gain: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Answers of policies, (n_policies, n_seeds, 250), and of M0, (1, 250).

    Policies are equally good except for the second one's gain. Every training answers 8 % of the questions afresh, and
    a seed moves a policy's accuracy by its spread.
    """
    settled = rng.random(250) < 0.7

    def training(shift: float) -> np.ndarray:
        right = np.where(rng.random(250) < 0.08, rng.random(250) < 0.7, settled)
        chance = shift / 0.3 if shift > 0 else -shift / 0.7
        return np.where(rng.random(250) < chance, shift > 0, right).astype(float)

    shifts = rng.normal(0, np.array(spread)[:, None], (len(spread), n_seeds))
    shifts[1] += gain
    policies = np.array([*map(training, shifts.flat)]).reshape(len(spread), n_seeds, 250)
    return policies, training(0)[None]


def p_values(rng: np.random.Generator, n_seeds: int, spread: list[float], against_m0: bool) -> list[float]:
    """p of all policies against M0, or of the others against the first."""
    policies, m0 = trained(rng, n_seeds, spread)
    reference = m0 if against_m0 else policies[0]
    tested = policies if against_m0 else policies[1:]
    return [compare(policy, reference, len(tested)).p_value for policy in tested]


@pytest.mark.parametrize("against_m0", [False, True])
@pytest.mark.parametrize(
    ("n_seeds", "spread"),
    [(1, [0.0] * 4), (2, [0.015] * 4), (2, [0.15] + [0.01] * 5), (5, [0.15] + [0.01] * 3), (10, [0.03] * 4)],
)
def test_no_more_than_one_family_in_twenty_of_equal_policies_has_a_winner(n_seeds, spread, against_m0):
    """Bootstrap standard errors against the normal distribution found one in 17 to 36 % of families of two seeds."""
    rng = np.random.default_rng(7)
    runs = 80
    wrong = 0
    for _ in range(runs):
        corrected = holm(p_values(rng, n_seeds, spread, against_m0))
        wrong += corrected.min() < 0.05
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.01


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
def test_seeds_that_scatter_much_more_than_those_of_others_are_called_different_in_at_most_5_percent(n_seeds):
    rng = np.random.default_rng(11)
    runs = 200
    wrong = 0
    for _ in range(runs):
        policies, _ = trained(rng, n_seeds, [0.01, 0.15])
        wrong += compare(policies[1], policies[0]).p_value <= 0.05
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.01, wrong / runs


def test_each_further_seed_adds_power():
    rng = np.random.default_rng(10)
    runs = 100
    most = 8
    n_significant = np.zeros(most + 1)
    for _ in range(runs):
        policies, _ = trained(rng, most, [0.01] * 2, 0.08)
        for n_seeds in range(2, most + 1):
            n_significant[n_seeds] += compare(policies[1, :n_seeds], policies[0, :n_seeds]).p_value * 3 <= 0.05
    power = n_significant[2:] / runs
    assert power[0] < 0.5 < power[-1]
    assert np.diff(power).min() > -0.05, power


def test_answers_that_cannot_be_paired_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 3\) cannot be paired with \(3, 3\)"):
        compare(np.zeros((2, 3)), np.zeros((3, 3)))


DPO = policy("dpo", 0)
G2D = policy("dpo", 150)
LONG = policy("dpo", 300)
GRPO = policy("grpo", 300)
WIDE = policy("grpo", 300, group_size=4)
CURVE = Policy("m", Run("grpo", "grpo", "grpo", points=((2, 150), (2, 300))), 2, 150, 0)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [  # policy, K, reference, its K, its G, whether it is primary
        (
            [BASE, DPO, G2D, LONG, GRPO, WIDE, policy("ipo", 150)],
            {
                ("dpo", 0, "base", 0, 0, False),
                ("g2d", 150, "base", 0, 0, False),
                ("g2d", 300, "base", 0, 0, False),
                ("g2d", 150, "dpo", 0, 0, True),
                ("g2d", 300, "dpo", 0, 0, True),
                ("dpo", 0, "grpo", 300, 2, False),
                ("dpo", 0, "grpo", 300, 4, False),
                ("g2d", 150, "grpo", 300, 2, False),
                ("g2d", 150, "grpo", 300, 4, False),
                ("g2d", 300, "grpo", 300, 2, False),
                ("g2d", 300, "grpo", 300, 4, False),
                ("g2d", 300, "g2d", 150, 2, False),
                ("grpo", 300, "base", 0, 0, False),
                ("ipo", 150, "g2d", 150, 2, False),
                ("ipo", 150, "base", 0, 0, False),
            },
        ),
        (  # an ablation of the warm-up is compared with GRPO as it is
            [LONG, GRPO, policy("longer/grpo", 300), policy("longer/dpo", 300)],
            {
                ("g2d", 300, "grpo", 300, 2, False),
                ("longer/grpo", 300, "grpo", 300, 2, False),
                ("longer/dpo", 300, "g2d", 300, 2, False),
            },
        ),
        (  # a warm-up that stopped automatically has the references of a fixed K
            [G2D, DPO, policy("auto/dpo", 300)],
            {
                ("g2d", 150, "dpo", 0, 0, True),
                ("g2d-auto", 300, "dpo", 0, 0, False),
                ("g2d-auto", 300, "g2d", 150, 2, False),
            },
        ),
        (  # each K against each other
            [policy("dpo", 50), policy("dpo", 100), G2D],
            {("g2d", 100, "g2d", 50, 2, False), ("g2d", 150, "g2d", 50, 2, False), ("g2d", 150, "g2d", 100, 2, False)},
        ),
        (  # GRPO before its last K is in no test
            [BASE, DPO, CURVE, GRPO],
            {
                ("dpo", 0, "base", 0, 0, False),
                ("grpo", 300, "base", 0, 0, False),
                ("dpo", 0, "grpo", 300, 2, False),
            },
        ),  # GRPO before its last K is in no test
    ],
    ids=["grid", "warm-up", "automatic", "every K", "curve"],
)
def test_families(keys, expected):
    table = comparison_table({(key, "id"): solved(i % 4) for i, key in enumerate(keys)})
    assert tuple(table.columns) == tuple(COMPARISON_COLUMNS)
    table["primary"] = table["family"] == "primary"
    assert (table.groupby("family")["family_size"].nunique() == 1).all()
    assert (table.groupby("family").size() == table.groupby("family")["family_size"].first()).all()
    names = ["policy", "K", "reference", "reference_K", "reference_group_size", "primary"]
    rows = table[names].fillna({"reference_group_size": 0}).itertuples(index=False, name=None)
    assert set(rows) == expected
    assert not table.duplicated().any()


def test_only_k_against_k_0_is_corrected():
    right = {0: 10, 150: 16, 300: 13}
    evaluations = {(BASE, "id"): solved(10, of=60)}
    for k, n in right.items():
        evaluations[policy("dpo", k), "id"] = solved(n, of=60)
    table = comparison_table(evaluations).set_index(["reference", "K"])

    def alone(k: int) -> Comparison:
        return compare((np.arange(60)[None] < right[k]).astype(float), (np.arange(60)[None] < 10).astype(float))

    for k in (150, 300):
        assert table.loc[("base", k), "p_value"] == pytest.approx(alone(k).p_value)
        assert table.loc[("base", k), "ci_low"] == pytest.approx(alone(k).ci_low)
    assert table.loc[("dpo", 150), "p_value"] == pytest.approx(2 * alone(150).p_value)
    assert table.loc[("dpo", 150), "ci_low"] <= 0 < alone(150).ci_low
    assert table.loc[("dpo", 300), "p_value"] == pytest.approx(max(alone(300).p_value, 2 * alone(150).p_value))


def test_shares_of_the_error_by_hand():
    """Seeds that differ by the same amount on every question have no noise of single answers."""
    steady = compare(np.array([[0.2] * 40, [0.4] * 40]), np.zeros((2, 40)))
    assert steady.seed_share == pytest.approx(0.2**2 / 4 / steady.standard_error**2)
    assert steady.seed_share + steady.problem_share == pytest.approx(1)
    one_seed = compare(np.array([[1.0, 0, 1, 0]]), np.zeros((1, 4)))
    assert (one_seed.seed_share, one_seed.problem_share) == (0, pytest.approx(1))


def test_policies_without_a_common_seed_are_refused():
    evaluations = {(policy("dpo", 0, 0), "id"): solved(2), (policy("dpo", 150, 1), "id"): solved(2)}
    with pytest.raises(ValueError, match=r"m/seed1/dpo/g2/k150 and m/seed0/dpo/g0/k0 have no seed in common"):
        comparison_table(evaluations)


def test_policies_with_unequal_seeds_are_compared_over_those_that_both_have():
    common = {}
    for seed, n in enumerate((2, 3, 4)):
        common[policy("dpo", 0, seed), "id"] = solved(n)
        common[policy("dpo", 150, seed), "id"] = solved(n + 1)
    further = {(policy("dpo", 150, 3), "id"): solved(10), (policy("dpo", 150, 4), "id"): solved(10)}
    table = comparison_table(common | further)
    assert list(table["n_seeds"]) == [3]
    pd.testing.assert_frame_equal(table, comparison_table(common))


def test_samples_of_a_problem_are_one_unit():
    mine = answers({"a": [1, 1, 1, 0], "b": [1, 0, 0, 0]})
    theirs = answers({"a": [0, 0, 0, 0], "b": [1, 0, 0, 0]})
    (row,) = comparison_table({(BASE, "id"): theirs, (policy("dpo", 0), "id"): mine}).to_dict("records")
    assert row["difference"] == pytest.approx(3 / 8)
    assert row["p_value"] > 0.3


def test_the_range_of_seeds_has_the_right_number_in_19_grids_of_20():
    """Seeds scatter by 5 points on every question alike, so the number that finds 5 points is known."""
    rng = np.random.default_rng(4)
    runs = 60
    missed = 0
    needed = 11
    assert Error(0.0, 1e-5, 501, 0.05**2 / 10, 9).power(0.05, 0.05) < POWER
    assert Error(0.0, 1e-5, 501, 0.05**2 / 11, 10).power(0.05, 0.05) >= POWER
    for _ in range(runs):
        scattered = rng.normal(0, 0.05, 5).var(ddof=1) / 5
        fewest, most = seeds_to_find(0.05, Error(0.0, 1e-5, 501, scattered, 4), 0.05)
        missed += not fewest <= needed <= most
    assert binomtest(missed, runs, 0.05, alternative="greater").pvalue > 0.01


def test_members_that_could_not_be_compared_count_in_the_correction():
    member = compare(np.array([[1.0] * 9 + [0.0] * 21]), np.zeros((1, 30)), 4)
    [alone] = corrected([member])
    [one_of_four] = corrected([member], missing=3)
    assert alone.p_value == member.p_value
    assert one_of_four.p_value == pytest.approx(4 * member.p_value)
