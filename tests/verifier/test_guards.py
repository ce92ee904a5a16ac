"""Answers that each guard vetoes, and similar ones that it permits."""

from __future__ import annotations

import pytest
import sympy

from g2d.verifier.guards import (
    at_least_one,
    bases_differ,
    magnitudes_differ,
    not_a_number,
    numbers_side_by_side,
    subscripts_differ,
    undefined,
    with_capitals_renamed,
)
from g2d.verifier.symbolic import prepare
from g2d.verifier.units import NO_TAIL, Tail, differ, find_unit, split_label


@pytest.mark.parametrize(
    ("reference", "answer", "vetoed"),
    [
        ("11_2", "11_3", True),
        ("11_{2}", "11_2", False),
        ("11_2", "11", False),
        ("11", "11_2", False),
        ("11_2, 10_2", "10_2, 11_2", False),
        ("11_2, 10_2", "11_2, 10_3", True),
        ("x_1", "x_2", False),
        (r"\log_2 8", r"\log_3 8", False),
    ],
)
def test_bases(reference, answer, vetoed):
    assert bases_differ(reference, answer) is vetoed


@pytest.mark.parametrize(
    ("reference", "answer", "vetoed"),
    [
        ("10", "10_x", True),
        ("10", r"10_{\text{million}}", True),
        ("10", r"10\,_{ million}", True),
        ("10", r"10_\text{million}", True),
        ("10", r"{10}_{\text{million}}", True),
        ("10", r"10_\pi", True),
        ("10_x", "10", True),
        ("10_x", r"10_{\mathrm{x}}", False),
        ("10", "10_2", False),
        ("10_2", r"10_{\text{two}}", False),
        ("10", r"10_{\text{base }2}", False),
        ("x_n^2", "x^2_n", False),
        ("x_n^2", "x^{2}_{n}", False),
        (r"\sum_n n", r"\sum_{n} n", False),
    ],
)
def test_subscripts_of_numbers(reference, answer, vetoed):
    assert subscripts_differ(reference, answer) is vetoed


@pytest.mark.parametrize(
    ("reference", "answer", "vetoed"),
    [
        ("5", "2 3", True),
        ("5", r"2\,3", True),
        ("x=5", "x=2 3", True),
        (r"\frac{5}{7}", r"\frac{2 3}{7}", True),
        ("2 3", r"2\ 3", False),
        ("23", "23", False),
        (r"\frac 1 2", r"\frac12", False),
        (r"\int_0^1 2x dx", "1", False),
        (r"2 \frac12", r"\frac52", False),
        ("1, 2", "1,2", False),
    ],
)
def test_numbers_side_by_side(reference, answer, vetoed):
    assert numbers_side_by_side(reference, answer) is vetoed


@pytest.mark.parametrize(
    ("reference", "answer", "vetoed"),
    [
        ("nan", "nan", True),
        ("5", r"\text{NaN}", True),
        ("x=nan", "5", True),
        ("banana", "banana", False),
        (r"\infty", r"\infty", False),
    ],
)
def test_not_a_number(reference, answer, vetoed):
    assert not_a_number(reference, answer) is vetoed


@pytest.mark.parametrize(
    ("reference", "answer", "vetoed"),
    [
        ((sympy.FiniteSet(sympy.zoo), "{12:00}"), (sympy.FiniteSet(sympy.zoo), "{1:00}"), True),
        ((sympy.zoo, "12:00"), (sympy.zoo, "12:00"), False),
        ((sympy.Integer(5), "5"), (sympy.nan, r"\frac00"), True),
        ((sympy.Integer(5), "5"), (sympy.Float(5), "5.0"), False),
        (("yes",), ("no",), False),
    ],
)
def test_undefined(reference, answer, vetoed):
    assert undefined(reference, answer) is vetoed


@pytest.mark.parametrize(
    ("reference", "answer", "vetoed"),
    [
        (sympy.Rational(1, 2**60), sympy.Rational(1, 2**61), True),
        (sympy.exp(-40), sympy.exp(-41), True),
        (sympy.Float("1e-7"), sympy.Integer(0), True),
        (sympy.Float("0.333333"), sympy.Rational(1, 3), False),
        (sympy.Float("0.000123"), sympy.Float("0.00012345"), False),
        (sympy.Integer(0), sympy.Integer(0), False),
        (sympy.Integer(5), sympy.Integer(6), False),  # Math-Verify's own business
        (sympy.Symbol("x") / 2**60, sympy.Symbol("x") / 2**61, False),
        (sympy.I / 3, sympy.I / 3, False),
    ],
)
def test_magnitudes(reference, answer, vetoed):
    assert magnitudes_differ([reference], [answer]) is vetoed


