"""`labels`: right and wrong rollouts, for all regimes on pairs, groups or single rollouts."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from g2d.analysis.informativeness import informativeness
from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.regimes.offline.rft import right_completions
from g2d.regimes.on_policy.group_trainer import groups, summary
from g2d.rollouts.pairs import build_pairs, labels, lengths, why_no_pairs
from g2d.rollouts.rollout import to_frame
from tests.frames import rollout, spelled, text_of


def drawn(**rewards: list[float]) -> pd.DataFrame:
    rows = []
    for name, values in rewards.items():
        for i, value in enumerate(values):
            status = "judged" if math.isfinite(value) else "not_finite"
            rows.append(rollout(name, i, "incorrect", reward=value, reward_status=status))
    return to_frame(rows)


def listed(column: pd.Series) -> list[Any]:
    return [None if pd.isna(value) else bool(value) for value in column]


def problems(frame: pd.DataFrame) -> list[Problem]:
    return [Problem(name, "?", "1", 1, None, "a test") for name in frame["problem_id"].unique()]


def test_by_hand() -> None:
    assert listed(labels(drawn(p=[1, 0, math.nan]))) == [True, False, None]
    assert listed(labels(drawn(p=[0.2, 0.9, 0.5, 0.9, 0.2]))) == [False, True, None, True, False]
    assert listed(labels(drawn(p=[2, 2], q=[1, 2]))) == [None, None, False, True]  # a tie has no pair
    assert listed(labels(drawn(p=[0.5, math.nan, 0.1]))) == [True, None, False]
    scalars = drawn(p=[0.0, 0.3], q=[0.0, 0.5])
    assert listed(labels(scalars, min_reward_margin=0.5)) == [None, None, False, True]


def test_a_scalar_reward_stays_one_if_its_values_are_0_and_1() -> None:
    frame = drawn(p=[1.0, 0.0, 1.0], q=[0.0, 0.0]).assign(reward_is_scalar=True)
    assert listed(labels(frame)) == [True, False, True, None, None]
    assert listed(labels(frame, min_reward_margin=2.0)) == [None] * 5
    assert build_pairs(spelled(frame), problems(frame), Prompt(), 0, min_reward_margin=2.0) == []
    assert groups(spelled(frame), "pq", which="all", seed=0, min_reward_margin=2.0) == []
    assert informativeness(frame).entropy is None
    assert "completions/mean_length_best" in summary(frame, [])


def test_an_update_of_ties_logs_no_lengths_of_the_best_and_worst() -> None:
    logged = summary(drawn(p=[0.5, 0.5]).assign(reward_is_scalar=True), [])
    assert None not in logged.values()


values = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, math.nan]), min_size=1, max_size=6)


@given(values, values)
def test_whoever_is_imitated_is_worth_more_than_whoever_is_avoided(p: list[float], q: list[float]) -> None:
    frame = drawn(p=p, q=q)
    labelled = frame.assign(label=labels(frame))
    for _, rows in labelled.dropna(subset="label").groupby("problem_id"):
        is_right = rows["label"].astype(bool)
        right = rows["reward"][is_right]
        wrong = rows["reward"][~is_right]
        if len(right) and len(wrong):
            assert right.min() > wrong.max()
    assert labelled["label"][frame["reward"].isna()].isna().all()


@pytest.fixture
def scored() -> pd.DataFrame:
    """Prompt p: best 1 and 3, worst 0, and one without a reward. Prompt q is a tie."""
    return spelled(drawn(p=[0.1, 0.9, 0.5, 0.9, math.nan], q=[0.4, 0.4]))


def test_a_pair_is_one_of_the_best_and_one_of_the_worst(scored: pd.DataFrame) -> None:
    [pair] = build_pairs(scored, problems(scored), Prompt(), 0)
    assert pair["chosen_sample"] in (1, 3)
    assert pair["rejected_sample"] == 0
    assert pair["p_hat"] == 0.5  # two of the four that have a reward


def test_a_group_has_all_pairs_of_the_best_and_the_worst(scored: pd.DataFrame) -> None:
    [group] = groups(scored, "pq", which="all", seed=0, whole=True)
    assert [*map(text_of, group.completions)] == ["p, attempt 0", "p, attempt 1", "p, attempt 2", "p, attempt 3"]
    assert sorted(group.pairs) == [(1, 0), (3, 0)]
    assert group.advantages == pytest.approx((-0.5, 0.3, -0.1, 0.3))


def test_right_completions_are_the_best(scored: pd.DataFrame) -> None:
    best = right_completions(scored, problems(scored))
    assert [text_of(row["completion_ids"]) for row in best] == ["p, attempt 1", "p, attempt 3"]


def test_equal_rewards_give_no_pair_and_a_message() -> None:
    frame = drawn(p=[1.0, 1.0], q=[1.0, math.nan])
    assert build_pairs(frame, problems(frame), Prompt(), 0) == []
    assert "that its reward tells apart (2 prompts; 3 judged, 1 not_finite; mean reward 1)" in why_no_pairs(frame)
    assert groups(drawn(p=[math.nan] * 2), "p", which="one", seed=0) == []


def test_informativeness_of_scalar_rewards() -> None:
    measures = informativeness(drawn(p=[0.1, 0.9], q=[0.4, 0.4], r=[0.3, math.nan]))
    assert (measures.n_prompts, measures.n_pairable, measures.pairability) == (3, 1, pytest.approx(1 / 3))
    assert measures.mean_reward == pytest.approx((0.1 + 0.9 + 0.4 + 0.4 + 0.3) / 5)
    assert (measures.n_not_judged, measures.pass_at_1) == (1, 0)
    assert (measures.entropy, measures.mid_band, measures.all_correct) == (None, None, None)


@pytest.fixture
def of_lengths() -> pd.DataFrame:
    """Prompt p: best 30 tokens, worst 10. Prompt q: best 50, worst 20. Prompt r is a tie and does not count."""
    frame = drawn(p=[0.9, 0.1, 0.5], q=[-1.0, -2.0], r=[0.3, 0.3])
    return frame.assign(token_count=[30, 10, 999, 50, 20, 999, 999])


def test_lengths_are_of_the_best_and_worst_rollouts(of_lengths: pd.DataFrame) -> None:
    assert lengths(of_lengths) == (40, 15)


def test_a_tie_has_no_best_and_no_worst_rollout(of_lengths: pd.DataFrame) -> None:
    assert lengths(of_lengths[of_lengths["problem_id"] == "r"]) == (None, None)


def test_a_harvest_records_lengths_and_rollouts_that_were_not_read_whole(of_lengths: pd.DataFrame) -> None:
    of_lengths["reward_details"] = ['{"truncated": true, "score": 1.0}', '{"score": 0.1}', *[None] * 5]
    measures = informativeness(of_lengths)
    assert (measures.mean_length_best, measures.mean_length_worst) == (40, 15)
    assert measures.n_not_read_whole == 1


def test_a_training_logs_lengths_of_scalar_rewards_only(of_lengths: pd.DataFrame) -> None:
    logged = summary(of_lengths, [])
    assert logged["completions/mean_length_best"] == 40
    assert logged["completions/mean_length_worst"] == 15
    assert "completions/mean_length_best" not in summary(drawn(p=[0, 1]), [])


def test_a_control_is_informative_by_its_reward_and_right_by_the_truth() -> None:
    right = to_frame([rollout("p", i, "correct", reward_status="judged") for i in range(4)])
    measures = informativeness(right.assign(reward=[0.0, 1.0, 0.0, 1.0]))
    assert (measures.pass_at_1, measures.pairability, measures.entropy, measures.mean_reward) == (1, 1, 1, 0.5)


@pytest.fixture
def mixed() -> pd.DataFrame:
    """A right and a wrong answer to v, and two replies each to p and q, of which one of p is between the answers."""
    rows = [
        rollout("v", 0, "correct", reward=1.0),
        rollout("p", 0, "no_reference", reward=2.5),
        rollout("v", 1, "incorrect", reward=0.0),
        rollout("p", 1, "no_reference", reward=1.0),
        rollout("q", 0, "no_reference", reward=1.0),
        rollout("q", 1, "no_reference", reward=4.0),
    ]
    return to_frame(rows)


TOKENS = [100, 9, 100, 5, 3, 7]  # of these rows


def test_each_kind_of_a_mixed_batch_is_labelled_separately(mixed: pd.DataFrame) -> None:
    assert listed(labels(mixed)) == [True, True, False, False, False, True]


def test_a_margin_is_only_about_scalars(mixed: pd.DataFrame) -> None:
    """A right and a wrong answer are 1 apart and always a pair."""
    assert listed(labels(mixed, min_reward_margin=2.0)) == [True, None, False, None, False, True]
    replies = mixed[mixed["problem_id"] != "v"]
    assert listed(labels(replies, min_reward_margin=2.0)) == [None, None, False, True]


def test_lengths_of_a_mixed_batch_are_those_of_replies(mixed: pd.DataFrame) -> None:
    assert lengths(mixed.assign(token_count=TOKENS)) == (8, 4)


def test_a_mixed_batch_logs_rewards_and_lengths_by_kind(mixed: pd.DataFrame) -> None:
    logged = summary(mixed.assign(token_count=TOKENS, finish_reason="stop"), [])
    assert logged["reward/verifiable"] == 0.5
    assert logged["reward/open_ended"] == pytest.approx(8.5 / 4)
    assert logged["completions/mean_length/verifiable"] == 100
    assert logged["completions/mean_length/open_ended"] == 6
