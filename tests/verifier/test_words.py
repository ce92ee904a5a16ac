"""Answers compared as strings, and answers that stay products."""

from __future__ import annotations

import pytest

from g2d.verifier.symbolic import judge
from g2d.verifier.words import same_words


@pytest.mark.parametrize(
    ("reference", "answer", "same"),
    [
        ("x y z", "z y x", None),
        ("no", "on", None),
        (r"\sin", "nis", None),
        ("sin x", "x sin", None),
        ("A, A, B", "A, B", False),
        (r"\text{A5}_{11}", "A5_{11}", None),
    ],
)
def test_same_words(reference, answer, same):
    assert same_words(reference, answer) is same


# How a policy could write letters so that they look like a product; each keeps their order.
DISGUISES = {
    "plain": "{}".format,
    "spaced": " ".join,
    "thinly spaced": r"\,".join,
    "dotted": r" \cdot ".join,
    "starred": "*".join,
    "crossed": r"\times ".join,
    "pointed": ".".join,
    "with commas": ", ".join,
    "each in brackets": lambda word: f"({')('.join(word)})",
    "each in braces": lambda word: f"{{{'}{'.join(word)}}}",
    "each in text": lambda word: r"\text{" + r"}\text{".join(word) + "}",
    "half in brackets": lambda word: f"{word[:2]}({word[2:]})",
    "as a set": lambda word: rf"\{{{word}\}}",
    "as a tuple": lambda word: f"({', '.join(word)})",
    "with a power": lambda word: f"{word[0]}^1{word[1:]}",
    "with a factor": lambda word: f"1{word}",
    "as a fraction": lambda word: rf"\frac{{{word}}}{{1}}",
    "as a sum": lambda word: f"{word}+0",
    "with a name": lambda word: f"x={word}",
    "twice": lambda word: f"{word}, {word}",
    "as a matrix": lambda word: rf"\begin{{pmatrix}}{word}\end{{pmatrix}}",
    "small": str.lower,
}


@pytest.mark.parametrize("disguise", DISGUISES.values(), ids=DISGUISES.keys())
@pytest.mark.parametrize("reference", ["DAC", "D, A, C", r"\text{DAC}", "(D, A, C)"])
def test_no_other_order_earns_a_reward(reference, disguise):
    for word in ("CAD", "ADC"):
        assert judge(reference, disguise(word)) != "correct", word
