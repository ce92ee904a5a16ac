"""Long exact calculations, generated for each run so that no model can have seen them (arXiv 2507.10532).

An expression is a random binary tree over + - * / and the integers 2 to 20; its level is the number of operations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import add, mul, sub, truediv

from g2d.problems.problem import Problem
from g2d.problems.synthetic import Split, numbered, shares, split_of

STEPS = (5, 10, 15, 20)
INTEGERS = range(2, 21)
LARGEST_NUMERATOR, LARGEST_DENOMINATOR = 99_999, 999  # bounds of every intermediate result
# Two operations + or - give 27,436 expressions; a held-out split has a tenth.
MOST_PER_LEVEL = 2_000

PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {"+": add, "-": sub, "*": mul, "/": truediv}
OPERATORS = "+-*+-*/"  # weighted: division enlarges denominators, and sums would exceed the bounds
# The expression comes last: the end of a question cannot be guessed.
QUESTION = "Calculate exactly, as an integer or a fraction in lowest terms: {expression}"


@dataclass(frozen=True, slots=True)
class Expression:
    """`precedence` belongs to the last operation and is 3 for an integer."""

    text: str
    value: Fraction
    precedence: int = 3


def generate(split: Split, n: int, seed: int, steps: Sequence[int] = STEPS) -> list[Problem]:
    require_capacity(n, steps)
    rng = random.Random(f"calculation/{split}/{seed}")
    drawn: dict[str, tuple[str, str, int]] = {}
    for level, share in shares(steps, n):
        wanted = len(drawn) + share
        while len(drawn) < wanted:
            expression = _draw(rng, level)
            if split_of(expression.text) == split:
                question = QUESTION.format(expression=expression.text)
                drawn.setdefault(expression.text, (question, latex(expression.value), level))
    exercises = list(drawn.values())
    rng.shuffle(exercises)
    return numbered(f"calculation-{split}-{seed}", "calculation", split, exercises)


def require_capacity(n: int, steps: Sequence[int]) -> None:
    if n > (most := MOST_PER_LEVEL * len(steps)):
        raise ValueError(f"calculation: {n} problems asked for: lower n to at most {most}, or name more steps")


def latex(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{'-' if value < 0 else ''}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _draw(rng: random.Random, steps: int) -> Expression:
    if steps == 0:
        number = rng.choice(INTEGERS)
        return Expression(str(number), Fraction(number))
    while True:  # redraw if no operation can join the parts
        before = rng.randrange(steps)
        left, right = _draw(rng, before), _draw(rng, steps - 1 - before)
        joined = [(operator, value) for operator in OPERATORS if (value := _apply(left, operator, right)) is not None]
        if joined:
            return _joined(left, right, *rng.choice(joined))


def _joined(left: Expression, right: Expression, operator: str, value: Fraction) -> Expression:
    """Join two expressions; a - (b + c) needs its brackets, a + (b - c) does not."""
    level = PRECEDENCE[operator]
    first = f"({left.text})" if left.precedence < level else left.text
    bare = right.precedence > level or (right.precedence == level and operator in "+*")
    return Expression(f"{first} {operator} {right.text if bare else f'({right.text})'}", value, level)


def _apply(left: Expression, operator: str, right: Expression) -> Fraction | None:
    if operator == "/" and right.value == 0:
        return None
    value = OPERATIONS[operator](left.value, right.value)
    return value if abs(value.numerator) <= LARGEST_NUMERATOR and value.denominator <= LARGEST_DENOMINATOR else None
