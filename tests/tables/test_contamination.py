"""The partial-prompt probe: where a question is cut, what is verbatim, ROUGE-L, table and sentences, by hand."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from g2d.analysis.contamination import is_verbatim, partial_problems, rouge_l, split_question
from g2d.problems import Problem
from g2d.problems.synthetic import generate
from g2d.report.contamination import contamination_sentences, memory_warnings
from g2d.tables.contamination import CONTAMINATION_COLUMNS, contamination_table
from g2d.tables.frames import read_table, write_table


@pytest.mark.parametrize(
    ("text", "share", "shown", "rest"),
    [
        ("What is 2 + 3?", 0.6, "What is 2", "+ 3?"),  # 0.6 x 5 = 3 words
        ("a  b\nc d e f", 0.6, "a  b\nc", "d e f"),  # 3.6 rounds down; spaces and line breaks stay
        ("one two", 0.01, "one", "two"),
        ("one two", 0.99, "one", "two"),
        ("  one two three ", 0.7, "  one two", "three"),
    ],
)
def test_a_question_is_cut_at_the_end_of_a_word(text: str, share: float, shown: str, rest: str) -> None:
    partial = split_question(text, share)
    assert partial is not None
    assert (partial.shown, partial.rest) == (shown, rest)


@given(st.text("ab \n\t\u2003"), st.floats(0.01, 0.99))
def test_nothing_is_lost_and_both_parts_have_words(text: str, share: float) -> None:
    partial = split_question(text, share)
    if partial is None:
        assert len(text.split()) < 2
        return
    assert text.startswith(partial.shown)
    assert partial.shown.split()
    assert partial.rest.split()
    assert [*partial.shown.split(), *partial.rest.split()] == text.split()
    assert is_verbatim(partial.rest, partial.rest)
    assert rouge_l(partial.rest, partial.rest) == 1


def test_verbatim_is_word_for_word_from_the_first_word() -> None:
    """Spaces and further text do not count."""
    assert all(is_verbatim(text, "+ 3?") for text in (" + 3?", "\n+\n\n3?\nThe answer is 5.", " + 3? "))
    assert not any(is_verbatim(text, "+ 3?") for text in (" + 3", " + 31?", " +", "", "so + 3?"))


@pytest.mark.parametrize(
    ("completion", "rest", "value"),
    [
        ("a b c d and more", "a b c d", 1),  # further words do not count
        ("a x c y", "a b c d", 0.5),  # a c: 2 of 4 on both sides
        ("a", "a b c", 0.5),  # precision 1, recall 1/3
        ("A b", "a b", 0.5),
    ],
)
def test_rouge_l_by_hand(completion: str, rest: str, value: float) -> None:
    assert rouge_l(completion, rest) == pytest.approx(value)


WORDS = st.lists(st.sampled_from("abc"), max_size=6)


@given(WORDS, WORDS)
def test_rouge_l_agrees_with_every_subsequence_tried(a: list[str], b: list[str]) -> None:
    def subsequences(words: list[str]) -> set[tuple[str, ...]]:
        subsequences: set[tuple[str, ...]] = {()}
        for word in words:
            subsequences |= {(*before, word) for before in subsequences}
        return subsequences

    a = a[: len(b)]
    common = max(map(len, subsequences(a) & subsequences(b)))
    expected = 2 * common / (len(a) + len(b)) if a and b else 0
    assert rouge_l(" ".join(a), " ".join(b)) == pytest.approx(expected)


def questions(n: int, words: str = "Tell me how many are") -> list[Problem]:
    return [Problem(f"p{i}", f"{words} in box {i} ?", str(i), None, None, "s") for i in range(n)]


def continued(problems: list[Problem], verbatim: int, right: int = 0) -> pd.DataFrame:
    partial = partial_problems(problems, 0.6)
    rests = [problem.prompt[len(cut.prompt) :] for problem, cut in zip(problems, partial, strict=True)]
    texts = [rest if i < verbatim else " something else" for i, rest in enumerate(rests)]
    verdicts = ["correct" if i < right else "wrong" for i in range(len(problems))]
    return pd.DataFrame({"problem_id": [p.problem_id for p in partial], "completion_text": texts, "verdict": verdicts})


def table_of(old: int, fresh: int, n: int = 20, right: int = 7) -> pd.DataFrame:
    problems = {"old": questions(n), "new": generate("arithmetic", "test", n, 5)}
    rows = {("m", "old"): continued(problems["old"], old, right), ("m", "new"): continued(problems["new"], fresh)}
    return contamination_table(rows, problems, ["new"], 0.6)


def test_the_table_counts_and_tests() -> None:
    table = table_of(12, 0)
    old, new = table.to_dict("records")
    assert (old["n_problems"], old["n_asked"], old["verbatim"], old["right"]) == (20, 20, 12, 7)
    assert (old["verbatim_share"], old["right_share"]) == (0.6, 0.35)
    # Wilson by hand: (k + z^2/2 +- z sqrt(k (n-k) / n + z^2 / 4)) / (n + z^2), z = 1.959964
    assert old["verbatim_low"] == pytest.approx(0.38658, abs=1e-4)
    assert old["verbatim_high"] == pytest.approx(0.7812, abs=1e-4)
    assert old["rest_words"] == 4  # "box 3 ?" after "Tell me how many are in": 5 of 9 words are shown
    assert old["rouge_l"] == pytest.approx(0.6)  # 1 where verbatim, 0 elsewhere
    assert old["p_value"] == old["p_holm"] == pytest.approx(fisher_exact([[12, 8], [0, 20]]).pvalue)
    assert (old["fresh_asked"], old["fresh_verbatim"], old["family_size"]) == (20, 0, 1)
    assert (bool(new["fresh"]), new["verbatim"], pd.isna(new["p_holm"])) == (True, 0, True)


def test_the_tests_of_a_model_are_one_family() -> None:
    problems = {"a": questions(10), "b": questions(10), "new": generate("arithmetic", "test", 10, 5)}
    rows = {("m", name): continued(of_benchmark, 6 if name == "a" else 0) for name, of_benchmark in problems.items()}
    a, b, _ = contamination_table(rows, problems, ["new"], 0.6).to_dict("records")
    assert a["p_holm"] == pytest.approx(2 * a["p_value"])
    assert (a["family_size"], b["p_holm"]) == (2, 1)


def test_rollouts_of_other_questions_are_refused() -> None:
    problems = {"old": questions(3)}
    with pytest.raises(ValueError, match=r"m, old: .*: draw them again"):
        contamination_table({("m", "old"): continued(questions(2), 0)}, problems, [], 0.6)


def test_the_sentence_suspects_memory_only_if_the_test_is_significant(tmp_path) -> None:
    write_table(tmp_path / "table.csv", table_of(12, 0))
    rows = read_table(tmp_path / "table.csv", CONTAMINATION_COLUMNS)
    [sentence] = contamination_sentences(rows)
    assert "for 12 of 20 (60.0\N{NO-BREAK SPACE}% [38.7, 78.1]), and answered 7 right" in sentence
    assert "of fresh questions, 0 of 20" in sentence
    assert memory_warnings(rows) == (sentence,)
    problems = {"old": questions(20)}
    alone = contamination_table({("m", "old"): continued(problems["old"], 12)}, problems, [], 0.6)
    cases = ((table_of(2, 0), "not differ"), (table_of(0, 12), "more"), (alone, "No benchmark of this run is fresh"))
    for table, words in cases:  # in the first, p = .49
        [sentence] = contamination_sentences(table)
        assert words in sentence
        assert memory_warnings(table) == ()
