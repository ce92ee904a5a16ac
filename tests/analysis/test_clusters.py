"""Questions that share a template or a passage: values by hand, laws and coverage."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from g2d.analysis.shares import share_of_gain
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, t

from g2d.analysis.comparisons import compare
from g2d.analysis.crossed import clustered, effective_questions, error_of_difference
from g2d.analysis.margins import Differences
from g2d.analysis.power import decompose
from g2d.analysis.statistics import accuracy_interval, mean_interval
from g2d.experiment.keys import PolicyKey
from g2d.rollouts.rollout import read_rollouts, write_rollouts
from g2d.tables.accuracy import main_table
from g2d.tables.families import comparison_table
from g2d.tables.inputs import WITHOUT_TEXTS
from tests.frames import evaluated, rollout

PAIRS = np.array(["a", "a", "b", "b"])


def test_values_of_clusters_by_hand() -> None:
    values = np.array([[1.0, 0, 1, 1], [0, 0, 0, 1]])
    assert clustered(values, PAIRS) == pytest.approx(np.array([[0.5, 1], [0, 0.5]]))
    # Clusters of three questions and one: deviations -.5 and .5 from the mean, over two questions per cluster.
    assert clustered(np.array([[1.0, 0, 0, 1]]), np.array([7, 7, 7, 2])) == pytest.approx(np.array([[0.75, 0.25]]))
    assert clustered(values, None) is values


def test_effective_questions_by_hand() -> None:
    # Variances of the mean: 1/12 over questions, 1/4 over clusters, so 4/3 questions.
    assert effective_questions(np.array([1.0, 1, 0, 0]), PAIRS) == pytest.approx((4 / 3, 1))
    assert effective_questions(np.array([1.0, 0, 1, 0]), PAIRS) == (4, 1)  # never more than there are
    assert effective_questions(np.zeros(4), PAIRS) == (2, 1)  # no difference: whole clusters
    assert effective_questions(np.array([1.0, 1, 0, 0]), None) == (4, 3)


def test_a_comparison_by_hand() -> None:
    """Both questions of one cluster gained, of 4/3 effective questions, with one question gained and one lost added."""
    comparison = compare(np.array([[1.0, 1, 1, 0]]), np.array([[0.0, 0, 1, 0]]), clusters=PAIRS)
    variance = ((2 / 3 + 2) / (10 / 3) - 0.2**2) / (10 / 3)
    assert comparison.standard_error == pytest.approx(math.sqrt(variance))
    assert comparison.p_value == pytest.approx(2 * t.sf(0.2 / math.sqrt(variance), 1))
    assert (comparison.difference, comparison.n_problems) == (0.5, 4)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), n_seeds=st.integers(1, 4))
@example(seed=105, n_seeds=4)  # a variance component of 0, but for rounding
def test_questions_that_share_nothing_are_their_own_clusters(seed: int, n_seeds: int) -> None:
    rng = np.random.default_rng(seed)
    own, other = rng.integers(0, 2, (2, n_seeds, 30)).astype(float)
    alone = rng.permutation(30)
    assert mean_interval(own, clusters=alone) == pytest.approx(mean_interval(own))
    with_clusters, without = (error_of_difference(own - other, clusters=clusters) for clusters in (alone, None))
    for name in ("middle", "questions", "seeds", "noise", "expected_seeds"):
        assert getattr(with_clusters, name) == pytest.approx(getattr(without, name))
    names = np.resize(["a", "b", "c"], 30)
    assert np.diff(accuracy_interval(own, names)) >= np.diff(accuracy_interval(own)) - 1e-9 or n_seeds > 1


def of_clusters(rng: np.random.Generator, n_clusters: int, n_seeds: int = 1, size: int = 5) -> np.ndarray:
    """Answers of two equally good policies; questions of a cluster have nearly the same answers."""
    shared = rng.random((2, n_clusters)) < 0.6
    answers = np.repeat(shared, size, axis=1)[:, None].repeat(n_seeds, axis=1)
    return np.where(rng.random(answers.shape) < 0.1, rng.random(answers.shape) < 0.6, answers).astype(float)


@pytest.mark.parametrize(("n_clusters", "n_seeds"), [(15, 1), (60, 3)])
def test_coverage_with_strongly_clustered_questions(n_clusters: int, n_seeds: int) -> None:
    rng, runs, names = np.random.default_rng(4), 200, np.repeat(np.arange(n_clusters), 5)
    missed, differ = np.zeros(2), np.zeros(2)
    for _ in range(runs):
        policy, other = of_clusters(rng, n_clusters, n_seeds)
        for i, clusters in enumerate((None, names)):
            low, high = accuracy_interval(policy, clusters)
            missed[i] += not low <= 0.6 <= high
            error = error_of_difference(policy - other, clusters=clusters)
            differ[i] += abs(error.middle) > error.reach(0.05)
    for before, after in (missed, differ):
        assert before > 0.2 * runs
        assert binomtest(int(after), runs, 0.05, alternative="greater").pvalue > 0.001


def test_every_test_is_over_clusters() -> None:
    rng, names = np.random.default_rng(0), np.repeat(np.arange(30), 5)
    (truth, control), base = of_clusters(rng, 30, 3), np.zeros((1, 150))
    error = error_of_difference(truth - control, clusters=names)
    plain = error_of_difference(truth - control)
    assert error.standard_error > 1.5 * plain.standard_error
    assert Differences([truth, control], clusters=names).interval(0, 1, 0.05) == error.interval(0.05)
    ends = [share_of_gain(control, truth, base, clusters=clusters) for clusters in (None, names)]
    assert ends[1].high - ends[1].low > 1.5 * (ends[0].high - ends[0].low)  # type: ignore[operator]
    parts = [decompose(np.stack([truth, control]), clusters).components for clusters in (None, names)]
    assert parts[1].policy_question > 3 * parts[0].policy_question
    assert parts[1].policy_seed == pytest.approx(parts[0].policy_seed, abs=1e-4)


def test_files_have_clusters_only_if_problems_do(tmp_path: Path) -> None:
    for name, cluster in (("with", "c"), ("without", None)):
        write_rollouts(tmp_path / name, [rollout("q", 0, cluster=cluster)])
        assert ("cluster" in read_rollouts(tmp_path / name, WITHOUT_TEXTS)) == (cluster is not None)


def test_tables_read_the_clusters_of_a_benchmark() -> None:
    rng = np.random.default_rng(1)
    m0, dpo = of_clusters(rng, 20)
    names = np.repeat(np.arange(20), 5)
    answers = {PolicyKey("m", "base", 0, 0, None): m0, PolicyKey("m", "dpo", 0, 0, 0): dpo}
    evaluations = evaluated(answers, cluster=names)
    main = main_table(evaluations, {})
    assert main["n_problems"].tolist() == [100, 100]
    for row, own in zip(main.to_dict("records"), (m0, dpo), strict=True):
        assert (row["ci_low"], row["ci_high"]) == pytest.approx(accuracy_interval(own, names))
    (compared,) = comparison_table(evaluations).to_dict("records")
    expected = compare(dpo, m0, clusters=names)
    assert (compared["p_value"], compared["ci_low"]) == pytest.approx((expected.p_value, expected.ci_low))
