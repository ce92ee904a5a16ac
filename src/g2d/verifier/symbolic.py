"""Math-Verify, called strictly: one boxed answer, no anchors, no timeouts of its own, gold before answer.

Runs in a worker process (`g2d.verifier.worker`): sympy is slow to import, and nothing in here is bounded in time.
Math-Verify's SIGALRM timeouts are off, because they work in whole seconds, only in a main thread, and cannot
interrupt C code; the deadline belongs to the process.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
from math_verify import LatexExtractionConfig, parse, verify

from g2d.verifier import guards, units
from g2d.verifier.intervals import same_interval
from g2d.verifier.normalise import normalise
from g2d.verifier.verdict import Verdict

# Every call without a timeout would log a warning about that.
logging.getLogger("math_verify").setLevel(logging.CRITICAL)

_BOXED = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
_BOXED_WITH_UNITS = replace(_BOXED, normalization_config=replace(_BOXED.normalization_config, units=False))
_KEEP_UNITS = NormalizationConfig(units=False, boxed="none")
_DROP_UNITS = NormalizationConfig(units=True, boxed="none")


def judge(reference: str, answer: str) -> Verdict:
    """Compare two answers, with or without a box around them: `correct`, `incorrect` or `parse_error`."""
    gold, target = prepare(reference), prepare(answer)
    # Where a tail is no unit but part of the mathematics, neither side may lose its own.
    keep_units = not (gold.tail.is_label and target.tail.is_label)
    expected, found = read(gold.latex, keep_units), read(target.latex, keep_units)
    if _equal(list(expected), list(found)) or same_interval(
        expected, target.latex, partial(read, keep_units=True), _equal
    ):
        vetoed = (
            units.differ(gold.tail, target.tail)
            or guards.bases_differ(gold.latex, target.latex)
            or guards.numbers_side_by_side(gold.latex, target.latex)
            or guards.words_differ(gold.latex, target.latex)
            or guards.not_a_number(gold.latex, target.latex)
            or guards.undefined(expected, found)
            or guards.magnitudes_differ(expected, found)
        )
        return "incorrect" if vetoed else "correct"
    # Math-Verify hands back the bare string when nothing else came of it.
    return "incorrect" if any(not isinstance(reading, str) for reading in found) else "parse_error"


def _equal(gold: Any, target: Any) -> bool:
    return verify(gold, target, timeout_seconds=None)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A normalised answer, and the tail that says what it counts: dropped here, or by Math-Verify."""

    latex: str
    tail: units.Tail


@lru_cache(maxsize=4096)
def prepare(answer: str) -> Prepared:
    """Normalise, and find the tail: by what stands behind a number, or as what Math-Verify drops as a unit."""
    latex = normalise(answer)
    if labelled := units.split_label(latex):
        return Prepared(*labelled)
    whole, quantity = (normalize_latex(latex, config) for config in (_KEEP_UNITS, _DROP_UNITS))
    tail = whole[len(quantity) :] if whole.startswith(quantity) else whole
    if not tail:
        return Prepared(latex, units.read_symbol(latex))
    return Prepared(latex, units.read_tail(quantity, tail))


@lru_cache(maxsize=4096)
def read(latex: str, keep_units: bool) -> tuple[Any, ...]:
    """Math-Verify's readings of an answer: a sympy object where it parses, and the normalised string."""
    config = _BOXED_WITH_UNITS if keep_units else _BOXED
    return tuple(parse(rf"\boxed{{{latex}}}", extraction_config=[config], parsing_timeout=None))
