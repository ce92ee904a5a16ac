"""Selection of a checkpoint: its score, independence of length, and no bias on a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from g2d.analysis.win_rates import at_equal_length
from g2d.tables.choices import CANDIDATE_COLUMNS, best, checkpoint_table


def test_the_reward_at_equal_length_by_hand() -> None:
    lengths = np.array([[[10, 20], [10, 30]], [[30, 50], [40, 40]]])
    rewards = np.array([[[1.0, 2.0], [0.0, 2.0]], [[2.0, 5.0], [3.0, np.nan]]])
    # Around the mean of each prompt and checkpoint: lengths -5, 5, -10, 10, -10, 10; rewards -.5, .5, -1, 1, -1.5, 1.5.
    slope = (5 + 20 + 30) / (50 + 200 + 200)
    adjusted = at_equal_length(rewards, lengths)
    assert adjusted.slope == pytest.approx(slope)
    assert adjusted.raw == pytest.approx([(1.5 + 1) / 2, (3.5 + 3) / 2])
    assert adjusted.lengths == pytest.approx([17.5, 40])
    assert adjusted.rewards == pytest.approx([1.25 + slope * 11.25, 3.25 - slope * 11.25])


def test_prompts_that_a_checkpoint_has_no_reward_of_are_left_out_for_all() -> None:
    rewards = np.array([[[1.0, 1.0], [9.0, 9.0]], [[2.0, 2.0], [np.nan, np.nan]]])
    adjusted = at_equal_length(rewards, np.ones(rewards.shape))
    assert list(adjusted.raw) == [1, 2]
    assert adjusted.slope == 0  # nothing differs in length
    with pytest.raises(ValueError, match="no prompt has a judged reply of every checkpoint"):
        at_equal_length(np.where(rewards == 2, np.nan, rewards), np.ones(rewards.shape))


SHAPE = (3, 4, 3)
LENGTHS = arrays(float, SHAPE, elements=st.integers(1, 300).map(float))
REWARDS = arrays(float, SHAPE, elements=st.one_of(st.integers(-50, 50).map(lambda n: n / 10), st.just(np.nan)))


@settings(max_examples=30)
@given(REWARDS, LENGTHS, st.integers(-100, 100), st.integers(-50, 50))
def test_neither_a_multiple_of_the_length_nor_a_constant_changes_who_is_ahead(
    rewards: np.ndarray, lengths: np.ndarray, per_1000: int, constant: int
) -> None:
    rewards[:, :, 0] = 0.0  # a reply of every cell is judged, and two of one cell differ in length
    rewards[0, 0, 1], lengths[0, 0, :2] = 1.0, (10, 20)
    plain = at_equal_length(rewards, lengths)
    biased = at_equal_length(rewards + per_1000 / 1000 * lengths + constant, lengths)
    moved = biased.rewards - plain.rewards
    assert moved == pytest.approx(np.full(SHAPE[0], moved[0]), abs=1e-6)
    assert biased.slope - plain.slope == pytest.approx(per_1000 / 1000, abs=1e-9)


def replied(rewards: Sequence[float], lengths: Sequence[int], of_prompt: int = 2) -> pd.DataFrame:
    at = [(f"p{i // of_prompt}", i % of_prompt) for i in range(len(rewards))]
    rows = pd.DataFrame(at, columns=["problem_id", "sample"])
    return rows.assign(completion_text=["x" * n for n in lengths], reward=rewards)


def simulated(rng: np.random.Generator, quality: np.ndarray, padding: np.ndarray, paid: float) -> list[pd.DataFrame]:
    """Replies of checkpoints of this quality and padding to 60 prompts, 4 each; the judge pays for each character."""
    asked, taste = rng.integers(40, 120, 60), rng.normal(0, 1, 60)
    tables = []
    for own, more in zip(quality, padding, strict=True):
        lengths = np.maximum(asked[:, None] + more + rng.normal(0, 15, (60, 4)), 1).astype(int)
        rewards = taste[:, None] + own + paid * lengths + rng.normal(0, 0.5, (60, 4))
        tables.append(replied(rewards.ravel(), lengths.ravel(), of_prompt=4))
    return tables


def test_a_judge_that_pays_for_length_gets_the_padded_checkpoint_by_its_raw_reward_alone() -> None:
    quality, padding = np.array([0.0, 0.6, 0.3, 0.1, -0.2]), np.array([0.0, 10, 60, 120, 200])
    for seed in range(3):
        replies = simulated(np.random.default_rng(seed), quality, padding, paid=0.02)
        table = checkpoint_table([10, 20, 30, 40, 50], [], replies)
        assert table["K"][table["reward"].idxmax()] == 50
        assert table["K"][best(table)] == 20
        assert table["reward_per_1000"].iloc[0] == pytest.approx(20, abs=5)
        honest = checkpoint_table([10, 20, 30, 40, 50], [], simulated(np.random.default_rng(seed), quality, padding, 0))
        assert honest["K"][best(honest)] == honest["K"][honest["reward"].idxmax()] == 20


def answered(correct: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"problem_id": [f"d{i}" for i in range(len(correct))], "reward": correct.astype(float)})


def test_what_was_selected_on_development_problems_is_not_flattered_on_a_benchmark() -> None:
    rng, p, runs, n = np.random.default_rng(0), 0.6, 100, 50
    chosen, evaluated = [], []
    for _ in range(runs):
        development, benchmark = rng.random((2, 6, n)) < p
        table = checkpoint_table(range(1, 7), [answered(own) for own in development], [])
        chosen.append(table["accuracy"][best(table)])
        evaluated.append(benchmark[best(table)].mean())
    error = (p * (1 - p) / n / runs) ** 0.5
    assert abs(np.mean(evaluated) - p) < 4 * error < np.mean(chosen) - p


def test_verifiable_prompts_go_by_accuracy_and_the_smallest_of_equal_k() -> None:
    answers = [answered(np.array(own)) for own in ([1, 0, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0])]
    table = checkpoint_table([5, 10, 15], answers, [])
    assert list(table.columns) == list(CANDIDATE_COLUMNS)
    assert list(table["score"]) == list(table["accuracy"]) == [0.25, 0.5, 0.5]
    assert list(table["chosen"]) == [False, True, False]
    assert (table["ci_low"] < table["accuracy"]).all()
    assert table[["n_prompts", "reward", "length", "reward_at_equal_length"]].isna().all(axis=None)


def test_a_training_on_both_kinds_goes_by_the_mean_of_both() -> None:
    answers = [answered(np.array(own)) for own in ([1, 1, 1, 1], [1, 0, 0, 0])]
    replies = [replied([1, 3, 2, 2], [10, 30, 20, 20]), replied([5, 7, np.nan, 6], [50, 70, 60, 60])]
    table = checkpoint_table([5, 10], answers, replies)
    # 100 a 1,000 characters: 2 at 20 characters and 6 at 60 are the same.
    assert list(table["reward_per_1000"]) == pytest.approx([100, 100])
    assert list(table["reward_at_equal_length"]) == pytest.approx([4, 4])
    assert list(table["score"]) == pytest.approx([(1 + 4) / 2, (0.25 + 4) / 2])
    assert list(table["chosen"]) == [True, False]
    assert list(table["not_judged"]) == [0, 1]


def test_checkpoints_that_were_asked_other_prompts_are_not_compared() -> None:
    one, other = answered(np.ones(3)), answered(np.ones(4))
    with pytest.raises(ValueError, match="checkpoints answered different development problems"):
        checkpoint_table([5, 10], [one, other], [])
