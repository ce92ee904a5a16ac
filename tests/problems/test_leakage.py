"""Leakage: looks do not hide a problem, and different problems stay different."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from g2d.problems import Problem
from g2d.problems.audit import assert_no_leakage, find_leaks
from g2d.problems.problem_keys import LocalProblems
from g2d.problems.sources import load_problems
from g2d.problems.text_key import text_key


def problem(problem_id, prompt):
    return Problem(problem_id, prompt, "1", None, None, "test")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Find $x+1$.", "find  $ x + 1 $"),
        (r"Find \(x\).", r"Find \[x\]"),
        (r"\left( \frac{1}{2} , 3 \right)", r"(\dfrac{1}{2},3)"),
        (r"10,\!000 of \$5", "10,000 of $5"),
        (r"\bigl[ a \bigr]\quad b", "[a] b"),
        ("Janet’s 3 − 1", "Janet's 3 - 1"),
        (r"50\% of it", "50% of it"),
        ("What is it?\n", "What is it"),
        (r"$2x^{2}+3x-5=0$", r"\(2x^2 + 3x - 5=0\)"),
        (r"x^{10} + a_{n}", "x^10 + a_n"),
        (r"x \le 2 \ne y \ge 1", r"x \leqslant 2 \neq y ≥ 1"),
        ("1,200 m", "1200 m"),
        (r"1{,}200", "1, 200"),
        (".5 kg", "0.5 kg"),
        (r"30^{\circ}", "30°"),
        (r"30^\circ", r"30\degree"),
        (r"3 \text{ cm}", r"3 \mbox{cm}"),
        (r"3\ \mathrm{cm}", "3 cm"),
        (r"1, 2, \ldots, 5", r"1,2,\cdots,5"),
        ("1, 2, …, 5", "1, 2, ..., 5"),
        (r"\frac12 x", r"\tfrac{1}{2}x"),
        (r"\frac{7}{12}", "7/12"),
        (r"2 \cdot 3 \times 4", "2 · 3 × 4"),
        (r"\sqrt{x} \leq \pi", "√x ≤ π"),
        (r"\sin x + \log_2 y", r"\operatorname{sin} x + \text{log}_{2} y"),
        (r"3 \pmod{12}", r"3 (\text{mod } 12)"),
        (r"\binom{n}{2}", r"{n \choose 2}"),
        (r"\mathbb{R}", "ℝ"),
        (r"\lvert x\rvert", "|x|"),
        (r"f^{\prime}(x)", "f'(x)"),
        ("x² + y³", "x^2 + y^{3}"),
        (r"Pok\'emon", "Poke\u0301mon"),
        ("``so''", '"so"'),
        ("a &lt; b", "a < b"),
        (r"\begin{align*} x &= 1 \\ y &= 2 \end{align*}", r"\[x = 1\] \[y = 2\]"),
        ("\uff11\uff12 apples", "12 apples"),
    ],
)
def test_looks_do_not_matter(one, other):
    assert text_key(one) == text_key(other)


DIFFERENT = r"""
2-1 // 21   2 1 // 21   x^2 // x_2   x^{21} // x^{2}1   x^{a+b} // x^a+b   -3 // 3   2.5 // 25   2.5 // 2, 5   .5 // 5
(1,2) // (12)   [1,2] // (1,2)   5! // 5   f'(x) // f(x)   2:3 // 2 3   1,2,...,5 // 1,2,5   x<2 // x>2   |x| // x
x \le 2 // x \ge 2   \Delta // \delta   50\% // 50   a \\ b // a b   ab // a c b   5--3 // 5-3   f''(x) // f'(x)
x^2 // x2   \frac12 // \frac{12}{1}   \frac{x+1}{2} // x+\frac{1}{2}   \sqrt{x+1} // \sqrt{x}+1   30^\circ // 30
(1,20) // (120)   a \cdot b // a \times b   \begin{pmatrix} 1 \\ 2 \end{pmatrix} // \begin{pmatrix} 1 & 2 \end{pmatrix}
1,200 // 1,20,0
"""


@pytest.mark.parametrize("pair", re.split("   |\n", DIFFERENT.strip()))
def test_different_problems_stay_different(pair):
    one, other = pair.split(" // ")
    assert text_key(one) != text_key(other)


NUMBERS = st.decimals(-10_000, 10_000, places=2, allow_nan=False).map(lambda d: str(d.normalize().__format__("f")))
WORDS_AND_SYMBOLS = [*"xy+-*/^_=()[]{}!", "Find", "sum", r"\pi"]
TOKENS = NUMBERS.map(lambda number: number.lstrip("-")) | st.sampled_from(WORDS_AND_SYMBOLS)
LOOKS = [" ", "  ", "\n", " $", "$ ", r" \, ", r" \! ", r" \left", r" \right ", r" \Bigl ", "~", " . ", " ? "]
DECORATION = st.sampled_from(LOOKS)


@given(st.lists(st.tuples(TOKENS, DECORATION), min_size=1, max_size=12))
def test_law_decoration_between_tokens_never_changes_the_key(pairs):
    plain = decorated = ""
    for token, decoration in pairs:
        plain += f"{token} "
        decorated += f"{token}{decoration} "  # one that ends in a command needs the blank that LaTeX needs
    assert text_key(decorated) == text_key(plain)


@given(st.lists(TOKENS, min_size=1, max_size=12), st.lists(TOKENS, min_size=1, max_size=12))
def test_law_equal_keys_mean_equal_tokens(one, other):
    has_equal_tokens = " ".join(one).casefold() == " ".join(other).casefold()
    assert (text_key(" ".join(one)) == text_key(" ".join(other))) == has_equal_tokens


def test_a_leak_names_both_sides():
    train = [problem("t/1", "Find $x$."), problem("t/2", "Find y."), problem("t/3", "find x")]
    test = [problem("h/1", "Find z"), problem("h/2", r"Find \(x\)"), problem("e/1", "Find Y!")]
    assert find_leaks(train, test) == {"h/2": "t/1"}


def test_the_refusal_names_benchmark_number_ids_and_fix():
    train = [problem(f"t/{i}", f"Find {i}") for i in range(10)]
    test = [problem(f"h/{i}", f"Find ${i}$.") for i in range(2, 12)]
    with pytest.raises(ValueError) as error:
        assert_no_leakage(train, test, "benchmarks.hard")
    assert str(error.value) == (
        "benchmarks.hard: 8 of 10 problems are in the training pool (h/2 = t/2, h/3 = t/3, h/4 = t/4, ...; its id = "
        "id there): remove them there, or choose another split"
    )


def test_collections_of_word_problems_repeat_each_other(real_data):
    """A benchmark that repeats the pool is refused."""
    folder = real_data / "word_problems"
    if not folder.is_dir():
        pytest.skip(f"no word problems at {folder}")

    def loaded(name, role="pool"):  # a pool may repeat a question
        return load_problems(role, LocalProblems(source="local", path=str(folder / f"{name}.jsonl")))

    addsub = loaded("addsub")
    asdiv = loaded("asdiv")
    singleeq = loaded("singleeq")
    assert len(find_leaks(addsub, singleeq)) == 127
    assert len(find_leaks(asdiv, singleeq)) == 55
    assert len(find_leaks(asdiv, loaded("multiarith"))) == 64
    assert_no_leakage([*asdiv, *addsub], loaded("svamp"), "benchmarks.svamp")
    with pytest.raises(ValueError, match="127 of 508"):
        assert_no_leakage(addsub, singleeq, "benchmarks.singleeq")
    with pytest.raises(ValueError, match="20 of 600 rows repeat a question"):
        loaded("multiarith", "multiarith")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1" * 200_000,
            "\\" * 200_000,
            "." * 200_000,
            "$ " * 100_000,
            "a\\left(" * 40_000,
            "{x" * 50_000 + "}" * 50_000,
        ),
        *("{" * 60_000 + "}" * 60_000, "\\text{" * 30_000 + "}" * 30_000, "1," * 60_000, "\\frac1" * 40_000),
    ],
    ids=lambda text: text[:6],
)
def test_long_texts_take_linear_time(text):
    start = time.process_time()
    text_key(text)
    assert time.process_time() - start < 2
