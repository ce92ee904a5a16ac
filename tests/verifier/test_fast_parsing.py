"""Faster parsing reads the same."""

from __future__ import annotations

import json

import sympy
from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy

from g2d.verifier import last_boxed
from g2d.verifier.symbolic import in_two_stages, read

from .answers import CASES, KNOWN_WRONG
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
    table = [case[:2] for cases in CASES.values() for case in cases] + [case[:2] for case in KNOWN_WRONG]
    assert_same_readings([answer for pair in table for answer in pair], monkeypatch)


def test_malformed_answers(monkeypatch):
    quick = ("Code", "HTML", "JSON", "sympy", "Python", "script tag", "emoji", "empty box", "plus minus", "or")
    answers = [last_boxed(HOSTILE[name][0]) for name in quick if name in HOSTILE]
    assert_same_readings(
        [*answers, r"\frac{1}{", "((1)", "1+", "x^", "{}", "}{", r"\sqrt[", "1 2 3", "|x", "a_"], monkeypatch
    )


def test_references_of_math(monkeypatch, real_data):
    with open(real_data / "math" / "train.jsonl", encoding="utf-8") as file:
        answers = [last_boxed(json.loads(line)["solution"]) for line in file]
    # Integers, half of them, are one token; of the rest every third keeps this test short.
    answers = [answer for answer in dict.fromkeys(answers) if not answer.lstrip("-").isdigit()]
    assert_same_readings(answers[::3], monkeypatch)
