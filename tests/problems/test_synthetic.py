"""Generated problems: answers by an independent evaluator, leak-free splits, determinism and exhaustion."""

import re
from collections import Counter

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from g2d.problems.synthetic import LEVELS, MAX_VALUE, SPLITS, VERBS, generate, split_of
from tests.problems.expressions import evaluate, expression_of

FAMILIES = tuple(LEVELS)
LARGEST = {"arithmetic": MAX_VALUE, "word_problems": MAX_VALUE, "facts": 300}


@settings(max_examples=25, deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    split=st.sampled_from(SPLITS),
    n=st.integers(1, 60),
    seed=st.integers(0, 2**31 - 1),
)
def test_answers_levels_and_ranges_hold_for_every_draw(family, split, n, seed):
    problems = generate(family, split, n, seed)
    assert len(problems) == len({problem.prompt for problem in problems}) == n
    for problem in problems:
        text = expression_of(problem.prompt)
        values = evaluate(text)
        assert problem.answer == str(values[-1])
        assert problem.level == len(values) - 1
        assert 0 <= min(values) <= max(values) <= LARGEST[family]
        assert split_of(text, family) == split


@pytest.mark.parametrize(
    ("text", "split"),
    [("7 + 3 * 2", "train"), ("5 - 3", "test"), ("8 + 8 - 3", "development"), ("12 * 2 mod 5", "train")],
)
def test_a_problem_stays_in_its_split(text, split):
    """Another hash would move problems between the splits of experiments that are already run."""
    assert split_of(text) == split


def test_split_shares_are_80_10_10():
    splits = Counter(split_of(f"{number} + 1") for number in range(10_000))
    assert splits["train"] == pytest.approx(8000, abs=160)  # four standard deviations
    assert splits["test"] == pytest.approx(1000, abs=120)


@pytest.mark.parametrize(
    ("family", "n", "shares"),
    [("arithmetic", 52, {1: 11, 2: 11, 3: 10, 4: 10, 5: 10}), ("word_problems", 7, {1: 3, 2: 2, 3: 2})],
)
def test_levels_are_even_and_the_lowest_take_the_rest(family, n, shares):
    levels = [problem.level for problem in generate(family, "train", n, 0)]
    assert Counter(levels) == shares
    assert levels != sorted(levels), "the order is shuffled"


@pytest.mark.parametrize(("level", "operators"), [(1, {"+", "-"}), (2, {"+", "-", "*"}), (3, {"+", "-", "*", "mod"})])
def test_a_level_has_its_operators(level, operators):
    used = set()
    for problem in generate("arithmetic", "train", 60, 0, [level]):
        used.update(expression_of(problem.prompt).split()[1::2])
    assert used == operators


def test_the_same_seed_gives_the_same_problems_and_another_seed_others():
    assert generate("arithmetic", "test", 40, 3) == generate("arithmetic", "test", 40, 3)
    assert generate("arithmetic", "test", 40, 3) != generate("arithmetic", "test", 40, 4)


def test_a_problem_is_named_by_family_split_and_number():
    last = generate("word_problems", "development", 43, 0)[42]
    assert last.problem_id == "word_problems-development-00042"
    assert last.subject == "word_problems"
    assert last.source == "synthetic:word_problems:development"


def test_facts_are_sums_differences_and_products():
    """30 numbers, 10 operands: 300 sums, 300 products, and 300 differences but for the 45 below zero."""
    facts = []
    for split in SPLITS:
        facts += generate("facts", split, n_facts(split), 0)
    texts = {expression_of(problem.prompt) for problem in facts}
    expected = set()
    for a in range(1, 31):
        for b in range(1, 11):
            expected |= {f"{a} + {b}", f"{a} * {b}"}
            expected |= {f"{a} - {b}"} if a >= b else set()
    assert texts == expected
    assert len(facts) == len(expected) == 855


def n_facts(split):
    [most] = re.findall(r"lower n to at most (\d+)", str(refused("facts", split)))
    return int(most) // len(VERBS)


def refused(family, split):
    with pytest.raises(ValueError, match="lower n to") as info:
        generate(family, split, 100_000, 0)
    return info.value


@pytest.mark.parametrize("split", SPLITS)
def test_a_fact_has_a_second_wording_only_after_all_have_one(split):
    n = n_facts(split)
    problems = generate("facts", split, n + 5, 0)
    by_cluster = Counter(problem.cluster for problem in problems)
    assert sorted(by_cluster.values()) == [1] * (n - 5) + [2] * 5
    assert len({problem.prompt for problem in problems}) == n + 5


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cluster_has_all_wordings_of_one_expression(family):
    n = 400 if family == "facts" else 200  # more than there are expressions
    problems = pd.DataFrame(generate(family, "test", n, 0, [1]))
    problems["expression"] = problems["prompt"].map(expression_of)
    assert problems["cluster"].nunique() < len(problems)
    assert (problems.groupby("cluster")["expression"].nunique() == 1).all()
    assert (problems.groupby("expression")["cluster"].nunique() == 1).all()


def test_a_level_can_be_exhausted_and_no_further():
    available = 0
    for a in range(2, 21):
        for b in range(2, 10):
            if a + b <= MAX_VALUE and split_of(f"{a} + {b}") == "test":
                available += len(VERBS)
            if a >= b and split_of(f"{a} - {b}") == "test":
                available += len(VERBS)

    problems = pd.DataFrame(generate("arithmetic", "test", 5 * available, 0))
    assert problems.loc[problems["level"] == 1, "prompt"].nunique() == available
    with pytest.raises(ValueError, match=rf"level 1: {available + 1} different test .* {available} exist: lower n to"):
        generate("arithmetic", "test", 5 * available + 1, 0)


@pytest.mark.parametrize("split", SPLITS)
def test_levels_can_be_chosen(split):
    for problem in generate("arithmetic", split, 40, 0, [1]):
        assert problem.level == 1
        assert split_of(expression_of(problem.prompt)) == split


def test_all_levels_are_the_default():
    assert generate("arithmetic", "train", 40, 0, list(LEVELS["arithmetic"])) == generate("arithmetic", "train", 40, 0)


def test_more_problems_of_a_level_than_exist_are_refused():
    with pytest.raises(ValueError, match=r"level 1: 3000 different test .* lower n to at most \d+$"):
        generate("arithmetic", "test", 3000, 0, [1])
