"""Verdicts on problems of reasoning-gym: correct if the task's `score_answer` gives 1.

Some tasks evaluate the answer as Python. A completion must not run code, so `ast.literal_eval` replaces their `eval`,
and text for sympy's `parse_expr` must be a formula with allowed names.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from g2d.verifier.verdict import Verdict

# Tasks that evaluate an answer; a test compares both lists with the package.
EVALUATING = (
    "algorithmic.binary_matrix",
    "algorithmic.spiral_matrix",
    "algorithmic.string_insertion",
    "games.n_queens",
)
FORMULAS = ("countdown", "puzzle24", "polynomial_multiplication", "simple_integration", "intermediate_integration")

_FORMULA = re.compile(r"[A-Za-z0-9+\-*/^(),.\s]*")
_NAME = re.compile(r"[A-Za-z]+")
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z]")
_NAMES = frozenset(
    (
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
        *("atanh", "exp", "log", "ln", "sqrt", "Abs", "pi"),
    )
)


class Entry(NamedTuple):
    literal: str  # Python literal with task, config and entry


def judge(entry: str, answer: str) -> Verdict:
    """Judge an answer; raises any error of the task."""
    problem = _read(entry)
    if problem["task"] in FORMULAS and not _is_formula(answer):
        return "parse_error"
    score = _dataset(problem["task"], repr(problem["config"])).score_answer(answer, problem["entry"])
    return "correct" if score == 1 else "incorrect"


@cache
def prepare() -> None:
    """Import reasoning-gym (takes seconds) and restrict its `eval` to literals."""
    for module in EVALUATING:
        setattr(import_module(f"reasoning_gym.{module}"), "eval", ast.literal_eval)  # noqa: B010


def _is_formula(answer: str) -> bool:
    """Return whether `parse_expr` can only do arithmetic."""
    names = _NAME.findall(answer)
    return (
        _FORMULA.fullmatch(answer) is not None
        and _ATTRIBUTE.search(answer) is None
        and all(len(name) == 1 or name in _NAMES for name in names)
    )


@cache
def _dataset(task: str, config: str) -> Any:
    from reasoning_gym import create_dataset

    return create_dataset(task, seed=0, size=1, **ast.literal_eval(config))


def _read(entry: str) -> dict[str, Any]:
    problem: dict[str, Any] = ast.literal_eval(entry)
    return problem
