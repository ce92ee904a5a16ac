"""Faster parsing reads the same."""

from __future__ import annotations

import pandas as pd
import sympy
from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy

from g2d.verifier import last_boxed
from g2d.verifier.symbolic import in_two_stages, read

from .answers import CASES
from .hostile import HOSTILE


def readings(answers: list[str]) -> list[str]:
    read.cache_clear()
    found = []
    for answer in answers:
        found.append(sympy.srepr(list(read(answer, keep_units=False))))
        found.append(sympy.srepr(list(read(answer, keep_units=True))))
    return found


def assert_same_readings(answers: list[str], monkeypatch) -> None:
    ordinary = readings(answers)
    monkeypatch.setattr(_Latex2Sympy, "create_parser", in_two_stages(_Latex2Sympy.create_parser))
    assert readings(answers) == ordinary
    read.cache_clear()


def test_answers_of_every_kind(monkeypatch):
    answers = set()
    for case in CASES[::2]:
        answers |= {case.reference, case.answer}
    assert_same_readings(sorted(answers), monkeypatch)


def test_malformed_answers(monkeypatch):
    quick = ("HTML", "JSON", "sympy", "Python", "script tag", "emoji", "empty box")
    answers = [last_boxed(HOSTILE[name][0]) for name in quick]
    malformed = [r"\frac{1}{", "((1)", "1+", "x^", "{}", "}{", r"\sqrt[", "1 2 3", "|x", "a_"]
    assert_same_readings(answers + malformed, monkeypatch)


def test_references_of_math(monkeypatch, real_data):
    solutions = pd.read_json(real_data / "math" / "train.jsonl", lines=True)["solution"]
    answers = solutions.map(last_boxed).drop_duplicates()
    answers = answers[~answers.str.fullmatch(r"-*\d+")]
    assert_same_readings(answers[::9].tolist(), monkeypatch)  # to keep this test short
