"""rho, mu and H against hand-computed values, published ones and laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from g2d.analysis.informativeness import informativeness, read_informativeness, success_counts, write_informativeness
from g2d.rollouts.rollout import to_frame
from tests.frames import SUCCESSES, groups, rollout


@pytest.fixture
def by_hand():
    """p = 0, 1/8, 3/8, 4/8, 5/8, 6/8, 8/8: five of seven are pairable, three of the five are in [3/8, 5/8]."""
    return informativeness(groups([(c, 8) for c in (0, 1, 3, 4, 5, 6, 8)]))


def test_prompts_rollouts_and_right_ones_are_counted(by_hand):
    assert (by_hand.n_prompts, by_hand.n_rollouts, by_hand.n_pairable) == (7, 56, 5)
    assert by_hand.pass_at_1 == pytest.approx(27 / 56)


def test_shares_worked_out_by_hand(by_hand):
    assert by_hand.pairability == pytest.approx(5 / 7)
    assert by_hand.mid_band == pytest.approx(3 / 5)
    assert by_hand.all_wrong == by_hand.all_correct == pytest.approx(1 / 7)


def test_the_entropy_worked_out_by_hand(by_hand):
    # H(1/8) = 3 - 7/8 log2 7, H(1/4) = 2 - 3/4 log2 3, H(3/8) = 3 - 3/8 log2 3 - 5/8 log2 5
    eighth, quarter, three_eighths = 0.5435644432, 0.8112781245, 0.9544340029
    assert by_hand.entropy == pytest.approx((eighth + quarter + 2 * three_eighths + 1) / 5)


@pytest.mark.parametrize(
    ("correct", "n", "inside"), [(3, 8, 1), (5, 8, 1), (2, 8, 0), (6, 8, 0), (6, 16, 1), (3, 9, 0)]
)
def test_the_ends_of_the_middle_band_belong_to_it(correct, n, inside):
    assert informativeness(groups([(correct, n)])).mid_band == inside


def test_groups_of_different_size_weigh_the_same():
    assert informativeness(groups([(1, 2), (8, 8)])).pass_at_1 == 0.75


def test_a_share_of_nothing_is_null():
    decided = informativeness(groups([(0, 8), (8, 8)]))
    assert (decided.pairability, decided.n_pairable, decided.mid_band, decided.entropy) == (0, 0, None, None)
    nothing = informativeness(to_frame([]))
    assert (nothing.n_prompts, nothing.n_rollouts, nothing.n_pairable) == (0, 0, 0)
    assert {nothing.pass_at_1, nothing.pairability, nothing.format_compliance, nothing.mean_length} == {None}


def test_format_truncation_and_length():
    verdicts = ["correct", "incorrect", "no_boxed", "truncated", "parse_error", "timeout", "limit", "incorrect"]
    rows = [rollout("p0", i, verdict, token_count=10 * i) for i, verdict in enumerate(verdicts)]
    rows[3] = replace(rows[3], finish_reason="length")
    measured = informativeness(to_frame(rows))
    assert measured.format_compliance == 3 / 8
    assert measured.truncated_share == 1 / 8
    assert measured.mean_length == 35


def test_success_counts_keep_order_and_levels():
    rows = [rollout("b", 0, level=None), rollout("a", 0, "no_boxed", level=3), rollout("a", 1, level=3)]
    counts = success_counts(to_frame(rows))
    assert list(counts["problem_id"]) == ["b", "a"]
    assert list(counts["n"]) == [1, 2]
    assert list(counts["correct"]) == [1, 1]
    assert list(counts["p_hat"]) == [1, 0.5]
    assert counts["level"].isna().tolist() == [True, False]


def test_a_written_summary_is_read(tmp_path):
    summary = replace(informativeness(groups([(4, 8)])), n_chosen_truncated=3, n_rejected_truncated=1)
    write_informativeness(tmp_path / "informativeness.json", summary)
    assert read_informativeness(tmp_path / "informativeness.json") == summary


@pytest.mark.parametrize("content", ["{", "[]", '{"n_prompts": 3}'])
def test_a_broken_file_is_named(tmp_path, content):
    path = tmp_path / "informativeness.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"informativeness\.json"):
        read_informativeness(path)


@settings(deadline=None, max_examples=30)
@given(SUCCESSES)
def test_shares_are_within_their_bounds(successes):
    measured = informativeness(groups(successes))
    assert measured.pairability + measured.all_wrong + measured.all_correct == pytest.approx(1)
    assert measured.all_correct <= measured.pass_at_1 + 1e-12
    assert measured.pass_at_1 + measured.all_wrong <= 1 + 1e-12
    if measured.n_pairable:
        assert 0.954 * measured.mid_band < measured.entropy <= 1  # H(3/8) bounds the band from below


@settings(deadline=None, max_examples=30)
@given(SUCCESSES, st.integers(0, 2**32 - 1))
def test_the_order_of_rollouts_does_not_matter(successes, seed):
    rollouts = groups(successes)
    shuffled = rollouts.iloc[np.random.default_rng(seed).permutation(len(rollouts))]
    assert informativeness(shuffled) == informativeness(rollouts)


@settings(deadline=None, max_examples=30)
@given(SUCCESSES)
def test_wrong_instead_of_right_rollouts_are_as_informative(successes):
    measured = informativeness(groups(successes))
    mirrored = informativeness(groups([(n - correct, n) for correct, n in successes]))
    assert mirrored.mid_band == measured.mid_band
    assert mirrored.pairability == measured.pairability
    assert mirrored.entropy == (None if measured.entropy is None else pytest.approx(measured.entropy))
