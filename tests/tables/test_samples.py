"""pass@k and maj@n, by hand, by counting, and by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.tables.inputs import Inputs
from g2d.tables.reads import SAMPLES
from g2d.tables.samples import majority_right, pass_at_k, powers_up_to, sample_table
from tests.configs import SMALL
from tests.main_policies import main_policy


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(case: tuple[int, int, int]) -> None:
    n, right, k = case
    subsets = list(combinations([True] * right + [False] * (n - right), k))
    assert pass_at_k(n, np.array([right]), k) == pytest.approx(fmean(map(any, subsets)))


def test_the_k_of_a_table() -> None:
    assert powers_up_to(1) == [1]
    assert powers_up_to(2) == [1, 2]
    assert powers_up_to(8) == [1, 2, 4, 8]
    assert powers_up_to(50) == [1, 2, 4, 8, 16, 32, 50]


def rollouts(*answers: str | None, right: str = "4", problem: str = "a") -> pd.DataFrame:
    verdicts = ["no_boxed" if a is None else "correct" if a == right else "incorrect" for a in answers]
    rows = {"problem_id": problem, "cluster": problem, "verdict": verdicts, "extracted_answer": list(answers)}
    return pd.DataFrame(rows).assign(reward=[float(verdict == "correct") for verdict in verdicts])


def never(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    return [False] * len(pairs)


@pytest.mark.parametrize(
    ("answers", "share"),
    [
        (["4", "4", "5"], 1.0),
        (["4", "5", "5"], 0.0),
        (["4", "5"], 0.5),  # a draw of two
        (["4", "5", "6"], 1 / 3),
        (["4", "5", "5", "4", "6"], 0.5),
        (["4", None, None, ""], 1.0),  # no answer, no vote
        ([None, None], 0.0),
        (["5", "6"], 0.0),
    ],
)
def test_the_most_frequent_answer_wins_and_a_draw_is_shared(answers: list[str | None], share: float) -> None:
    assert majority_right(rollouts(*answers), never).to_dict() == {"a": pytest.approx(share)}


def test_equal_wrong_answers_count_as_one() -> None:
    split = rollouts("4", "4", r"\frac{1}{2}", "0.5", "1/2")
    assert majority_right(split, never)["a"] == 1.0
    assert majority_right(split, Inputs(Grid(Config.model_validate(SMALL))).equal)["a"] == 0.0


def test_the_verifier_judges_only_undecided_pairs() -> None:
    clear = [
        rollouts("4", "4", "4", "5", "6", problem="a"),
        rollouts("4", "5", "5", "6", problem="b"),
        rollouts("5", "6", "7", problem="c"),
    ]
    compared: list[tuple[str, str]] = []

    def equal(pairs: Sequence[tuple[str, str]]) -> list[bool]:
        compared.extend(pairs)
        return never(pairs)

    majority_right(pd.concat(clear), equal)
    assert compared == []
    majority_right(rollouts("4", "5", "6"), equal)
    assert compared == [("5", "6")]


def test_the_table_has_a_row_for_every_k_and_the_vote() -> None:
    keys = [main_policy("m", "dpo", 2, 10, seed) for seed in (0, 1)]
    answers = {
        (keys[0], "math"): pd.concat([rollouts("4", "4", "5", "4"), rollouts("5", "5", "5", "4", problem="b")]),
        (keys[1], "math"): pd.concat([rollouts("4", "4", "4", "4"), rollouts("5", "5", "5", "5", problem="b")]),
    }
    table = sample_table(answers, never)
    shares = dict(zip(zip(table["measure"], table["k"], strict=True), table["share"], strict=True))
    # pass@1: 3/4, 1/4, 1, 0. pass@2: one wrong of 4: 1; three wrong: 1 - 3/6. pass@4: whether any is right.
    expected = {("pass", 1): 0.5, ("pass", 2): (1 + 0.5 + 1 + 0) / 4, ("pass", 4): 0.75, ("maj", 4): 0.5}
    assert shares == pytest.approx(expected)
    assert set(table["policy"]) == {"g2d"}
    assert (table["n_samples"] == 4).all()


def test_a_model_named_samples_draws_no_further_samples() -> None:
    config: dict[str, Any] = SMALL | {"models": {"samples": {"source": "embedded"}}}
    plain = Grid(Config.model_validate(config | {"evaluation": {"sampled": {"n": 4}}}))
    assert plain.sampled_beside == []
    assert "results/samples/base/eval/easy.parquet" in SAMPLES.files(plain)
    sampled = Grid(Config.model_validate(config | {"evaluation": {"sampled": {"n": 4, "beside_greedy": True}}}))
    assert "results/samples/base/samples/easy.parquet" in SAMPLES.files(sampled)
    assert sampled.sampled == []


def test_problems_with_other_numbers_of_samples_are_refused() -> None:
    uneven = pd.concat([rollouts("4", "4"), rollouts("4", problem="b")])
    with pytest.raises(ValueError, match="not every problem has 2 samples"):
        sample_table({(main_policy("m", "dpo", 2, 10, 0), "math"): uneven}, never)
