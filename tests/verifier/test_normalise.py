"""Each step of the normalisation, and its time on hostile input."""

from __future__ import annotations

import pytest

from g2d.verifier.normalise import (
    normalise,
    unwrap,
    with_braced_roots,
    with_imaginary_unit,
    with_known_names,
    with_known_signs,
    with_whole_thousands,
    without_end_tokens,
    without_final_punctuation,
    without_inner_boxes,
    without_sizes,
)

from .answers import CASES

ANSWERS = sorted({side for cases in CASES.values() for case in cases for side in case[:2]})


@pytest.mark.parametrize("answer", ANSWERS)
def test_twice_is_once(answer):
    assert normalise(normalise(answer)) == normalise(answer)


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("5", "5"),
        (r"\boxed{5}", "5"),
        (r"\fbox {5}", "5"),
        (r"\boxed{{\boxed{5}}}", "5"),
        ("{5}", "5"),
        (r"\(5\)", "5"),
        (r"\[ {5} \]", "5"),
        ("{1}+{2}", "{1}+{2}"),
        (r"\boxed{1}+\boxed{2}", r"\boxed{1}+\boxed{2}"),
        (r"\(1\)+\(2\)", r"\(1\)+\(2\)"),
        (r"\{5\}", r"\{5\}"),
        (r"{5\}", r"{5\}"),
        ("{5", "{5"),
        ("", ""),
    ],
)
def test_unwrap(answer, plain):
    assert unwrap(answer) == plain


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("5.", "5"),
        ("5 ,;", "5"),
        (r"5\,", "5"),
        (r"5\;.", "5"),
        (r"5 \\", "5"),
        (r"\text{yes.}", r"\text{yes}"),
        ("1, 2, ...", "1, 2, ..."),
        (r"1, 2, \ldots", r"1, 2, \ldots"),
        ("5!", "5!"),
        (".", ""),
        ("", ""),
    ],
)
def test_final_punctuation(answer, plain):
    assert without_final_punctuation(answer) == plain


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("5", "5"),
        (r"x=\boxed{3}", "x= 3 "),
        (r"\boxed{1}+\boxed{2}", " 1 + 2 "),
        (r"2\boxed{a+b}", "2(a+b)"),
        (r"2\boxed{-b}", "2 -b "),
        (r"x^\boxed{5}", "x^{5}"),
        (r"\sqrt\boxed{2}", r"\sqrt{2}"),
        (r"\frac{1}{\boxed{2}}", r"\frac{1}{ 2 }"),
        (r"\{\boxed{1}\}", r"\{ 1 \}"),
        (r"x=\boxed 5", "x=5"),
        (r"x=\boxed{5", "x={5"),
        (r"\boxedx", r"\boxedx"),
    ],
)
def test_inner_boxes(answer, plain):
    assert without_inner_boxes(answer) == plain


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        (r"\big(1\Big)", "(1)"),
        (r"\Biggl[0,1\biggr)", "[0,1)"),
        (r"\bigcup", r"\bigcup"),
        (r"\textstyle\frac12", r"\frac12"),
    ],
)
def test_sizes(answer, plain):
    assert without_sizes(answer) == plain


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        (r"x\leqq3", r"x\leq3"),
        (r"x\geqslant3", r"x\geq3"),
        (r"x\leq3", r"x\leq3"),
        ("infinity", r"\infty "),
        ("-inf", r"-\infty "),
        (r"\text{infinity}", r"\infty "),
        (r"\inf S", r"\inf S"),
        ("inform", "inform"),
    ],
)
def test_names(answer, plain):
    assert with_known_names(answer) == plain


@pytest.mark.parametrize(
    ("answer", "plain"),
    [("90°", r"90^\circ "), ("∞", r"\infty "), ("\u22125", "-5"), ("5~m", "5 m"), ("x ~= 5", "x ~= 5")],
)
def test_signs(answer, plain):
    assert with_known_signs(answer) == plain


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("sqrt(3)/2", r"\sqrt {3}/2"),
        ("2sqrt13", r"2\sqrt{13}"),
        ("√2.5", r"\sqrt{2.5}"),
        (r"\sqrt13", r"\sqrt13"),
        (r"\sqrt(2+\sqrt(3))", r"\sqrt{2+\sqrt{3}}"),
        (r"\sqrt[3](5)", r"\sqrt[3]{5}"),
        (r"\sqrt(3", r"\sqrt(3"),
        ("(3)", "(3)"),
    ],
)
def test_roots(answer, plain):
    assert with_braced_roots(answer) == plain


@pytest.mark.parametrize(
    ("answer", "plain"),
    [("42<|im_end|>", "42"), ("42</s> ", "42"), ("4<|im_end|>2", "4<|im_end|>2"), ("x<5", "x<5"), ("<|im_end|>", "")],
)
def test_end_tokens(answer, plain):
    assert without_end_tokens(answer) == plain


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("12 345", "12345"),
        (r"-1\,234\,567.8", "-1234567.8"),
        (r"\$12\ 345", r"\$12345"),
        ("(1 000, 2 000)", "(1000, 2000)"),
        (r"12,\!345", "12,345"),
        ("12{,}345", "12,345"),
        (r"11,\! 111,\! 100", "11,111,100"),
        (r"(1,\! 2)", "(1, 2)"),
        ("1, 234", "1, 234"),
        ("12 34", "12 34"),
        ("1234 567", "1234 567"),
        ("12 3456", "12 3456"),
        ("0 123", "0 123"),
        ("3 100/101", "3 100/101"),
        ("1 000 12", "1 000 12"),
        (r"\frac 1 234", r"\frac 1 234"),
        ("x^2 345", "x^2 345"),
        (r"\log_2 128", r"\log_2 128"),
        ("1.5 000", "1.5 000"),
    ],
)
def test_thousands(answer, plain):
    assert with_whole_thousands(answer) == plain


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("2i", "2 i"),
        ("2 i", "2 i"),
        (r"2\mathrm{i}", "2 i "),
        (r"\text{i}", " i "),
        ("a+bi", "a+b i"),
        ("5 in", "5 in"),
        (r"\pi", r"\pi"),
        (r"2\xi", r"2\xi"),
        ("hi", "hi"),
        (r"\text{A}i", r"\text{A}i"),
    ],
)
def test_imaginary_unit(answer, plain):
    assert with_imaginary_unit(answer) == plain


FRAGMENTS = [
    "5",
    ".",
    " ",
    ",",
    r"\,",
    "~",
    "{",
    "}",
    r"\boxed{",
    r"\boxed",
    "(",
    r"\(",
    "1 000 ",
    r"\big",
    "3i",
    "$ ",
    "sqrt(",
    "√",
    "1,\\! 000",
    "<|a|>",
    "\\",
    "∞",
]


@pytest.mark.parametrize("fragment", FRAGMENTS)
@pytest.mark.parametrize("before", ["", "5 ", r"\text{"])
def test_long_inputs(fragment, before):
    """Ten times what the limits allow; a pattern that tries again and again would keep this test for minutes."""
    for after in ("", "x", "}", ".", "5"):
        assert isinstance(normalise(before + fragment * (20_000 // len(fragment)) + after), str)
