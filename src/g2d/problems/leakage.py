"""Train/test leakage: benchmark problems in the training pool, also in another layout, but not paraphrased."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from g2d.problems.problem import Problem

# An ellipsis (1,2,...,5) and a factorial are mathematics. Commas can go: numbers remain separate tokens.
_TOKEN = re.compile(
    r"""
      \\[A-Za-z]+            # a LaTeX command
    | \\[\s\S]               # an escaped character
    | [^\W\d_]+              # a word, or letters of a formula
    | \d+(?:\.\d+)? | \.\d+  # a number
    | \.{2,}                 # an ellipsis
    | [^\w\s] | _            # any other symbol
    """,
    re.VERBOSE,
)
_SIZING = {rf"\{size}{side}" for size in ("big", "Big", "bigg", "Bigg") for side in ("", "l", "m", "r")}
_SPACING = {r"\,", r"\;", r"\:", r"\!", r"\>", "\\ ", "\\\n", r"\quad", r"\qquad", "~"}
_MATH_MODE = {"$", r"\$", r"\(", r"\)", r"\[", r"\]", r"\displaystyle"}
_PUNCTUATION = set('.,;?"“”`')
_DROPPED = _SIZING | _SPACING | _MATH_MODE | _PUNCTUATION | {r"\left", r"\middle", r"\right"}
_SAME = {r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\%": "%", "−": "-", "’": "'", "‘": "'"}


def text_key(prompt: str) -> str:
    # Commands keep their case: \Delta is not \delta.
    return " ".join(
        _SAME.get(token) or (token if token.startswith("\\") else token.casefold())
        for token in _TOKEN.findall(prompt)
        if token not in _DROPPED
    )


def find_leaks(train: Sequence[Problem], test: Sequence[Problem]) -> dict[str, str]:
    train_ids = {text_key(problem.prompt): problem.problem_id for problem in reversed(train)}
    matches = ((problem.problem_id, train_ids.get(text_key(problem.prompt))) for problem in test)
    return {test_id: train_id for test_id, train_id in matches if train_id is not None}


def assert_no_leakage(
    train: Sequence[Problem], test: Sequence[Problem], place: str, among: str = "the training pool"
) -> None:
    """Raise a ValueError if problems of the benchmark at the key `place` are in the pool `among`."""
    if leaks := find_leaks(train, test):
        first = ", ".join(f"{test_id} = {train_id}" for test_id, train_id in islice(leaks.items(), 3))
        raise ValueError(
            f"{place}: {len(leaks)} of {len(test)} problems are in {among} "
            f"({first}{', ...' if len(leaks) > 3 else ''}; benchmark id = pool id): remove them from "
            "the pool, or choose another split"
        )
