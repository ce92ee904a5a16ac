"""Laws of the comparison, on answers of a form that is drawn."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from g2d.verifier.symbolic import judge

small = st.integers(1, 60)
ratios = st.lists(small, min_size=3, max_size=4)
letters = st.sampled_from("abkmnxyz")
# Each makes another side of an equation out of a letter.
OTHER_SIDES = ["2{}", "-{}", "{}^2", "{}+1", "1-{}", r"\frac{{{}}}{{2}}", r"\sqrt{{{}}}", r"\log {}", "|{}|", "f({})"]


@settings(max_examples=60, deadline=None)
@given(letters, st.integers(2, 99), st.sampled_from(OTHER_SIDES))
def test_an_equation_is_not_another_with_the_same_right_side(letter, value, other_side):
    assert judge(f"{letter}={value}", f"{other_side.format(letter)}={value}") != "correct"
    assert judge(f"{letter}={value}", f"{value}={letter}") == "correct"
    assert judge(f"{letter}={value}", rf"{letter}=\frac{{{2 * value}}}{{2}}") == "correct"


@settings(max_examples=60, deadline=None)
@given(ratios, st.integers(1, 5), st.randoms(use_true_random=False))
def test_ratios_are_equal_if_they_are_proportional(parts, factor, shuffler):
    shuffled = [*parts]
    shuffler.shuffle(shuffled)
    reference = ":".join(map(str, parts))
    assert judge(reference, ":".join(str(factor * part) for part in parts)) == "correct"
    assert (judge(reference, ":".join(map(str, shuffled))) == "correct") == (shuffled == parts)


@settings(max_examples=60, deadline=None)
@given(small, small, small, small, st.sampled_from([r" \text{ R } ", " R ", r" \text{ remainder } ", r"\text{ r }"]))
def test_a_quotient_and_its_remainder_are_two_numbers(quotient, remainder, a, b, word):
    equal = judge(rf"{quotient} \text{{ R }} {remainder}", f"{a}{word}{b}") == "correct"
    assert equal == ((a, b) == (quotient, remainder))
    assert judge(rf"{quotient} \text{{ R }} {remainder}", f"{quotient}{word}{remainder}") == "correct"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 999), st.integers(2, 60), st.integers(-40, 40))
def test_an_approximation_counts_if_it_rounds_its_value(top, bottom, hundredths):
    value = top / bottom
    rounded = round(value, 2) + hundredths / 100
    assume(abs(abs(rounded - value) - 0.005) > 1e-6)
    is_rounded = abs(rounded - value) < 0.005
    answer = rf"\frac{{{top}}}{{{bottom}}} \approx {rounded:.2f}"
    assert (judge(rf"\frac{{{top}}}{{{bottom}}}", answer) == "correct") == is_rounded
    assert (judge(f"{rounded:.2f}", answer) == "correct") == is_rounded


@settings(max_examples=60, deadline=None)
@given(
    st.integers(-50, 50),
    st.integers(1, 50),
    st.sampled_from(["{}", r"{{\bf {}}}", r"\left. {} \right.", r"\emph{{{}}}"]),
)
def test_packing_changes_no_number(top, bottom, packing):
    fraction = rf"\frac{{{top}}}{{{bottom}}}"
    assert judge(fraction, packing.format(fraction)) == "correct"
    assert judge(fraction, packing.format(rf"\frac{{{top + 1}}}{{{bottom}}}")) != "correct"
