"""Generated problems, with answers known by construction. A hash of an expression decides its split.

`arithmetic` and `word_problems` are for the embedded model: every number is in 0..24, so that a tiny model can learn
every fact. Operations are applied from left to right: "Compute 7 + 3 * 2." is 20, not 13. `facts` are for small
pretrained models: one operation on larger numbers, so that a benchmark has hundreds of different expressions.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import add, mod, mul, sub
from typing import Literal, get_args

from g2d.problems.problem import Problem

Family = Literal["arithmetic", "word_problems", "facts"]
Split = Literal["train", "development", "test"]
Operator = Literal["+", "-", "*", "mod"]
OPERATIONS: dict[Operator, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul, "mod": mod}

SPLITS: tuple[Split, ...] = get_args(Split)
LEVELS: dict[Family, range] = {"arithmetic": range(1, 6), "word_problems": range(1, 4), "facts": range(1, 2)}
# Tenths of the expressions that are for training, and for training or development; the others are the test's.
SPLIT_BOUNDS: dict[Family, tuple[int, int]] = {"arithmetic": (8, 9), "word_problems": (8, 9), "facts": (4, 6)}

START = range(2, 21)
OPERANDS = range(2, 10)
MAX_VALUE = 24  # 518 facts, learnable in a minute

FACT_NUMBERS = range(1, 31)
FACT_OPERANDS = range(1, 11)
FACT_OPERATORS: tuple[Operator, ...] = ("+", "-", "*")

VERBS = ("Compute", "Evaluate", "Find", "Calculate", "Determine", "Simplify", "Work out", "Give")
NAMES = ("Ann", "Ben", "Cara", "Dan", "Eve", "Finn")
THINGS = ("apples", "coins", "books", "cards", "shells", "stamps")
STORY_VERBS: dict[Operator, tuple[str, ...]] = {
    "+": ("buys", "finds", "gets", "wins"),
    "-": ("loses", "sells", "gives away", "eats"),
}


@dataclass(frozen=True, slots=True)
class Operation:
    left: int
    operator: Operator
    right: int
    result: int

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right} = {self.result}"


Steps = tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Exercise:
    prompt: str
    steps: Steps
    verb: str | None  # the corpus ties its style to this verb

    @property
    def level(self) -> int:
        return len(self.steps)

    @property
    def answer(self) -> int:
        return self.steps[-1].result


def generate(family: Family, split: Split, n: int, seed: int, levels: Sequence[int] | None = None) -> list[Problem]:
    """Draw n different problems, evenly over ascending levels; the lowest get one more if n is not divisible."""
    levels = levels or LEVELS[family]
    require_capacity(family, split, n, tuple(levels))
    rng = random.Random(f"{family}/{split}/{seed}")
    exercises: list[Exercise] = []
    for level, share in shares(levels, n):
        if family == "facts":
            exercises += draw_facts(rng, split, share)
            continue
        drawn: dict[str, Exercise] = {}
        while len(drawn) < share:
            exercise = draw(rng, family, split, level)
            drawn.setdefault(exercise.prompt, exercise)
        exercises += drawn.values()
    rng.shuffle(exercises)
    problems = []
    for number, exercise in enumerate(exercises):
        problem = Problem(
            problem_id=f"{family}-{split}-{number:05d}",
            prompt=exercise.prompt,
            answer=str(exercise.answer),
            level=exercise.level,
            subject=family,
            source=f"synthetic:{family}:{split}",
            cluster=expression(exercise.steps),
        )
        problems.append(problem)
    return problems


@cache
def require_capacity(family: Family, split: Split, n: int, levels: tuple[int, ...]) -> None:
    """Raise a ValueError if n different problems of these levels do not exist."""
    for level, share in shares(levels, n):
        available = _count(family, split, level, share)
        if available < share:
            raise ValueError(
                f"{family}, level {level}: {share} different {split} problems asked for, {available} exist: "
                f"lower n to at most {available * len(levels)}"
            )


def shares(levels: Sequence[int], n: int) -> list[tuple[int, int]]:
    share, rest = divmod(n, len(levels))
    return [(level, share + (position < rest)) for position, level in enumerate(levels)]


def draw(rng: random.Random, family: Family, split: Split, level: int) -> Exercise:
    """Draw steps until their expression is in the split, and word them."""
    steps = draw_steps(rng, level, operators(family, level))
    while split_of(expression(steps), family) != split:
        steps = draw_steps(rng, level, operators(family, level))
    if family == "word_problems":
        return _word_problem(rng, steps)
    return _with_verb(steps, rng.choice(VERBS))


def draw_facts(rng: random.Random, split: Split, n: int) -> list[Exercise]:
    """Draw n facts; an expression gets a second wording only if all expressions have one.

    Benchmarks therefore have as many independent questions as possible.
    """
    facts = _facts(split)
    rng.shuffle(facts)
    verbs = [rng.sample(VERBS, len(VERBS)) for _ in facts]
    exercises = []
    for number in range(n):
        wording, place = divmod(number, len(facts))
        exercises.append(_with_verb(facts[place], verbs[place][wording]))
    return exercises


def draw_steps(rng: random.Random, n: int, choices: tuple[Operator, ...]) -> Steps:
    value = rng.choice(START)
    steps = []
    for _ in range(n):
        step = rng.choice(_moves(value, choices))
        steps.append(step)
        value = step.result
    return tuple(steps)


def operators(family: Family, level: int) -> tuple[Operator, ...]:
    """Repeats act as weights: mod is half as likely as the others."""
    if family == "word_problems" or level == 1:
        return ("+", "-")
    if level == 2:
        return ("+", "-", "*")
    return ("+", "-", "*", "+", "-", "*", "mod")


def apply(left: int, operator: Operator, right: int) -> int:
    return OPERATIONS[operator](left, right)


def expression(steps: Steps) -> str:
    return str(steps[0].left) + "".join(f" {step.operator} {step.right}" for step in steps)


def split_of(text: str, family: Family = "arithmetic") -> Split:
    """Return the split of an expression, the same on every machine."""
    train, development = SPLIT_BOUNDS[family]
    bucket = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 10
    if bucket < train:
        return "train"
    return "development" if bucket < development else "test"


@cache
def _moves(value: int, choices: tuple[Operator, ...]) -> Steps:
    moves = []
    for operator, right in itertools.product(choices, OPERANDS):
        result = apply(value, operator, right)
        is_idle = operator == "mod" and value < right
        if 0 <= result <= MAX_VALUE and not is_idle:
            moves.append(Operation(value, operator, right, result))
    return tuple(moves)


def _facts(split: Split) -> list[Steps]:
    """List the facts of a split whose result is not negative."""
    facts: list[Steps] = []
    for left, operator, right in itertools.product(FACT_NUMBERS, FACT_OPERATORS, FACT_OPERANDS):
        fact = Operation(left, operator, right, apply(left, operator, right))
        if fact.result >= 0 and split_of(expression((fact,)), "facts") == split:
            facts.append((fact,))
    return facts


def _with_verb(steps: Steps, verb: str) -> Exercise:
    return Exercise(f"{verb} {expression(steps)}.", steps, verb)


def _word_problem(rng: random.Random, steps: Steps) -> Exercise:
    name = rng.choice(NAMES)
    objects = rng.choice(THINGS)
    story = [f"{name} has {steps[0].left} {objects}."]
    for step in steps:
        verb = rng.choice(STORY_VERBS[step.operator])
        story.append(f"{name} {verb} {step.right}.")
    story.append(f"How many {objects} does {name} have?")
    return Exercise(" ".join(story), steps, None)


def _count(family: Family, split: Split, level: int, enough: int) -> int:
    """Count up to `enough` problems; level 5 has 70 million."""
    if family == "facts":
        return len(_facts(split)) * len(VERBS)
    available = 0
    for steps in _all_steps(level, tuple(dict.fromkeys(operators(family, level)))):
        if available >= enough:
            break
        if split_of(expression(steps), family) == split:
            available += _wordings(family, steps)
    return available


def _wordings(family: Family, steps: Steps) -> int:
    if family == "arithmetic":
        return len(VERBS)
    return len(NAMES) * len(THINGS) * math.prod(len(STORY_VERBS[step.operator]) for step in steps)


def _all_steps(n: int, choices: tuple[Operator, ...], starts: Iterable[int] = START) -> Iterator[Steps]:
    if n == 0:
        yield ()
        return
    for start in starts:
        for move in _moves(start, choices):
            for rest in _all_steps(n - 1, choices, [move.result]):
                yield (move, *rest)
