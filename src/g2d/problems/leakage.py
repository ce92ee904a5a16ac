r"""Train/test leakage: benchmark problems that are in the training pool, however they are typeset.

Problems are compared by the sequence of their words, numbers, LaTeX commands and symbols, without what only changes
their looks (`$`, spacing and sizing commands, sentence punctuation, case of words). Paraphrases and translations are
not found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from g2d.problems.problem import Problem

# An ellipsis is mathematics (1,2,...,5) and a comma between numbers leaves them two tokens; ! is a factorial.
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


class LeakageError(ValueError):
    """Benchmark problems are in the training pool."""


@dataclass(frozen=True, slots=True)
class Leak:
    """One benchmark problem that is in the training pool."""

    benchmark: str
    problem_id: str
    train_ids: tuple[str, ...]


def text_key(prompt: str) -> str:
    """A key that two prompts share if they have the same words and symbols."""
    tokens = []
    for token in _TOKEN.findall(prompt):
        if token in _DROPPED:
            continue
        # Case is kept in commands: \Delta and \delta are two symbols.
        tokens.append(_SAME.get(token) or (token if token.startswith("\\") else token.casefold()))
    return " ".join(tokens)


def find_leaks(train: Sequence[Problem], tests: Mapping[str, Sequence[Problem]]) -> list[Leak]:
    """Benchmark problems that are in the training pool, in the order of the benchmarks and their rows."""
    train_ids: dict[str, list[str]] = {}
    for problem in train:
        train_ids.setdefault(text_key(problem.prompt), []).append(problem.problem_id)
    leaks = []
    for benchmark, problems in tests.items():
        for problem in problems:
            if same := train_ids.get(text_key(problem.prompt)):
                leaks.append(Leak(benchmark, problem.problem_id, tuple(same)))
    return leaks


def assert_no_leakage(
    train: Sequence[Problem],
    tests: Mapping[str, Sequence[Problem]],
    section: str = "benchmarks",
    among: str = "the training pool",
) -> None:
    """Check that no benchmark problem is in the training pool.

    Args:
        train: problems of the pool.
        tests: problems by benchmark.
        section: of the benchmarks in the configuration, for the message.
        among: name of the pool in the message.

    Raises:
        LeakageError: one line per benchmark: how many, the first ids, and the fix.
    """
    leaks = find_leaks(train, tests)
    if not leaks:
        return
    lines = []
    for benchmark, problems in tests.items():
        found = [leak for leak in leaks if leak.benchmark == benchmark]
        if found:
            first = ", ".join(f"{leak.problem_id} = {leak.train_ids[0]}" for leak in found[:3])
            lines.append(
                f"{section}.{benchmark}: {len(found)} of {len(problems)} problems are in {among} "
                f"({first}{', ...' if len(found) > 3 else ''}; benchmark id = pool id): remove them from "
                "the pool, or choose another split"
            )
    raise LeakageError("\n".join(lines))