@pytest.mark.parametrize(
    ("reading", "reached"),
    [(12.5, True), (-1, True), (0.99, False), (sympy.Symbol("x"), False), (sympy.I * 5, False), (sympy.nan, False)],
)
def test_at_least_one(reading, reached):
    assert at_least_one([sympy.sympify(reading)]) is reached


@pytest.mark.parametrize(
    ("reference", "answer", "renamed"),
    [
        (r"\frac{R}{r}", "rR", (r"\frac{q}{r}", "rq")),
        ("R + r", "q", ("w + r", "q")),
        ("R", "r", None),
        (r"\text{Rr}", r"\Pi p", None),
        ("Rr + Ss", "1", ("qr + ws", "1")),
    ],
)
def test_capitals_beside_their_small_letters(reference, answer, renamed):
    assert with_capitals_renamed(reference, answer) == renamed


def test_magnitudes_without_a_number():
    assert not magnitudes_differ([], [sympy.Integer(0)])
    assert not magnitudes_differ(["text"], ["text"])


@pytest.mark.parametrize(
    ("words", "unit"),
    [
        ("cm", {("centimeter", 1)}),
        (" square feet ", {("foot", 2)}),
        ("sq. ft", {("foot", 2)}),
        ("feet squared", {("foot", 2)}),
        ("in^3", {("inch", 3)}),
        ("cubic inches", {("inch", 3)}),
        ("m/s", {("meter", 1), ("second", -1)}),
        ("miles per hour", {("mile", 1), ("hour", -1)}),
        ("mph", {("mile", 1), ("hour", -1)}),
        ("p.m.", {("pm", 1)}),
        ("dogs", None),
        ("square", None),
        ("units", None),
        ("", None),
    ],
)
def test_find_unit(words, unit):
    assert find_unit(words) == unit


@pytest.mark.parametrize(
    ("answer", "is_label", "unit"),
    [
        (r"10\text{ cm}", True, {("centimeter", 1)}),
        ("10 cm", True, {("centimeter", 1)}),
        (r"15\mbox{ cm}^2", True, {("centimeter", 2)}),
        (r"10\text{ percent}", True, {("percent", 1)}),
        (r"10\%", True, {("percent", 1)}),
        (r"\$5", True, {("dollar", 1)}),
        (r"90^\circ", True, {("degree", 1)}),
        (r"21\text{ dogs}", True, None),
        ("5 apples", True, None),
        ("5 m", True, {("meter", 1)}),
        ("5", True, None),
        ("18 dollars", True, {("dollar", 1)}),
        ("18 people", True, None),
        ("15 + 55 m", False, {("meter", 1)}),
        ("2s", False, {("second", 1)}),
        ("2d", False, None),
        ("a + b + c", False, None),
        (r"\sin^2 t", False, None),
        (r"2\pi h", False, {("hour", 1)}),
        (r"5\text{ or six}", False, None),
        (r"5\text{ apples}+7\text{ pears}", False, None),
        ("north east", False, None),
    ],
)
def test_tails(answer, is_label, unit):
    tail = prepare(answer).tail
    assert (tail.is_label, tail.unit) == (is_label, unit)


def test_units_differ_only_if_both_are_known():
    cm, m, dogs = (prepare(rf"5\text{{ {unit}}}").tail for unit in ("cm", "m", "dogs"))
    assert differ(cm, m)
    assert not differ(cm, cm)
    assert not differ(cm, dogs)
    assert not differ(cm, NO_TAIL)


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("18 dollars", "18"),
        ("-1,000.5 red eggs", "-1,000.5"),
        (r"\text{18 eggs}", "18"),
        (r"\$18 per day", r"\$18"),
        ("1/2 cup", "1/2"),
        (r"3\frac{1}{2} hours", r"3\frac{1}{2}"),
        ("18eggs", None),
        ("18 xyz", None),
        ("18 x", None),
        ("18 or six", None),
        ("18 million", None),
        ("3 times 4", None),
        ("1,2 apples", None),
        ("x + 18 eggs", None),
        ("eggs", None),
        ("-€1,000.5", "-1,000.5"),
        ("18 ¢", "18"),
        (r"\$18 €", None),
        ("18€ + 2", None),
        ("", None),
    ],
)
def test_split_label(answer, number):
    split = split_label(answer)
    assert (split and split[0]) == number
    assert split is None or split[1].is_label


def test_the_dollar_sign_is_the_unit():
    assert split_label(r"\$18 per day") == (r"\$18", Tail("perday", True, frozenset({("dollar", 1)})))
