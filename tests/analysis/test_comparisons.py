"""Paired comparisons: against McNemar and brute force by hand, and error rates in simulations with known truth."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from g2d.comparisons import cohens_h, compare, minimum_detectable, sign_flip_p
from g2d.tables import COMPARISON_COLUMNS, comparison_table

from .frames import answers
from .test_tables import BASE, policy, solved


def test_a_comparison_by_hand():
    found = compare(np.array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]), np.array([[1, 0, 0, 1, 0]]))
    assert (found.n_seeds, found.n_problems) == (2, 5)
    assert found.difference == pytest.approx(0.1)
    assert (found.gained, found.lost) == (pytest.approx(0.3), pytest.approx(0.2))
    assert found.ci_low <= 0.1 <= found.ci_high
    # Questions differ by 0, 2, 1, -2, 0 answers: every one of the 8 sign patterns has |sum| >= 1.
    assert found.p_questions == 1
    assert found.minimum_detectable == pytest.approx(2.8016 * found.standard_error, rel=1e-4)


def test_equal_policies_do_not_differ():
    same = np.array([[1, 0, 1]])
    found = compare(same, same)
    assert (found.difference, found.p_value, found.p_questions, found.cohens_h) == (0, 1, 1, 0)
    assert math.isnan(found.minimum_detectable)  # not 0: nobody knows what this would have found


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 20))
def test_with_one_seed_the_exact_test_is_mcnemars(gained, lost, tied):
    differences = np.repeat([1, -1, 0], [gained, lost, tied])
    expected = binomtest(gained, gained + lost, 0.5).pvalue if gained + lost else 1
    assert sign_flip_p(differences) == pytest.approx(expected, rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(-5, 5), max_size=9))
def test_with_several_seeds_it_counts_all_sign_patterns(differences):
    flips = product((1, -1), repeat=len(differences))
    patterns = [sum(sign * d for sign, d in zip(signs, differences, strict=True)) for signs in flips]
    extreme = np.mean([abs(total) >= abs(sum(differences)) for total in patterns])
    assert sign_flip_p(np.array(differences, dtype=int)) == pytest.approx(extreme)


def test_effect_size_and_detectable_difference():
    assert cohens_h(0.75, 0.5) == pytest.approx(math.pi / 6)  # asin sqrt(3/4) = pi/3, asin sqrt(1/2) = pi/4
    assert cohens_h(0.5, 0.75) == -cohens_h(0.75, 0.5)
    assert minimum_detectable(0.01) == pytest.approx(0.028016, rel=1e-4)


def trial(
    rng: np.random.Generator, n_seeds: int, n_questions: int, gain: float, seed_effect: float
) -> tuple[np.ndarray, np.ndarray]:
    """Answers of a policy and of M0 on questions of different difficulty; `gain` is the true difference."""
    difficulty = rng.uniform(0.2, 0.7, (1, n_questions))
    seeds = rng.normal(0, seed_effect, (n_seeds, 1))
    own = rng.uniform(-0.15, 0.15, (1, n_questions))  # of this policy, whatever its seed
    policy = rng.random((n_seeds, n_questions)) < difficulty + own + seeds + gain
    return policy, rng.random((1, n_questions)) < difficulty


@pytest.mark.parametrize(("n_seeds", "seed_effect"), [(1, 0.0), (2, 0.01), (5, 0.02)])
def test_the_interval_of_a_difference_covers_and_the_test_keeps_its_level(n_seeds, seed_effect):
    rng = np.random.default_rng(0)
    runs, covered, rejected = 300, 0, 0
    for _ in range(runs):
        found = compare(*trial(rng, n_seeds, 100, 0.1, seed_effect))
        covered += found.ci_low <= 0.1 <= found.ci_high
        rejected += compare(*trial(rng, n_seeds, 100, 0.0, seed_effect)).p_value < 0.05
    assert binomtest(covered, runs, 0.95).pvalue > 0.001
    assert binomtest(rejected, runs, 0.05).pvalue > 0.001


def test_the_detectable_difference_is_found_four_times_in_five():
    rng = np.random.default_rng(1)
    detectable = np.mean([compare(*trial(rng, 1, 150, 0.0, 0)).minimum_detectable for _ in range(20)])
    found = [compare(*trial(rng, 1, 150, float(detectable), 0)).p_value < 0.05 for _ in range(300)]
    assert binomtest(sum(found), len(found), 0.8).pvalue > 0.001


def test_pooling_the_seeds_into_mcnemars_test_would_reject_far_too_often():
    """The reason for testing by question: five seeds that agree are one observation, not five."""
    rng = np.random.default_rng(2)
    pooled = by_question = 0
    runs = 200
    for _ in range(runs):
        differences = 5 * rng.choice([-1, 0, 1], size=100, p=[0.15, 0.7, 0.15])
        gained, lost = int(differences[differences > 0].sum()), int(-differences[differences < 0].sum())
        pooled += binomtest(gained, gained + lost, 0.5).pvalue < 0.05
        by_question += sign_flip_p(differences) < 0.05
    assert pooled / runs > 0.2
    assert binomtest(by_question, runs, 0.05, alternative="greater").pvalue > 0.001


def test_answers_that_cannot_be_paired_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 3\) cannot be paired with \(3, 3\)"):
        compare(np.zeros((2, 3)), np.zeros((3, 3)))


# ------------------------------------------------------------------------------------------------------------- table


def test_who_is_compared_with_whom():
    keys = [BASE, *(policy("dpo", k) for k in (0, 150, 300)), policy("grpo", 300), policy("grpo", 300, group_size=4)]
    keys += [policy("ipo", 150)]
    table = comparison_table({(key, "id"): solved(i % 4) for i, key in enumerate(keys)})
    assert tuple(table.columns) == COMPARISON_COLUMNS
    rows = zip(table["policy"], table["K"], table["reference"], table["reference_group_size"].fillna(0), strict=True)
    compared = {(name, k, other, size) for name, k, other, size in rows}
    assert compared == {
        *((name, k, "base", 0) for name, k in [("dpo", 0), ("g2d", 150), ("g2d", 300), ("grpo", 300), ("ipo", 150)]),
        *((name, k, "dpo", 0) for name, k in [("g2d", 150), ("g2d", 300)]),
        *((name, k, "grpo", size) for name, k in [("dpo", 0), ("g2d", 150), ("g2d", 300)] for size in (2, 4)),
        ("ipo", 150, "g2d", 2),
    }
    assert len(table) == 5 + 1 + 2 + 6 + 1


def test_an_ablation_of_the_warmup_is_compared_with_grpo_as_it_is():
    keys = [policy("dpo", 300), policy("grpo", 300), policy("longer/grpo", 300), policy("longer/dpo", 300)]
    table = comparison_table({(key, "id"): solved(2) for key in keys})
    rows = table[table["policy"].str.startswith("longer")]
    assert list(zip(rows["policy"], rows["reference"], strict=True)) == [("longer/grpo", "grpo"), ("longer/dpo", "g2d")]


def test_a_warmup_that_stopped_by_itself_has_the_same_to_beat_as_a_fixed_k():
    keys = [BASE, policy("dpo", 0), policy("dpo", 150), policy("auto/dpo", 300), policy("grpo", 300)]
    table = comparison_table({(key, "id"): solved(2) for key in keys}).query("policy == 'g2d-auto'")
    assert list(table["reference"]) == ["base", "dpo", "grpo"]


def test_holm_corrects_over_k():
    evaluations = {(BASE, "id"): solved(10, of=60)}
    evaluations |= {(policy("dpo", k), "id"): solved(n, of=60) for k, n in ((0, 10), (150, 16), (300, 13))}
    table = comparison_table(evaluations).query("reference == 'base'").set_index("K")
    assert table.loc[150, "p_holm"] == pytest.approx(3 * table.loc[150, "p_value"])
    assert table.loc[300, "p_holm"] == pytest.approx(2 * table.loc[300, "p_value"])
    assert table.loc[0, "p_holm"] == 1


def test_seeds_are_paired_with_seeds():
    evaluations = {(policy("dpo", k, seed), "id"): solved(2) for k, seed in ((0, 0), (150, 0), (150, 1))}
    with pytest.raises(ValueError, match=r"m/seed0/dpo/g2/k150 has seeds \[0, 1\] and m/seed0/dpo/g0/k0 \[0\]"):
        comparison_table(evaluations)


def test_samples_of_a_problem_are_one_unit():
    mine = answers({"a": [1, 1, 1, 0], "b": [1, 0, 0, 0]})
    theirs = answers({"a": [0, 0, 0, 0], "b": [1, 0, 0, 0]})
    (row,) = comparison_table({(BASE, "id"): theirs, (policy("dpo", 0), "id"): mine}).to_dict("records")
    assert row["difference"] == pytest.approx(3 / 8)
    assert row["p_questions"] == 1
