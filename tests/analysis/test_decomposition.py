"""The parts of a gain: by hand, and that they always add up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from g2d.analysis.decomposition import contributions, factors, linearised, stages
from g2d.analysis.statistics import LEVEL, error_of_difference
from g2d.rollouts.rollout import to_frame
from g2d.tables.accuracy import DECOMPOSITION_COLUMNS, decomposition_table
from tests.frames import rollout
from tests.main_policies import BASE, policy

REACHED = st.lists(st.floats(0, 1), min_size=3, max_size=3).map(lambda shares: np.sort(shares)[::-1])


def judged(*verdicts):
    return to_frame([rollout(f"q{i}", 0, verdict) for i, verdict in enumerate(verdicts)])


def test_stages_of_each_verdict():
    verdicts = ["correct", "incorrect", "no_boxed", "parse_error", "timeout", "limit", "truncated"]
    assert stages(judged(*verdicts)["verdict"]).sum().tolist() == [6, 2, 1]
    assert stages(judged("incorrect", "truncated")["verdict"]).to_numpy().tolist() == [[True, True, False], [False] * 3]
    assert stages(judged("unfinished_thinking")["verdict"]).to_numpy().tolist() == [[False] * 3]


def test_a_gain_by_hand():
    # 1/2 x 1 x 1/2 becomes 1 x 1 x 1/2: only finishing changes.
    assert contributions(np.array([0.5, 0.5, 0.25]), np.array([1, 1, 0.5])) == pytest.approx([0.25, 0, 0])
    # 1/2 x 1 x 1/2 becomes 1 x 1 x 1: half a step each way, (1/4 + 1/2) / 2.
    assert contributions(np.array([0.5, 0.5, 0.25]), np.array([1, 1, 1])) == pytest.approx([0.375, 0, 0.375])


def test_what_is_not_defined_contributes_nothing():
    nothing = np.zeros(3)
    assert np.isnan(factors(nothing)[1:]).all()
    assert contributions(nothing, np.array([0.8, 0.4, 0.2])) == pytest.approx([0.2, 0, 0])
    assert contributions(np.array([0.8, 0.4, 0.2]), nothing) == pytest.approx([-0.2, 0, 0])
    assert contributions(nothing, nothing).tolist() == [0, 0, 0]


@settings(deadline=None, max_examples=100)
@given(REACHED, REACHED)
def test_the_parts_add_up_to_the_gain_and_swap_sign_with_the_sides(reference, trained):
    parts = contributions(reference, trained)
    assert parts.sum() == pytest.approx(trained[2] - reference[2], abs=1e-12)
    assert contributions(trained, reference) == pytest.approx(-parts, abs=1e-12)
    for part, old, new in zip(parts, factors(reference), factors(trained), strict=True):
        if not (math.isnan(old) or math.isnan(new)):
            assert part * (new - old) >= -1e-15, "a factor that grows never costs accuracy"


@pytest.fixture
def by_hand():
    """M0, and two seeds of DPO that have more right answers."""
    evaluations = {
        (BASE, "id"): judged("correct", "truncated", "truncated", "incorrect"),
        (policy("dpo", 150, 0), "id"): judged("correct", "correct", "no_boxed", "incorrect"),
        (policy("dpo", 150, 1), "id"): judged("correct", "correct", "incorrect", "incorrect").iloc[::-1],
    }
    return decomposition_table(evaluations)


def test_the_table_has_its_columns(by_hand):
    assert tuple(by_hand.columns) == tuple(DECOMPOSITION_COLUMNS)


def test_m0_has_factors_and_no_gain(by_hand):
    base = by_hand.iloc[0]
    assert (base["finished"], base["parseable"], base["correct"], base["accuracy"]) == (0.5, 1, 0.5, 0.25)
    assert math.isnan(base["gain"])


def test_factors_are_shares_over_all_seeds(by_hand):
    trained = by_hand.iloc[1]
    assert (trained["n_seeds"], trained["finished"], trained["parseable"]) == (2, 1, 0.875)
    assert trained["correct"] == pytest.approx(4 / 7)


def test_a_gain_has_positive_and_negative_parts(by_hand):
    trained = by_hand.iloc[1]
    parts = trained[["from_finishing", "from_format", "from_reasoning"]].tolist()
    assert trained["gain"] == pytest.approx(0.25)
    assert sum(parts) == pytest.approx(0.25)
    assert parts[0] > 0 > parts[1]


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_a_part_has_the_interval_of_its_own_values(n_seeds):
    """All answers finish and parse, so the gain is reasoning, and the other parts are 0."""
    rng = np.random.default_rng(n_seeds)
    right = rng.random(40) < 0.4
    evaluations = {(BASE, "id"): judged(*np.where(right, "correct", "incorrect"))}
    gains = []
    for seed in range(n_seeds):
        trained = rng.random(40) < 0.6
        evaluations[policy("dpo", 0, seed), "id"] = judged(*np.where(trained, "correct", "incorrect"))
        gains.append(trained.astype(float) - right)
    part = decomposition_table(evaluations).iloc[1]
    for factor in ("finishing", "format"):
        assert part[f"from_{factor}"] == 0
        assert part[f"from_{factor}_low"] == -part[f"from_{factor}_high"] < 0  # of the two questions that are added
    ends = (part["from_reasoning_low"], part["from_reasoning_high"])
    assert ends == pytest.approx(error_of_difference(np.array(gains)).interval(LEVEL), abs=1e-6)


def test_the_first_order_has_the_right_means_and_slopes():
    rng = np.random.default_rng(0)
    reached = np.sort(rng.random((2, 3, 2, 20)), axis=1)[:, ::-1]
    values = linearised(*reached)
    means = reached.mean(axis=(2, 3))
    assert values.mean(axis=(1, 2)) == pytest.approx(contributions(*means))
    assert values.sum(axis=0) == pytest.approx(reached[1, 2] - reached[0, 2], abs=1e-6)
    heavier = np.append(np.ones(19), 1.01) / 20.01 * 20  # the last question counts 1 % more
    moved = (reached * heavier).mean(axis=(2, 3))
    assert (values * heavier).mean(axis=(1, 2)) == pytest.approx(contributions(*moved), abs=1e-4)


def test_without_m0_nothing_is_decomposed():
    (row,) = decomposition_table({(policy("dpo", 0), "id"): judged("correct", "truncated")}).to_dict("records")
    assert row["accuracy"] == 0.5
    assert math.isnan(row["from_finishing"])
