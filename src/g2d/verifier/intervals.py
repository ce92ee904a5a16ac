r"""Solved inequalities as intervals: `x < -5 \text{ or } x \ge 7` for $(-\infty,-5)\cup[7,\infty)$.

Math-Verify compares a relation with a set only if the relation is the reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import sympy
from latex2sympy2_extended.logic import And
from sympy.core.relational import GreaterThan, LessThan, Relational, StrictLessThan

from g2d.verifier.guards import Equal, Readings

Reader = Callable[[str], Readings]
LETTERS = (sympy.Symbol, sympy.core.function.AppliedUndef)
Solution = tuple[sympy.Expr, sympy.Set]  # letter, values

_OR = re.compile(r"\\text\s*\{\s*or\s*\}|\\(?:lor|vee)(?![A-Za-z])|(?<![A-Za-z\\])or(?![A-Za-z])")
_AND = re.compile(r"\\text\s*\{\s*and\s*\}|\\(?:land|wedge)(?![A-Za-z])|(?<![A-Za-z\\])and(?![A-Za-z])")
_RELATION = re.compile(r"[<>≤≥≠]|\\(?:[lg]eq?|[lg]t|neq?)(?![A-Za-z])")
MAX_PARTS = 8


def same_interval(reference: Readings, answer: str, read: Reader, equal: Equal) -> bool:
    """Return whether an answer is a solved inequality whose solutions are the reference, an interval or a union."""
    if not reference or not _RELATION.search(answer):
        return False
    interval = reference[0]
    letter = None
    if isinstance(interval, sympy.Eq) and isinstance(interval.rhs, sympy.Set):  # x \in [1,2]
        letter = interval.lhs
        interval = interval.rhs
    if not _is_interval(interval):
        return False
    solved = _solve(answer, read)
    if solved is None or letter not in (None, solved[0]):
        return False
    return equal([interval], [solved[1]])


def _is_interval(reading: object) -> bool:
    if isinstance(reading, sympy.Union):
        return all(map(_is_interval, reading.args))
    return isinstance(reading, sympy.Interval)


def _solve(latex: str, read: Reader) -> Solution | None:
    for connective, combine in ((_OR, sympy.Union), (_AND, sympy.Intersection)):
        parts = connective.split(latex)
        if 1 < len(parts) <= MAX_PARTS:
            return _combined(combine, (_solved(read(part)) for part in parts))
    return _solved(read(latex))


def _solved(readings: Readings) -> Solution | None:
    if not readings:
        return None
    reading = readings[0]
    relations = reading._unsorted_args if isinstance(reading, And) else [reading]
    return _combined(sympy.Intersection, map(_ray, relations))


def _combined(combine: Callable[..., sympy.Set], solutions: Iterable[Solution | None]) -> Solution | None:
    combined: list[Solution] = []
    for solution in solutions:
        if solution is None or (combined and combined[0][0] != solution[0]):
            return None
        combined.append(solution)
    return combined[0][0], combine(*(values for _, values in combined))


def _ray(reading: object) -> Solution | None:
    """Solve a relation between a letter and a number; None for any other."""
    if not isinstance(reading, Relational) or isinstance(reading, sympy.Eq):
        return None
    relation: Relational = reading if isinstance(reading.lhs, LETTERS) else reading.reversed  # 3 < x is x > 3
    kind = type(relation)
    letter = relation.lhs
    bound = relation.rhs
    if not isinstance(letter, LETTERS) or not isinstance(bound, sympy.Expr) or bound.free_symbols:
        return None
    bound = bound.doit()
    if not bound.is_extended_real:
        return None
    below = sympy.Interval(-sympy.oo, bound, right_open=kind is not LessThan)
    above = sympy.Interval(bound, sympy.oo, left_open=kind is not GreaterThan)
    if kind is sympy.Ne:
        return letter, sympy.Union(below, above)
    return letter, below if kind in (LessThan, StrictLessThan) else above
