"""A tail that changes the value of the number before it is never dropped, however it is written."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from g2d.verifier.symbolic import judge

UNITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
MAGNITUDES = ["hundred", "thousand", "million", "billion", "trillion", "quadrillion"]
MAGNITUDES += ["milliard", "dozen", "lakh", "crore"]
SHORT_MAGNITUDES = ["k", "K", "M", "MM", "B", "bn", "mn", "mln", "mio", "mil", "kilo", "mega", "giga"]
ORDINALS = ["third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
ORDINALS += ["twentieth", "hundredth", "thousandth", "millionth"]
LABELS = ["eggs", "dollars", "people", "miles", "square feet"]

number_words = st.one_of(
    st.sampled_from(UNITS + TEENS + TENS),
    st.builds("{}{}{}".format, st.sampled_from(TENS), st.sampled_from(" -"), st.sampled_from(UNITS)),
    st.builds("{} {}".format, st.sampled_from(UNITS), st.sampled_from(MAGNITUDES)),
)
magnitudes = st.one_of(
    st.builds("{}{}".format, st.sampled_from(MAGNITUDES), st.sampled_from(["", "s"])),
    st.sampled_from([*SHORT_MAGNITUDES, "score"]),  # `scores` may be what is counted
)
parts = st.builds("{}{}".format, st.sampled_from(["half", "quarter", *ORDINALS]), st.sampled_from(["", "s"]))
fractions = st.one_of(
    parts,
    st.just("halves"),
    st.builds("{} {}".format, number_words, parts),
    st.builds("and {} {}".format, st.sampled_from(["a", "one", "two", "three"]), parts),
    st.builds("point {}".format, number_words),
    st.builds("{} {}".format, st.sampled_from(["over", "divided by"]), st.one_of(number_words, st.integers(2, 99))),
)
powers = st.one_of(
    st.sampled_from(["squared", "cubed", "factorial", "!", "^2", "²", "doubled", "halved", "square root"]),
    st.builds("to the {}".format, st.sampled_from(ORDINALS)),
    st.builds("to the power {}".format, number_words),
    st.builds("{} {}".format, st.sampled_from(["times", "plus", "minus", "mod", "choose"]), number_words),
)
arguments = st.sampled_from(["", " x", " 2", " theta", "(x)"])
functions = st.one_of(
    st.builds(
        "{}{}".format, st.sampled_from(["sin", "cos", "tan", "cot", "csc", "log", "ln", "exp", "sqrt"]), arguments
    ),
    st.just("sec x"),  # without an argument, `sec` is a second
)
words = st.one_of(
    number_words,
    fractions,
    powers,
    functions,
    magnitudes,
    st.builds("{} {}".format, magnitudes, st.sampled_from(LABELS)),
    st.builds("{} {}".format, functions, st.sampled_from(LABELS)),
)
commands = st.sampled_from(["text", "mathrm", "mbox", "textbf", "textit", "textrm", "mathbf", "mathit", "operatorname"])
written = st.one_of(
    words,
    st.builds(r"\{}{{{}}}".format, commands, words),
    st.builds(r"\{}{{ {}}}".format, commands, words),
    st.builds("{{{}}}".format, words),
    st.builds("({})".format, words),
)
space = st.sampled_from(["", " ", "~", r"\,", r"\;", r"\ ", r"\quad ", "-"])
tails = st.builds("{}{}".format, space, written)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 10**6), tails, st.sampled_from(["", r"\$"]))
def test_a_tail_that_changes_the_value_is_never_dropped(number, tail, sign):
    assert judge(str(number), f"{sign}{number}{tail}") != "correct"


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 10**6), tails)
def test_a_tail_of_the_reference_is_not_dropped_either(number, tail):
    assert judge(f"{number}{tail}", str(number)) != "correct"
