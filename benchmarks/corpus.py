"""Pretraining corpus of the demonstration model: solutions by an imperfect author, so that online RL can improve it.

The author has four styles and gets some facts systematically wrong. Drills are facts without a problem.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Iterator
from typing import Literal, get_args

from g2d.problems.synthetic import (
    LEVELS,
    NAMES,
    STORY_VERBS,
    THINGS,
    VERBS,
    Exercise,
    Family,
    Operation,
    Operator,
    Steps,
    apply,
    draw,
    draw_steps,
)

Style = Literal["worked", "hasty", "unboxed", "unterminated"]

# Tuned so that the base model solves about half of the problems and many are pairable.
DRILL_SHARE = 0.30  # share of all documents
WORD_PROBLEM_SHARE = 0.25  # share of the solutions
DRILL_FACTS = 7  # about the length of a worked level-5 solution
DRILL_OPERATORS: tuple[Operator, ...] = ("+", "-", "+", "-", "*", "mod")

# Log-odds that the author shows the work. They differ by verb, so that some prompts have right and wrong rollouts.
LEVEL_BIAS = {1: 2.6, 2: -0.3, 3: -0.1, 4: -0.6, 5: -3.0}
VERB_BIAS = dict(zip(VERBS, (3.4, 2.4, 1.4, 0.5, -0.5, -1.4, -2.4, -3.4), strict=True))
WORD_PROBLEM_BIAS = 2.2

UNBOXED_SHARE = 0.04  # shares of worked solutions
UNTERMINATED_SHARE = 0.02

HARD_FACTS = {"+": 0.08, "-": 0.08, "*": 0.30, "mod": 0.30}  # share that the author may get wrong
SLIP_RATE = 0.6  # above one half, so the model prefers the wrong result


def corpus_document(rng: random.Random) -> tuple[str, str]:
    if rng.random() < DRILL_SHARE:
        return "", drill(rng)
    family: Family = "word_problems" if rng.random() < WORD_PROBLEM_SHARE else "arithmetic"
    exercise = draw(rng, family, "train", rng.choice(LEVELS[family]))
    style = draw_style(rng, exercise)
    # The hasty author is right, but the model cannot always compute the answer in one step.
    steps = exercise.steps if style == "hasty" else with_slips(rng, exercise.steps)
    return exercise.prompt, render(steps, style)


def drill(rng: random.Random) -> str:
    return _working(tuple(with_slips(rng, draw_steps(rng, 1, DRILL_OPERATORS))[0] for _ in range(DRILL_FACTS)))


def draw_style(rng: random.Random, exercise: Exercise) -> Style:
    verb = exercise.verb
    log_odds = WORD_PROBLEM_BIAS if verb is None else LEVEL_BIAS[exercise.level] + VERB_BIAS[verb]
    if rng.random() > 1 / (1 + math.exp(-log_odds)):
        return "hasty"
    u = rng.random()
    if u < UNBOXED_SHARE:
        return "unboxed"
    return "unterminated" if u < UNBOXED_SHARE + UNTERMINATED_SHARE else "worked"


def slip(left: int, operator: Operator, right: int) -> int | None:
    u = zlib.crc32(f"{left}{operator}{right}".encode()) / 2**32
    if u >= HARD_FACTS[operator]:
        return None
    result = apply(left, operator, right)
    one_up = (u * 1e4) % 1 < 0.5 or result == 0
    return result + 1 if one_up else result - 1


def with_slips(rng: random.Random, steps: Steps) -> Steps:
    value, written = steps[0].left, []
    for step in steps:
        result, wrong = apply(value, step.operator, step.right), slip(value, step.operator, step.right)
        if wrong is not None and rng.random() < SLIP_RATE:
            result = wrong
        written.append(Operation(value, step.operator, step.right, result))
        value = result
    return tuple(written)


def render(steps: Steps, style: Style) -> str:
    working, answer = _working(steps), steps[-1].result
    written: dict[Style, str] = {
        "worked": f"{working} \\boxed{{{answer}}}",
        "hasty": f"Clearly \\boxed{{{answer}}}",
        "unboxed": f"{working} So {answer}.",
        "unterminated": f"{working} \\boxed{{{answer}",
    }
    return written[style]


def vocabulary_texts() -> Iterator[str]:
    """Yield texts with every word and number, each with and without a leading space.

    Numbers over 99 are split into groups of two digits.
    """
    for number in range(100):
        yield f"{number} {number} {{{number}}}"
    steps = tuple(Operation(1, operator, 2, 3) for operator in get_args(Operator))
    for style in get_args(Style):
        yield render(steps, style)
    yield render((Operation(1, "-", 2, -1),), "worked")
    yield from (f"{verb} 1 + 2." for verb in VERBS)
    for name in NAMES:
        yield f"{name} has 1. {name} has 1."
    for thing in THINGS:
        yield f"has 1 {thing}. How many {thing} does Ann have?"
    for verbs in STORY_VERBS.values():
        yield from (f"Ann {verb} 1." for verb in verbs)


def _working(steps: Steps) -> str:
    return "First" + "".join(f" {step}." for step in steps)
