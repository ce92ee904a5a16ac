"""Normalised answers, and the time that hostile ones take."""

from __future__ import annotations

import re

import pytest

from g2d.verifier.normalise import normalise
from g2d.verifier.statements import split_name, split_qualifier, without_percent

from .answers import CASES


def test_twice_is_once():
    for case in CASES:
        for side in (case.reference, case.answer):
            once = normalise(side)
            assert normalise(once) == once


UNCHANGED = r"""
{1}+{2}   \(1\)+\(2\)   \{5\}   {5\}   {5   1, 2, ...   1, 2, \ldots   5!   \boxedx   \bigcup   x\leq3   \inf S   inform
x ~= 5   \sqrt13   \sqrt(3   (3)   4<|im_end|>2   x<5   1, 234   12 34   1234 567   12 3456   0 123   1 000 12   5 in
\frac 1 234   x^2 345   \log_2 128   1.5 000   \pi   2\xi   hi   \text{A}i
"""
CHANGED = r"""
\boxed{5} -> 5   \fbox {5} -> 5   \boxed{{\boxed{5}}} -> 5   {5} -> 5   \(5\) -> 5   \[ {5} \] -> 5   42<|im_end|> -> 42
42</s>  -> 42   5. -> 5   5 ,; -> 5   5\, -> 5   5\;. -> 5   5 \\ -> 5   \text{yes.} -> \text{yes}
x=\boxed{3} -> x= 3   \boxed{1}+\boxed{2} -> 1 + 2   2\boxed{a+b} -> 2(a+b)   2\boxed{-b} -> 2 -b   x^\boxed{5} -> x^{5}
\sqrt\boxed{2} -> \sqrt{2}   \frac{1}{\boxed{2}} -> \frac{1}{ 2 }   \{\boxed{1}\} -> \{ 1 \}   x=\boxed 5 -> x=5
x=\boxed{5 -> x={5   \big(1\Big) -> (1)   \Biggl[0,1\biggr) -> [0,1)   \textstyle\frac12 -> \frac12
x\leqq3 -> x\leq3   x\geqslant3 -> x\geq3   infinity -> \infty   -inf -> -\infty   \text{infinity} -> \infty
90° -> 90^\circ   ∞ -> \infty   −5 -> -5   5~m -> 5 m   sqrt(3)/2 -> \sqrt{3}/2   2sqrt13 -> 2\sqrt{13}
√2.5 -> \sqrt{2.5}   \sqrt(2+\sqrt(3)) -> \sqrt{2+\sqrt{3}}   \sqrt[3](5) -> \sqrt[3]{5}   3 100/101 -> 3\frac{100}{101}
12 345 -> 12345   -1\,234\,567.8 -> -1234567.8   \$12\ 345 -> \$12345   (1 000, 2 000) -> (1000, 2000)
12,\!345 -> 12,345   12{,}345 -> 12,345   11,\! 111,\! 100 -> 11,111,100   (1,\! 2) -> (1, 2)
2i -> 2 i   2\mathrm{i} -> 2 i   \text{i} -> i   a+bi -> a+b i
\textbf{5.} -> 5   \mathbf{\Bigl(1,2\Bigr)} -> (1,2)   Answer: \textbf{5} -> 5   {5.} -> 5   \textbf{= 5} -> 5
\boxed{\bm{5,}} -> 5
"""


def cells(table: str) -> list[str]:
    return re.split("   |\n", table.strip())


@pytest.mark.parametrize("answer", cells(UNCHANGED))
def test_unchanged(answer):
    assert normalise(answer) == answer


@pytest.mark.parametrize(("answer", "normalised"), [cell.split(" -> ") for cell in cells(CHANGED)])
def test_changed(answer, normalised):
    assert normalise(answer) == normalised


@pytest.mark.parametrize("answer", ["", ".", "<|im_end|>"])
def test_nothing_is_left(answer):
    assert normalise(answer) == ""


def test_a_percent_sign_is_dropped_if_it_is_the_only_one():
    assert without_percent(r"12.5\%") == without_percent("12.5 %") == "12.5"
    assert without_percent("12.5") is None
    assert without_percent(r"10\%, 20\%") is None


# A pattern that tries again and again would take minutes on ten times the length that the limits allow.
REPEATED = ["5", ".", " ", ",", r"\,", "~", "{", "}", r"\boxed{", r"\boxed", "(", r"\(", "1 000 ", r"\big", "3i", "$ "]
REPEATED += ["sqrt(", "√", "1,\\! 000", "<|a|>", "\\", "∞"]
REPEATED += [r"\frac", r"\frac{", r"\pm", r"\{x|", "[1,2),", "1:", "the ", r"\boxed{\frac{"]
REPEATED += [r"^\circ", r"(\approx", "C_{"]
QUALIFYING = ["x", "x_1,", " ", "(", ",", r"\quad ", r"\text{for", "for ", r"\in", "=", "f(", "√("]


@pytest.mark.parametrize("fragment", REPEATED)
@pytest.mark.parametrize("before", ["", "5 ", r"\text{"])
def test_long_answers_hang_nothing(fragment, before):
    for after in ("", "x", "}", ".", "5"):
        assert isinstance(normalise(before + fragment * (20_000 // len(fragment)) + after), str)


@pytest.mark.parametrize("fragment", QUALIFYING)
@pytest.mark.parametrize("after", ["", r"\in\mathbb{Z}", "=5", r"\%"])
def test_long_names_and_qualifiers_hang_nothing(fragment, after):
    latex = fragment * (2_000 // len(fragment)) + after
    assert split_name(latex) is None or after == "=5"
    split_qualifier(latex)
    without_percent(latex)
