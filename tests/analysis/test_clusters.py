"""Clusters of questions: by hand, for copies of questions, and every table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from g2d.analysis.comparisons import compare, margins_behind_best
from g2d.analysis.informativeness import informativeness, success_counts
from g2d.analysis.statistics import accuracy_interval, by_cluster, error_of_difference, mean_interval
from g2d.grid.runs import Harvest
from g2d.tables.accuracy import decomposition_table, main_table
from g2d.tables.families import comparison_table
from g2d.tables.harvest import harvest_table
from g2d.tables.samples import sample_table
from g2d.tables.win_rates import win_rate_table
from tests.main_policies import BASE, policy

WORDINGS = np.repeat(np.arange(12), 4)
POLICIES = [BASE, policy("dpo", 0, 0), policy("dpo", 0, 1), policy("dpo", 150, 0), policy("dpo", 150, 1)]


def test_values_of_clusters_by_hand() -> None:
    values = np.array([[1.0, 0, 1, 1], [0.0, 0, 0, 1]])
    np.testing.assert_array_equal(by_cluster(values, np.array(["a", "a", "b", "b"])), [[0.5, 1], [0, 0.5]])


def test_larger_clusters_have_more_weight_so_the_mean_stays() -> None:
    """One of four is right: three questions of one cluster with a mean of 1/3, and one with 0."""
    values = by_cluster(np.array([[1.0, 0, 0, 0]]), np.array([7, 7, 7, 2]))
    assert values == pytest.approx(np.array([[0.25 - 0.25 / 2, 0.25 + 0.25 / 2]]))


@pytest.fixture
def answers() -> np.ndarray:
    """Answers to 12 questions: two policies, three seeds."""
    return (np.random.default_rng(0).random((2, 3, 12)) < 0.6).astype(float)


def test_copies_of_a_question_add_nothing_to_an_interval(answers: np.ndarray) -> None:
    copied = np.repeat(answers, 4, axis=-1)
    once = answers[0] * np.array([0.5, 1, 1])[:, None]
    for interval in (accuracy_interval, mean_interval):
        assert interval(np.repeat(once, 4, axis=1), clusters=WORDINGS) == pytest.approx(interval(once))
    assert mean_interval(copied[0], copied[1], WORDINGS) == pytest.approx(mean_interval(answers[0], answers[1]))


def test_the_added_questions_of_a_difference_count_as_one_question_each() -> None:
    """Differences of 12 clusters of 4: sums 3 and 3; of 12.5 clusters with the two added quarters."""
    deltas = np.repeat([1.0, 1, 1, *np.zeros(9)], 4)[None]
    error = error_of_difference(deltas, WORDINGS)
    assert error.middle == pytest.approx(3 / 12.5)
    assert error.questions == pytest.approx(((3 + 2 / 16) / 12.5 - (3 / 12.5) ** 2) / 12.5 * 12 / 11)
    assert error.question_degrees == 11


def test_one_cluster_shows_as_little_as_one_question() -> None:
    passage = np.repeat([[1.0, 0.0]], [30, 70], axis=1)
    p = error_of_difference(passage, np.zeros(100)).p_value()
    assert p == pytest.approx(error_of_difference(np.array([[0.3]])).p_value())
    assert p > 0.5


def test_a_comparison_counts_gained_and_lost_answers_within_clusters() -> None:
    comparison = compare(np.array([[1.0, 0, 1, 1]]), np.array([[0.0, 1, 1, 1]]), clusters=np.array([0, 0, 1, 1]))
    assert (comparison.n_problems, comparison.n_clusters) == (4, 2)
    assert (comparison.difference, comparison.gained, comparison.lost) == (0, 0.25, 0.25)


def test_margins_are_over_clusters(answers: np.ndarray) -> None:
    copied = np.repeat(answers, 4, axis=-1)
    [margin, _] = margins_behind_best(list(copied), WORDINGS)
    bound = error_of_difference(copied[1] - copied[0], WORDINGS).interval(0.1)[1]
    assert margin.at_most == max(bound, 0.0)


Table = Callable[[np.ndarray], pd.DataFrame]
VERDICTS = np.array(["correct", "incorrect", "truncated", "no_boxed"])


def rows(clusters: np.ndarray, number: int, samples: int = 1) -> pd.DataFrame:
    """Return answers to 48 problems in 12 wordings."""
    rng = np.random.default_rng(number)
    shared = rng.choice(4, 12, p=[0.5, 0.2, 0.2, 0.1])[WORDINGS]
    verdicts = VERDICTS[np.where(rng.random((samples, 48)) < 0.3, rng.choice(4, (samples, 48)), shared)].T.ravel()
    frame = pd.DataFrame({"problem_id": np.repeat([f"p{n:02d}" for n in range(48)], samples), "verdict": verdicts})
    return frame.assign(
        cluster=np.repeat(clusters, samples),
        sample=np.tile(np.arange(samples), 48),
        reward=(verdicts == "correct").astype(float),
        level=1,
        extracted_answer=verdicts,
        completion_text=verdicts,
        finish_reason="stop",
        token_count=3,
    )


def harvests(clusters: np.ndarray) -> pd.DataFrame:
    summaries = {}
    counts = {}
    for seed in (0, 1):
        harvest = Harvest("m", seed, 2, 150)
        summaries[harvest] = informativeness(rows(clusters, seed, 8))
        counts[harvest] = success_counts(rows(clusters, seed, 8))
    return harvest_table(summaries, counts)


def samples(clusters: np.ndarray) -> pd.DataFrame:
    answers = {(one, "b"): rows(clusters, number, 4) for number, one in enumerate(POLICIES)}
    return sample_table(answers, lambda pairs: [False] * len(pairs))


def win_rates(clusters: np.ndarray) -> pd.DataFrame:
    return win_rate_table({one: rows(clusters, number, 2) for number, one in enumerate(POLICIES)})


def evaluated(table: Callable[..., pd.DataFrame], *arguments: object) -> Table:
    def build(clusters: np.ndarray) -> pd.DataFrame:
        return table({(one, "b"): rows(clusters, number) for number, one in enumerate(POLICIES)}, *arguments)

    return build


TABLES = {
    "main": (evaluated(main_table, {}), ["ci_low", "ci_high"]),
    "comparisons": (evaluated(comparison_table), ["standard_error", "p_value"]),
    "decomposition": (evaluated(decomposition_table), ["from_finishing_low", "from_reasoning_high"]),
    "harvest": (harvests, ["pairability_low", "entropy_low", "mid_band_high"]),
    "samples": (samples, ["ci_low", "ci_high"]),
    "win_rates": (win_rates, ["p_win"]),
}


@pytest.mark.parametrize("name", TABLES)
def test_names_of_clusters_of_one_problem_change_no_digit_of_a_table(name: str) -> None:
    build, _ = TABLES[name]
    names = np.random.default_rng(0).permutation(48)
    pd.testing.assert_frame_equal(build(names), build(np.arange(48)), rtol=0, atol=0)


@pytest.mark.parametrize("name", TABLES)
def test_every_interval_and_test_of_a_table_is_over_clusters(name: str) -> None:
    build, of_intervals = TABLES[name]
    over_clusters = build(WORDINGS)
    over_problems = build(np.arange(48))
    for column in of_intervals:
        differs = over_clusters[column].dropna() != over_problems[column].dropna()
        assert differs.any(), column


@pytest.mark.parametrize("name", TABLES)
def test_estimates_of_a_table_do_not_depend_on_clusters(name: str) -> None:
    build, _ = TABLES[name]
    unequal = np.minimum(WORDINGS, 8)
    estimates = {
        *("accuracy", "difference", "gained", "gain", "from_format"),
        *("pairability", "entropy", "share", "win_rate"),
    }
    over_clusters = build(unequal)
    over_problems = build(np.arange(48))
    for column in estimates & set(over_problems):
        assert over_clusters[column].tolist() == pytest.approx(over_problems[column].tolist(), nan_ok=True)


@pytest.mark.parametrize("n_clusters", [2, 3, 5, 8])
@pytest.mark.parametrize("n_seeds", [1, 5])
def test_few_clusters_do_not_find_more_than_chance(n_seeds: int, n_clusters: int) -> None:
    rng = np.random.default_rng(0)
    passages = np.repeat(np.arange(n_clusters), 120 // n_clusters)
    n_problems = len(passages)
    runs = 400
    found = 0
    for _ in range(runs):
        lead = rng.normal(0, 0.15, n_clusters)[passages]
        chances = np.clip([0.5 + lead, 0.5 - lead], 0, 1)[:, None]
        first, second = (rng.random((2, n_seeds, n_problems)) < chances).astype(float)
        found += compare(first, second, clusters=passages).p_value <= 0.05
    assert binomtest(found, runs, 0.05, alternative="greater").pvalue > 0.001


def test_equally_good_policies_rarely_differ_if_questions_come_in_wordings() -> None:
    rng = np.random.default_rng(0)
    wrong = {"problems": 0, "clusters": 0}
    covered = 0
    wordings = np.repeat(np.arange(32), 8)
    for _ in range(300):
        ability = rng.normal(0, 1, (1, 1, 32, 1)) + rng.normal(0, 0.6, (2, 1, 32, 1))
        ability = ability + rng.normal(0, 0.4, (2, 5, 32, 1)) + rng.normal(0, 0.15, (2, 5, 32, 8))
        first, second = (ability > 0).astype(float).reshape(2, 5, 256)
        wrong["problems"] += compare(first, second).p_value <= 0.05
        wrong["clusters"] += compare(first, second, clusters=wordings).p_value <= 0.05
        low, high = accuracy_interval(first, wordings)
        covered += low <= 0.5 <= high
    assert wrong["clusters"] <= 25
    assert wrong["problems"] >= 45
    assert covered >= 275
