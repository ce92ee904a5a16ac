"""Preference pairs: who is paired with whom, and that nobody else has a say in it."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from g2d.jobs.files import write_jsonl
from g2d.problems.prompts import Prompt
from g2d.rollouts.pairs import all_pairs, build_pairs, one_pair, read_pairs, subsample, truncated_sides, why_no_pairs
from g2d.rollouts.rollout import to_frame
from tests.frames import SUCCESSES, group, groups, problems, rollout, spelled

PROMPT = Prompt(system="Reason.", template="Solve: {problem}")


def test_a_pair_has_trls_conversational_format():
    rows = [rollout("p0", 0, "truncated"), rollout("p0", 1, "correct")]
    assert build_pairs(spelled(to_frame(rows)), problems(1), PROMPT, seed=0) == [
        {
            "prompt": [
                {"role": "system", "content": "Reason."},
                {"role": "user", "content": "Solve: Question 0?"},
            ],
            "chosen": [{"role": "assistant", "content": "p0, attempt 1"}],
            "rejected": [{"role": "assistant", "content": "p0, attempt 0"}],
            "problem_id": "p0",
            "p_hat": 0.5,
            "chosen_sample": 1,
            "rejected_sample": 0,
            "prompt_ids": [*b"<p0>"],
            "chosen_ids": [*b"p0, attempt 1"],
            "rejected_ids": [*b"p0, attempt 0"],
            "tokenizer_sha256": "bytes",
        }
    ]


@settings(deadline=None, max_examples=40)
@given(SUCCESSES.filter(lambda successes: 0 < successes[0][0] < successes[0][1]), st.integers(0, 2**31 - 1))
def test_a_draw_depends_on_no_other_prompt_and_no_row_order(successes, seed):
    rollouts = groups(successes)
    shuffled = rollouts.iloc[np.random.default_rng(seed).permutation(len(rollouts))]
    together = build_pairs(shuffled, problems(len(successes)), PROMPT, seed)[0]
    alone = build_pairs(groups(successes[:1]), problems(1), PROMPT, seed)[0]
    assert together == alone


# Right and cut off after its box, right, wrong and cut off before one, wrong.
KINDS = [("correct", "length"), ("correct", "stop"), ("truncated", "length"), ("incorrect", "stop")]


def cut(*kinds: int, prompts: int = 1):
    rows = []
    for prompt in range(prompts):
        for i, kind in enumerate(kinds):
            verdict, reason = KINDS[kind]
            rows.append(rollout(f"p{prompt}", i, verdict, finish_reason=reason))
    return spelled(to_frame(rows))


PAIRABLE = st.lists(st.integers(0, 3), min_size=2, max_size=8).filter(lambda kinds: min(kinds) < 2 <= max(kinds))


@settings(deadline=None, max_examples=40)
@given(PAIRABLE)
def test_a_right_rollout_that_was_cut_off_can_be_chosen_and_is_counted(kinds):
    rollouts = cut(*kinds)
    [pair] = build_pairs(rollouts, problems(1), PROMPT, seed=0)
    assert kinds[pair["chosen_sample"]] in (0, 1)
    found = (kinds[pair["chosen_sample"]] == 0, kinds[pair["rejected_sample"]] == 2)
    assert truncated_sides([pair], rollouts) == found


def test_every_right_rollout_is_chosen_equally_often():
    pairs = pd.DataFrame(build_pairs(cut(0, 1, 3, prompts=400), problems(400), PROMPT, seed=0))
    assert abs(pairs["chosen_sample"].sum() - 200) < 50


@settings(deadline=None, max_examples=40)
@given(SUCCESSES.filter(lambda successes: any(0 < c < n for c, n in successes)))
def test_every_pairable_prompt_has_a_pair_in_the_problems_order(successes):
    asked = problems(len(successes))[::-1]
    pairs = build_pairs(groups(successes), asked, PROMPT, seed=0)
    counts = {f"p{i}": counts for i, counts in enumerate(successes)}
    pairable = [p.problem_id for p in asked if 0 < counts[p.problem_id][0] < counts[p.problem_id][1]]
    assert ids_of(pairs) == pairable
    for pair in pairs:
        correct, n = counts[pair["problem_id"]]
        assert pair["chosen_sample"] < correct <= pair["rejected_sample"] < n
        assert pair["p_hat"] == correct / n


def test_pairs_are_uniform_and_depend_on_the_seed():
    n = 3000
    rollouts = groups([(2, 5)] * n)
    pairs = build_pairs(rollouts, problems(n), PROMPT, seed=0)
    counts = pd.DataFrame(pairs).groupby(["chosen_sample", "rejected_sample"]).size()
    assert len(counts) == 6
    assert (counts - n / 6).abs().max() < 5 * (n / 6) ** 0.5
    assert build_pairs(rollouts, problems(n), PROMPT, seed=1) != pairs


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 9))
def test_all_pairs_are_distinct_and_begin_with_the_one(n_right, n_wrong, seed):
    right = [*range(n_right)]
    wrong = [*range(n_right, n_right + n_wrong)]
    pairs = all_pairs("p", right, wrong, seed)
    assert pairs[0] == one_pair("p", right, wrong, seed)
    assert sorted(pairs) == [*product(right, wrong)]


def test_nothing_to_pair_says_what_the_verifier_saw():
    rows = [*group("p0", 8), rollout("p1", 0, "truncated"), rollout("p1", 1, "no_boxed")]
    rollouts = spelled(to_frame(rows))
    assert build_pairs(rollouts, problems(2), PROMPT, seed=0) == []
    assert "2 prompts; verdicts: 8 correct, 1 truncated, 1 no_boxed" in why_no_pairs(rollouts)


def test_rollouts_of_another_training_set_are_refused():
    with pytest.raises(ValueError, match=r"'p2'.*not among the 2 problems"):
        build_pairs(groups([(1, 2)] * 3), problems(2), PROMPT, seed=0)


@pytest.fixture(scope="module")
def pairs():
    return build_pairs(groups([(4, 8)] * 40), problems(40), PROMPT, seed=0)


def ids_of(pairs):
    return [pair["problem_id"] for pair in pairs]


def test_a_subsample_keeps_the_order_and_is_nested(pairs):
    order = ids_of(pairs)
    smaller = ids_of(subsample(pairs, 10, seed=3))
    larger = ids_of(subsample(pairs, 25, seed=3))
    assert len(smaller) == 10
    assert set(smaller) < set(larger) < set(order)
    assert smaller == sorted(smaller, key=order.index)


def test_another_seed_is_another_subsample(pairs):
    assert ids_of(subsample(pairs, 10, seed=3)) != ids_of(subsample(pairs, 10, seed=4))


def test_a_subsample_of_more_pairs_than_there_are_or_of_none(pairs):
    assert subsample(pairs, 1000, seed=0) == pairs
    assert subsample(pairs, 0, seed=0) == []


def test_every_pair_is_kept_equally_often(pairs):
    kept = Counter()
    for seed in range(400):
        kept.update(ids_of(subsample(pairs, 10, seed)))
    assert len(kept) == 40
    assert 50 < min(kept.values()) <= max(kept.values()) < 150  # 100 expected, standard deviation 8.7


def test_the_file_gives_back_what_was_written(tmp_path, pairs):
    write_jsonl(tmp_path / "pairs.jsonl", pairs)
    assert read_pairs(tmp_path / "pairs.jsonl") == pairs


@pytest.mark.parametrize(
    ("line", "message"), [("{", "not JSON"), ('{"prompt": []}', "exactly chosen, chosen_ids"), ("3", "exactly")]
)
def test_a_broken_line_is_named(tmp_path, pairs, line, message):
    path = tmp_path / "pairs.jsonl"
    write_jsonl(path, pairs[:1])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=rf"pairs\.jsonl, line 2: .*{message}"):
        read_pairs(path)
