"""Faster parsing reads the same."""

from __future__ import annotations

import json

import sympy
from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy

from g2d.verifier import last_boxed
from g2d.verifier.symbolic import in_two_stages, read

from .answers import CASES
from .hostile import HOSTILE


def readings(answers: list[str]) -> list[str]:
    read.cache_clear()
    return [sympy.srepr(list(read(answer, keep_units))) for answer in answers for keep_units in (False, True)]


def assert_same_readings(answers: list[str], monkeypatch) -> None:
    ordinary = readings(answers)
    monkeypatch.setattr(_Latex2Sympy, "create_parser", in_two_stages(_Latex2Sympy.create_parser))
    assert readings(answers) == ordinary
    read.cache_clear()


def test_answers_of_every_kind(monkeypatch):
    answers = [answer for cases in CASES.values() for case in cases[::2] for answer in case[:2]]
    assert_same_readings([*dict.fromkeys(answers)], monkeypatch)


def test_malformed_answers(monkeypatch):
    quick = ("HTML", "JSON", "sympy", "Python", "script tag", "emoji", "empty box")
    answers = [last_boxed(HOSTILE[name][0]) for name in quick]
    malformed = [r"\frac{1}{", "((1)", "1+", "x^", "{}", "}{", r"\sqrt[", "1 2 3", "|x", "a_"]
    assert_same_readings(answers + malformed, monkeypatch)


def test_references_of_math(monkeypatch, real_data):
    with open(real_data / "math" / "train.jsonl", encoding="utf-8") as file:
        answers = [last_boxed(json.loads(line)["solution"]) for line in file]
    answers = [answer for answer in dict.fromkeys(answers) if not answer.lstrip("-").isdigit()]
    assert_same_readings(answers[::9], monkeypatch)  # to keep this test short
