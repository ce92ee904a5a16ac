"""The last terminated box."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from g2d.verifier import last_boxed

CASES = r"""
\boxed{5} -> 5   so $\boxed{5}$. -> 5   \boxed{\frac{1}{2}} -> \frac{1}{2}   \boxed{5} and \boxed{6} -> 6
\fbox{5} -> 5   \boxed{5} \fbox{6} -> 6   \boxed {5} -> 5   \boxed{ 5 } -> 5   \boxed{\{1,2\}} -> \{1,2\}
\boxed{\left\{1,2\right.} -> \left\{1,2\right.   \boxed{[0,1\}} -> [0,1\}   \boxed{a\\} -> a\\
\boxed{\boxed{5}} -> \boxed{5}   \boxed{\boxed 5} -> \boxed 5   \\boxed{5} -> 5   \boxed 5$ -> 5
$\boxed 5$ and more $x$ -> 5   \[\boxed 12\] -> 12   \(\boxed 12\) -> 12   $\boxed\frac{1}{2}$ -> \frac{1}{2}
$\boxed \$5$ -> \$5   } } \boxed{5} { { -> 5   { { \boxed{5} -> 5   $\boxed{6$ and $\boxed{5}$ -> 5
"""
REST = [
    ("\\boxed\n{5}", "5"),
    ("\\boxed{}", ""),
    ("\\boxed{1+\\boxed{5}} ", "1+\\boxed{5}"),
    ("\\boxed 5\nmore", "5"),
    ("\\boxed{6\n\\boxed{5}", "5"),
]
# A later box that holds nothing, or a mention of the command, hides no answer.
MENTIONED = [
    r"\boxed{42}. The answer is inside \boxed as you asked.",
    r"\boxed{42}. As asked, I used `\boxed`.",
    r"\boxed{42}, in \boxed{}",
    r"\boxed{42}, in \boxed{...}",
    r"\boxed{42}, in \boxed{ \ldots }",
    r"\boxed{42} and not \boxed{your answer}",
    r"\boxed{42} and not \boxed{\text{answer}}",
    r"Put it in \boxed{}: \boxed{42}",
    r"Use \boxed as asked: $\boxed 42$",
]
UNTERMINATED = r"""
5   \boxed   \boxed{   \boxed{5   \boxed{\frac{1}{2}   \boxed{5\}   \boxed 5   \boxed 5\$   \boxed{5} \boxed{   boxed{5}
\boxed{5} \boxed 6   \boxedfoo{5}   \Boxed{5}   \{\boxed{5\}   \boxed{6 \boxed{5}   \boxed{ 0. \boxed{ 0 =0}
"""


@pytest.mark.parametrize(("text", "content"), [cell.split(" -> ") for cell in re.split("   |\n", CASES.strip())] + REST)
def test_terminated(text, content):
    assert last_boxed(text) == content


def test_boxes_that_hold_nothing_do_not_count():
    assert {text: last_boxed(text) for text in MENTIONED} == dict.fromkeys(MENTIONED, "42")
    assert last_boxed(r"\boxed{\boxed{5}} \boxed{...") is None  # cut inside the last box


@pytest.mark.parametrize("text", ["", *re.split("   |\n", UNTERMINATED.strip())])
def test_unterminated(text):
    assert last_boxed(text) is None


N = 50_000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"\boxed{" + "{" * N + "5" + "}" * N + "}", "{" * N + "5" + "}" * N),
        (r"\boxed{" * N + "5", None),
        (r"\boxed{5} " * N, "5"),
        (r"\boxed 5 " * N, None),
        (r"\boxed{5} " + r"\boxed{} \boxed as you " * N, "5"),
        ("{" * N + r"\boxed{5}" + " " * 10 * N, "5"),
        (r"\boxed" + " " * 10 * N, None),
        ("\\" * 10 * N + r" \boxed{5}", "5"),
    ],
    ids=["braces", "unclosed", "boxes", "without braces", "empty boxes", "open braces", "spaces", "backslashes"],
)
def test_size_does_not_matter(text, found):
    """Quadratic time or recursion would not come back from these."""
    assert last_boxed(text) == found


def test_the_number_of_nested_boxes_does_not_matter():
    assert last_boxed(r"\boxed{" * N + "5" + "}" * N) is not None


pieces = st.sampled_from([*"{}\\$x5 \n", r"\boxed", r"\boxed{", r"\fbox", r"\{", r"\}"])
any_text = st.lists(pieces, max_size=30).map("".join)
balanced = st.recursive(
    st.text("x5+ ^_", max_size=5) | st.sampled_from([r"\{", r"\}", r"\\", r"\frac"]),
    lambda inner: st.lists(st.one_of(inner, inner.map(lambda text: "{" + text + "}")), max_size=4).map("".join),
    max_leaves=10,
)


@given(any_text, balanced)
def test_the_last_box_counts_whatever_precedes_it(text, content):
    assume(content.strip())  # a box that holds nothing does not count
    # An open box reaches at most to the end of its line; a backslash may escape the first line break.
    assert last_boxed(text + "\n\n" + rf"\boxed{{{content}}}") == content.strip()


@given(any_text, balanced)
def test_text_cut_inside_its_last_box_has_no_answer(text, content):
    assert last_boxed(text + rf"\boxed{{{content}") is None


@given(any_text, st.text("ab5 .", max_size=10))
def test_what_follows_a_terminated_box_does_not_matter(text, after):
    whole = text + r"\boxed{5}"
    assert last_boxed(whole + after) == last_boxed(whole)


@given(st.text(max_size=50))
def test_any_text_raises_nothing(text):
    assert isinstance(last_boxed(text), str | None)
