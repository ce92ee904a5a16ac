"""Draws for calibration and training: deterministic, independent of the order of the pool, nested."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from g2d.problems import Problem
from g2d.problems.problem import draw_training_set, levels_of, sample_per_level

LEVELS = [1] * 5 + [2] * 20 + [3] * 20 + [None] * 3
POOL = [Problem(f"p{i:02d}", f"prompt {i}", "1", level, None, "test") for i, level in enumerate(LEVELS)]
TWOS = POOL[5:25]
WITHOUT_LEVEL = POOL[45:]


def levels(problems):
    return [problem.level for problem in problems]


def test_sample_per_level_takes_all_of_a_small_level_and_none_without_level():
    sample = sample_per_level(POOL, 10, seed=0)
    assert levels(sample) == [1] * 5 + [2] * 10 + [3] * 10
    assert len(set(sample)) == 25


def test_a_pool_without_levels_is_one_level():
    assert levels_of(WITHOUT_LEVEL) == [None]
    assert levels_of(POOL) == [1, 2, 3]
    assert len(sample_per_level(WITHOUT_LEVEL, 2, seed=0)) == 2
    assert len(draw_training_set(WITHOUT_LEVEL, [None], 3, seed=0)) == 3


def test_a_level_is_sampled_alike_whatever_the_other_levels():
    whole = sample_per_level(POOL, 7, 0)
    assert levels(whole) == [1] * 5 + [2] * 7 + [3] * 7
    assert sample_per_level(TWOS, 7, 0) == sample_per_level(POOL, 7, 0, [2]) == whole[5:12]


@given(st.integers(0, 2**31 - 1), st.randoms(use_true_random=False), st.integers(1, 40))
def test_draws_depend_on_the_set_and_the_seed_only(seed, rng, n):
    shuffled = rng.sample(POOL, len(POOL))
    assert draw_training_set(POOL, [2, 3], n, seed) == draw_training_set(shuffled, [3, 2], n, seed)
    assert sample_per_level(POOL, n, seed) == sample_per_level(shuffled, n, seed)


@given(st.integers(0, 2**31 - 1), st.integers(1, 40))
def test_training_sets_are_nested_without_repeats_and_of_the_chosen_levels(seed, n):
    drawn = draw_training_set(POOL, [2, 3], n, seed)
    assert drawn == draw_training_set(POOL, [2, 3], 40, seed)[:n]
    assert len(set(drawn)) == n
    assert set(levels(drawn)) <= {2, 3}


def test_training_sets_are_uniform():
    counts = Counter()
    for seed in range(2000):
        counts.update(draw_training_set(POOL, [2, 3], 10, seed))
    assert len(counts) == 40
    assert 400 < min(counts.values()) <= max(counts.values()) < 600  # five standard deviations


def test_a_draw_is_pinned():
    # A change here changes the training set of every experiment that is repeated.
    assert draw_training_set(POOL, [2, 3], 4, seed=0) == [POOL[22], POOL[8], POOL[18], POOL[35]]


def test_too_few_problems_name_the_key_and_the_fix():
    with pytest.raises(ValueError, match=r"training_set.n: 26 .* 25 at levels \[2, 1\].*calibration.levels"):
        draw_training_set(POOL, [2, 1], 26, seed=0)
