"""Generated calculations: answers by two independent evaluators, splits, exhaustion, and the seed of a run."""

import re
from fractions import Fraction

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from g2d.problems.calculation import MOST_PER_LEVEL, STEPS, generate, latex
from g2d.problems.generated import generate as generate_source
from g2d.problems.generated import levels_of, with_seed
from g2d.problems.settings import SyntheticProblems
from g2d.problems.synthetic import SPLITS, split_of
from g2d.verifier import verify_batch

PINNED = (15, "(11 * 2 / 5 / (11 + 7) - (9 / 13 / 4 + 5 * 7 / 18)) * (5 * 14 + (19 - 9) / 14)", r"-\frac{48213}{364}")


def calculations(**keys):
    return SyntheticProblems(source="synthetic", family="calculation", split="test", **keys)


def expression_of(prompt):
    match = re.fullmatch(r"Calculate exactly, as an integer or a fraction in lowest terms: (.+)", prompt)
    return match[1]


def number_of(answer):
    return Fraction(re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", answer))


@settings(max_examples=25, deadline=None)
@given(
    split=st.sampled_from(SPLITS),
    n=st.integers(1, 12),
    seed=st.integers(0, 2**31 - 1),
    steps=st.sets(st.integers(2, 20), min_size=1, max_size=3),
)
def test_answers_levels_and_splits_hold_for_every_draw(split, n, seed, steps):
    problems = generate(split, n, seed, sorted(steps))
    assert len(problems) == len({problem.prompt for problem in problems}) == n
    for problem in problems:
        text = expression_of(problem.prompt)
        exact = eval(re.sub(r"(\d+)", r"Fraction(\1)", text))
        assert number_of(problem.answer) == exact
        assert sympy.Rational(exact.numerator, exact.denominator) == sympy.sympify(text)
        assert problem.level == len(re.findall(r" [-+*/] ", text))
        assert problem.level in steps
        assert split_of(text) == split


@given(st.fractions())
def test_a_reference_answer_is_in_lowest_terms(value):
    assert number_of(latex(value)) == value


def test_the_verifier_accepts_the_reference_answers():
    problems = generate("test", 40, 0)
    judged = verify_batch([(problem.answer, f"\\boxed{{{problem.answer}}}") for problem in problems])
    assert {judgement.verdict for judgement in judged} == {"correct"}


def test_the_draw_is_pinned():
    # Another draw would be another benchmark under the same seed.
    first = generate("test", 8, 0)[0]
    assert (first.problem_id, first.level) == ("calculation-test-0-00000", PINNED[0])
    assert (expression_of(first.prompt), first.answer) == PINNED[1:]


def test_the_shortest_expressions_do_not_run_out():
    assert len(generate("development", MOST_PER_LEVEL, 0, [2])) == MOST_PER_LEVEL
    with pytest.raises(ValueError, match=f"lower n to at most {MOST_PER_LEVEL}"):
        generate("development", MOST_PER_LEVEL + 1, 0, [2])


def test_the_seed_of_a_run_is_drawn_once_and_makes_the_problems_again():
    source = calculations(n=4, seed="run")
    drawn = [with_seed(source) for _ in range(3)]
    assert len({source.seed for source in drawn}) == 3
    assert with_seed(drawn[0]) == drawn[0]
    assert generate_source(drawn[0]) == generate_source(calculations(n=4, seed=drawn[0].seed))
    assert not {p.problem_id for p in generate_source(drawn[0])} & {p.problem_id for p in generate_source(drawn[1])}
    with pytest.raises(ValueError, match="not drawn"):
        generate_source(source)


def test_steps_are_levels_and_belong_to_calculations():
    assert list(levels_of(calculations(n=1))) == list(STEPS)
    assert list(levels_of(calculations(n=1, steps=[12, 3]))) == [3, 12]
    assert "steps" not in calculations(n=1).params()
    for family, steps, message in (
        ("arithmetic", [3], "levels of its own"),
        ("calculation", [3, 3], "repeat"),
        ("calculation", [1], "greater than or equal to 2"),
    ):
        with pytest.raises(ValidationError, match=message):
            SyntheticProblems(source="synthetic", family=family, split="test", n=1, steps=steps)
