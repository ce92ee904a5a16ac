r"""Names on the left, qualifiers behind, and a percent sign at the end."""

from __future__ import annotations

import pytest

from g2d.verifier.normalise import normalise
from g2d.verifier.statements import names_differ, split_name, split_qualifier, without_percent


@pytest.mark.parametrize(
    ("latex", "parts"),
    [
        (r"A_{\min}= \frac12", (r"A_\min", r"\frac12")),
        (r"k_{\max}(n)=2n+1", (r"k_\max(n)", "2n+1")),
        (r"\text{Area} = 5\text{ cm}^2", ("Area", r"5\text{ cm}^2")),
        ("P(X=3)=0.5", ("P(X=3)", "0.5")),
        (r"f\left(80\right)=3", ("f(80)", "3")),
        ("f'(x)=2", ("f'(x)", "2")),
        (r"\angle ABC=40", (r"\angleABC", "40")),
        (r"x=\pm 3", ("x", r"\pm 3")),
        ("x^2=5", None),
        ("2x=5", None),
        ("x=5=6", None),
        ("x_1=1,x_2=2", None),
        (r"f^{-1}(x)=2x", None),
        (r"\tan \theta = 2\theta", None),
        (r"x \le 5", None),
        ("x=", None),
        ("5", None),
    ],
)
def test_split_name(latex, parts):
    assert split_name(latex) == parts


@pytest.mark.parametrize(
    ("reference", "answer", "vetoed"),
    [
        ("f(80)=5", "f(8)=5", True),
        ("f(80)=5", "f(80)=6", False),
        ("f(80)=5", "5", False),
        ("x_1=5", "x_{1}=5", False),
        ("y=2x+3", "x=(y-3)/2", False),
        ("f(x)=2x", "g(t)=2t", False),
        ("K=8", "k=8", False),
    ],
)
def test_names_differ(reference, answer, vetoed):
    assert names_differ(reference, answer) is vetoed


@pytest.mark.parametrize(
    ("latex", "parts"),
    [
        (r"2k, k \in \mathbb{Z}", ("2k", "Z")),
        (r"\pi k, k\in\mathbb Z", (r"\pi k", "Z")),
        (r"k, k \in \mathbb{Z}", ("k", "Z")),
        (r"2k\ \forall k \in \mathbb{R}", ("2k", "R")),
        (r"2k \quad (k\in ℤ)", ("2k", "Z")),
        (r"2k, k\in \mathbb{Z}^+", ("2k", None)),
        (r"(2a,3b), a, b \in \mathbb{Z}", ("(2a,3b)", "Z")),
        (r"2k \text{ where } k \text{ is an integer}", ("2k", "Z")),
        (r"2k, \text{ where $k$ is a real number}", ("2k", "R")),
        ("2k for all k", ("2k", None)),
        (r"x \in \mathbb{R}", None),
        (r"x\in[1,2]", None),
        (r"\{x : x \in \mathbb{R}\}", None),
        (r"\{x | x \in \mathbb{R}", None),
        (r"2k \text{ for } k=1,2", None),
        (r"60 \text{ miles for each hour}", None),
        ("forall", None),
        ("5", None),
    ],
)
def test_split_qualifier(latex, parts):
    assert split_qualifier(latex) == parts


@pytest.mark.parametrize(
    ("latex", "bare"),
    [
        (r"12.5\%", "12.5"),
        ("12.5 %", "12.5"),
        (r"12.5\text{ percent}", "12.5"),
        ("12.5 percent", "12.5"),
        (r"10\%, 20\%", None),
        ("12.5", None),
    ],
)
def test_without_percent(latex, bare):
    assert without_percent(normalise(latex)) == bare


@pytest.mark.parametrize(
    "fragment", ["x", "x_1,", " ", "(", ",", r"\quad ", r"\text{for", "for ", r"\in", "=", "f(", "√("]
)
@pytest.mark.parametrize("after", ["", r"\in\mathbb{Z}", "=5", r"\%"])
def test_long_inputs(fragment, after):
    """The longest inputs that the limits allow; with a backtracking pattern this test would take minutes."""
    latex = fragment * (2_000 // len(fragment)) + after
    assert split_name(latex) is None or after == "=5"
    split_qualifier(latex)
    without_percent(latex)
