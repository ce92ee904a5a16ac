"""Reference answers as publishers write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from g2d.problems.sources import reference_answer


@pytest.mark.parametrize(
    ("answer_format", "value", "answer"),
    [
        ("plain", " \\frac{1}{2} ", "\\frac{1}{2}"),
        ("plain", 17, "17"),
        ("plain", 1e-7, "0.0000001"),  # 1e-07 is Python's
        ("plain", 142.0, "142"),  # AMC data sets store integers as floats
        ("plain", -0.5, "-0.5"),
        ("plain", 0, "0"),
        ("boxed", r"first \boxed{1}, then \boxed{2}.", "2"),
        ("boxed", r"so there are $\boxed{}$ primes.", ""),
        ("boxed", r"\boxed{ \text{Tuesday} }", r"\text{Tuesday}"),
        ("gsm8k", "2 + 3 = <<2+3=5>>5\n#### 5", "5"),
        ("gsm8k", "#### 1,450,000", "1450000"),
        ("gsm8k", "#### -12", "-12"),
        ("gsm8k", "####2.50 ", "2.50"),
        ("gsm8k", "#### 3\n#### 4", "4"),
    ],
)
def test_reference_answers(answer_format, value, answer):
    assert reference_answer(value, answer_format) == answer


@given(st.integers(-(10**12), 10**12))
def test_gsm8k_undoes_thousands_separators(number):
    assert reference_answer(f"Working.\n#### {number:,}", "gsm8k") == str(number)


@pytest.mark.parametrize(
    ("value", "answer_format", "message"),
    [
        ("nan", "plain", "missing number"),
        (" -NaN", "plain", "missing number"),
        (r"so \boxed{NaN}", "boxed", "missing number"),
        ("  ", "plain", "the answer is empty"),
        (None, "plain", "expected text or a number, not None"),
        (["5"], "plain", "expected text or a number"),
        (float("nan"), "plain", "nan is not a finite number"),
        ("the answer is 5", "boxed", r"no terminated \\boxed\{...\}"),
        (r"it is \boxed{\frac{1}{2}", "boxed", "no terminated"),
        ("5", "gsm8k", "no ####"),
        ("#### 1,23", "gsm8k", "expected a number after ####, not '1,23'"),
        ("#### five", "gsm8k", "expected a number after ####, not 'five'"),
    ],
)
def test_no_answer(value, answer_format, message):
    with pytest.raises(ValueError, match=message):
        reference_answer(value, answer_format)
