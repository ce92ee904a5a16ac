"""Model text on the page: formulas are drawn, and markup in it stays text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from g2d.plain import is_hidden
from g2d.report import markup
from g2d.report.markup import MAX_CHARACTERS, mathml, plain, render
from tests.report.rows import HOSTILE


class Elements(HTMLParser):
    """Collect the elements of a fragment with their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def elements(fragment: str) -> Elements:
    parser = Elements()
    parser.feed(str(fragment))
    parser.close()
    return parser


def assert_inert(text: str) -> None:
    for tag, attributes in elements(render(text)).elements:
        if tag == "span":
            assert attributes == [("class", "control")]
        else:
            assert tag in markup.ELEMENTS
            for name, value in attributes:
                assert name in markup.ATTRIBUTES
                assert ":" not in str(value)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_makes_no_element_but_formulas(text: str) -> None:
    assert_inert(text)


@given(st.text(alphabet=st.sampled_from("\\${}[]()<>&;\"'=/ \nab1^_#x\u202e"), max_size=60))
def test_no_text_makes_an_element_but_formulas(text: str) -> None:
    assert_inert(text)


@given(st.lists(st.sampled_from(["\\frac", "\\href", "\\text", "{", "}", "<b>", "x", "\\class", "^", "&lt;"])))
def test_no_formula_makes_an_element_but_formulas(parts: list[str]) -> None:
    assert_inert(f"${''.join(parts)}$ \\[{' '.join(parts)}\\]")


@given(st.text(max_size=50).filter(lambda text: "$" not in text and "\\" not in text))
def test_text_without_formulas_reads_as_it_was_written(text: str) -> None:
    expected = ""
    for character in text:
        is_shown = character in "\n\t" or not is_hidden(character)
        expected += character if is_shown else f"U+{ord(character):04X}"
    assert elements(plain(text)).text == expected
    assert render(text) == plain(text)


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        (r"so $\frac{1}{2}$.", "<mfrac>"),
        (r"\(\sqrt{2}\)", "<msqrt>"),
        (r"\[x^2\]", '<math display="block">'),
        (r"$$x_1$$", '<math display="block">'),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "<mtable>"),
        (r"First 2. \boxed{\frac{1}{\sqrt{2}}}", '<menclose notation="box">'),
        ("$a < b$", "<mo>&lt;</mo>"),
        (r"$\mathbb{R}$", "ℝ"),
    ],
)
def test_formulas_are_drawn(text: str, drawn: str) -> None:
    assert drawn in render(text)


@pytest.mark.parametrize(
    "text", ["costs $5 and $6", "from $ 3 to 4 $", r"\boxed{unclosed", r"\$5 and \$6", r"$\frac{1}{$"]
)
def test_what_is_no_formula_stays_text(text: str) -> None:
    assert "<math" not in render(text)
    assert elements(render(text)).text == text


@pytest.mark.parametrize("latex", [r"\def\a{xx}\a", r"\newcommand{\a}{xx}\a", "x" * 3000, "{" * 900 + "}" * 900])
def test_macros_and_runaway_formulas_are_shown_as_their_source(latex: str) -> None:
    assert mathml(latex) is None


def test_characters_that_change_the_direction_of_writing_are_shown_by_their_number() -> None:
    assert render("\u202e12") == '<span class="control">U+202E</span>12'
    assert "\u202e" not in render("$\\text{\u202e12}$ $\\unicode{x202e}$")


def test_a_long_text_is_cut_and_says_so() -> None:
    shown = elements(render("x" * (MAX_CHARACTERS + 1234))).text
    assert shown == "x" * MAX_CHARACTERS + "… 1,234 more characters"
