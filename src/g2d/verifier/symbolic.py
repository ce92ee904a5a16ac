"""Strict use of Math-Verify: one boxed answer, no anchors, no timeouts, gold before answer.

A worker process enforces the deadline: the SIGALRM of Math-Verify's timeouts does not interrupt C code.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product

import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended.latex2sympy2 import PSParser, _Latex2Sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
from math_verify import LatexExtractionConfig, parse, verify

from g2d.verifier import guards, statements, units
from g2d.verifier.guards import Readings
from g2d.verifier.intervals import same_interval
from g2d.verifier.normalise import normalise
from g2d.verifier.verifier import Verdict
from g2d.verifier.words import letters_differ, same_choice, same_words

# Math-Verify logs a warning for calls without a timeout.
logging.getLogger("math_verify").setLevel(logging.CRITICAL)

_BOXED = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
_BOXED_WITH_UNITS = replace(_BOXED, normalization_config=replace(_BOXED.normalization_config, units=False))
_KEEP_UNITS = NormalizationConfig(units=False, boxed="none")
_DROP_UNITS = NormalizationConfig(units=True, boxed="none")


def judge(reference: str, answer: str) -> Verdict:
    """Compare an answer with the reference."""
    gold = prepare(reference)
    target = prepare(answer)
    for pair in product(sides(gold) or [gold], sides(target)):
        if agree(*pair) or any(agree(*others) for others in rephrased(*pair)):
            return "correct"
    if same_words(gold.latex, target.latex) is not None:
        return "incorrect"
    _, answered = readings(gold, target)
    is_parsed = any(not isinstance(reading, str) for reading in answered)
    return "incorrect" if is_parsed else "parse_error"


_PACKED = re.compile("[0-9]{1,3}(?:,[0-9]{3})+")  # a number or a list


def sides(side: Prepared) -> list[Prepared]:
    r"""Return both sides of `\frac{50}{3} \approx 16.67`, none if the second does not round the first."""
    exact, sign, rounded = side.latex.rpartition(r"\approx")
    if not sign:
        return [side]
    given, found = prepare(exact), prepare(rounded)
    value = guards.value(read(prepare(exact.rpartition("=")[2]).latex, keep_units=False))
    other = guards.value(read(found.latex, keep_units=False))
    if value is None or other is None:
        return [found] if statements.split_name(f"{exact}= 0") else []
    decimals = re.findall(r"[0-9]", found.latex.partition(".")[2])
    return [given, found] if abs(value - other) <= 0.5000001 * 10.0 ** -len(decimals) else []


# Each rejects answers that Math-Verify wrongly finds equal.
_REJECTIONS = (
    guards.bases_differ,
    guards.subscripts_differ,
    guards.numbers_side_by_side,
    guards.only_absolute_value,
    guards.ratios_differ,
    guards.coordinates_out_of_order,
    letters_differ,
    statements.names_differ,
)


def agree(gold: Prepared, target: Prepared) -> bool:
    if guards.not_a_number(gold.latex, target.latex):
        return False
    if same_words(gold.latex, target.latex) or same_choice(gold.latex, target.latex):
        return True
    expected, answered = readings(gold, target)
    is_equal = _equal(expected, answered)
    if not is_equal and not same_interval(expected, target.latex, partial(read, keep_units=True), _equal):
        return False
    if units.differ(gold.tail, target.tail) or _sets_differ(gold, target):
        return False
    if any(rejects(gold.latex, target.latex) for rejects in _REJECTIONS):
        return False
    if guards.undefined(expected, answered) or guards.unsolved_differ(expected, answered, _equal):
        return False
    return not (guards.magnitudes_differ(expected, answered) or _case_differs(gold, target))


def rephrased(gold: Prepared, target: Prepared) -> Iterator[tuple[Prepared, Prepared]]:
    r"""Yield both answers without names, as lists, with coordinates in order, and without one's percent sign.

    `100,200` may be a list. If only the answer has a percent sign, it is dropped if the reference is 1 or more:
    `12.5\%` is 12.5, but 0.5 is 50 %.
    """
    own = statements.split_name(gold.latex)
    other = statements.split_name(target.latex)
    names = {named[0] for named in (own, other) if named}
    unnamed = [side.latex for side, named in ((gold, own), (target, other)) if named is None]
    if len(names) == 1 and not any(map(statements.RELATION.search, unnamed)):  # `2x=5` is not `x=5`
        gold = prepare(own[1]) if own else gold
        target = prepare(other[1]) if other else target
        yield gold, target
    if ", " in gold.latex and _PACKED.fullmatch(target.latex):
        yield gold, prepare(target.latex.replace(",", ", "))
    elif ", " in target.latex and target.latex.replace(" ", "") == gold.latex:
        yield gold, gold
    ordered = guards.coordinates_in_order(gold.latex, target.latex)
    if ordered is not None:
        yield gold, prepare(ordered)
    if units.differ(gold.tail, target.tail):
        return
    expected = statements.without_percent(gold.latex)
    answered = statements.without_percent(target.latex)
    if expected is not None and answered is None:
        yield prepare(expected), target
    elif answered is not None and expected is None:
        number = guards.value(read(gold.latex, keep_units=False))
        if number is not None and abs(number) >= 1:
            yield gold, prepare(answered)


def readings(gold: Prepared, target: Prepared) -> tuple[Readings, Readings]:
    """Let Math-Verify read both answers, with or without their units."""
    # A tail that may be part of the mathematics is kept.
    keep_units = not (gold.tail.is_label and target.tail.is_label)
    return read(gold.latex, keep_units), read(target.latex, keep_units)


def _case_differs(gold: Prepared, target: Prepared) -> bool:
    """Reject 1 for `R/r`: Math-Verify does not distinguish capitals from small letters."""
    renamed = guards.with_capitals_renamed(gold.latex, target.latex)
    if renamed is None:
        return False
    expected, answered = renamed
    return not _equal(read(expected, keep_units=True), read(answered, keep_units=True))


def _sets_differ(gold: Prepared, target: Prepared) -> bool:
    """Reject `k \\in N` for `k \\in Z`; one side may omit its set."""
    return gold.numbers is not None and target.numbers is not None and gold.numbers != target.numbers


def _equal(gold: Readings, target: Readings) -> bool:
    return bool(verify(list(gold), list(target), timeout_seconds=None)) or _same_number(gold, target)


_I = sympy.Symbol("i", real=False)  # as Math-Verify reads it, so that it does not compute with it


def _same_number(gold: Readings, target: Readings) -> bool:
    r"""Return whether complex numbers and decimals are equal: `2e^{i\pi/2}` and `2i`, `7^{0.5}` and `\sqrt7`."""
    a, b = [readings[0] if readings else None for readings in (gold, target)]
    if not (isinstance(a, sympy.Expr) and isinstance(b, sympy.Expr) and a.free_symbols | b.free_symbols <= {_I}):
        return False
    decimals = a.atoms(sympy.Float) | b.atoms(sympy.Float)
    exact = {decimal: sympy.Rational(str(decimal)) for decimal in decimals}
    difference = (a.xreplace(exact) - b.xreplace(exact)).subs(_I, sympy.I)
    if difference.is_Rational or not (decimals or a.has(_I) or b.has(_I)):
        return bool(difference == 0)
    try:
        return abs(complex(difference.doit().evalf(50))) < 1e-40
    except (TypeError, OverflowError):
        return False


@dataclass(frozen=True, slots=True)
class Prepared:
    latex: str
    tail: units.Tail
    numbers: str | None = None  # set of the letters in its qualifier: Z, N, ...


@lru_cache(maxsize=4096)
def prepare(answer: str) -> Prepared:
    """Normalise, drop a qualifier, and find the tail: words behind a number, or text that Math-Verify drops."""
    latex = normalise(answer)
    qualified = statements.split_qualifier(latex)
    if qualified:
        return replace(prepare(qualified[0]), numbers=qualified[1])
    labelled = units.split_label(latex)
    if labelled:
        return Prepared(*labelled)
    whole = normalize_latex(latex, _KEEP_UNITS)
    quantity = normalize_latex(latex, _DROP_UNITS)
    tail = whole[len(quantity) :] if whole.startswith(quantity) else whole
    if not tail:
        return Prepared(latex, units.read_symbol(latex))
    return Prepared(latex, units.read_tail(quantity, tail, is_price=r"\$" in latex))


@lru_cache(maxsize=4096)
def read(latex: str, keep_units: bool) -> Readings:
    """Return a sympy object if Math-Verify can parse it, and the normalised string."""
    config = _BOXED_WITH_UNITS if keep_units else _BOXED
    return tuple(parse(rf"\boxed{{{latex}}}", extraction_config=[config], parsing_timeout=None))


# ANTLR takes nearly all of Math-Verify's time. Only the speed-up, not correctness, relies on pinned versions.


def parse_in_two_stages() -> None:
    _Latex2Sympy.create_parser = in_two_stages(_Latex2Sympy.create_parser)


CreateParser = Callable[[_Latex2Sympy, str], PSParser]


def in_two_stages(create_parser: CreateParser) -> CreateParser:
    """Try ANTLR's SLL prediction, because it caches its decisions, and fall back to LL.

    ANTLR guarantees that SLL either gives the same tree as LL or reports a syntax error.
    """

    def create(self: _Latex2Sympy, latex: str) -> PSParser:
        parser = create_parser(self, latex)
        parse = parser.math

        def math() -> PSParser.MathContext:
            parser._interp.predictionMode = PredictionMode.SLL
            try:
                return parse()
            except Exception:
                return create_parser(self, latex).math()

        parser.math = math
        return parser

    return create
