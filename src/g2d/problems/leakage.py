"""Train/test leakage: benchmark problems in the training pool, also in another layout, but not paraphrased."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, product

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
_SIZING = {rf"\{size}{side}" for size, side in product(("big", "Big", "bigg", "Bigg"), ("", "l", "m", "r"))}
_SPACING = {r"\,", r"\;", r"\:", r"\!", r"\>", "\\ ", "\\\n", r"\quad", r"\qquad", "~"}
_MATH_MODE = {"$", r"\$", r"\(", r"\)", r"\[", r"\]", r"\displaystyle"}
_PUNCTUATION = set('.,;?"“”`')
_DROPPED = _SIZING | _SPACING | _MATH_MODE | _PUNCTUATION | {r"\left", r"\middle", r"\right"}
_SAME = {r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\%": "%", "−": "-", "’": "'", "‘": "'"}


def text_key(prompt: str) -> str:
    """Return a text without layout and punctuation, for comparing."""
    kept = []
    for token in _TOKEN.findall(prompt):
        if token in _DROPPED:
            continue
        if token in _SAME:
            kept.append(_SAME[token])
        elif token.startswith("\\"):  # \Delta is not \delta
            kept.append(token)
        else:
            kept.append(token.casefold())
    return " ".join(kept)


def find_leaks(train: Sequence[Problem], test: Sequence[Problem]) -> dict[str, str]:
    """Return the ids of test problems that are in the training set, with the first id they have there."""
    train_ids: dict[str, str] = {}
    for problem in train:
        train_ids.setdefault(text_key(problem.prompt), problem.problem_id)
    leaks = {}
    for problem in test:
        train_id = train_ids.get(text_key(problem.prompt))
        if train_id is not None:
            leaks[problem.problem_id] = train_id
    return leaks


def assert_no_leakage(
    train: Sequence[Problem], test: Sequence[Problem], place: str, among: str = "the training pool"
) -> None:
    """Raise a ValueError if problems of the benchmark at the key `place` are in the pool `among`."""
    leaks = find_leaks(train, test)
    if not leaks:
        return
    listed = [f"{test_id} = {train_id}" for test_id, train_id in islice(leaks.items(), 3)]
    if len(leaks) > len(listed):
        listed.append("...")
    raise ValueError(
        f"{place}: {len(leaks)} of {len(test)} problems are in {among} ({', '.join(listed)}; benchmark id = pool id): "
        "remove them from the pool, or choose another split"
    )
