"""The pretraining corpus: its sources, its proportions, its mistakes, and the vocabulary it needs."""

import random
import re
from collections import Counter

import pytest

from benchmarks import corpus
from benchmarks.corpus import corpus_document, drill, render, slip, vocabulary_texts, with_slips
from g2d.problems.synthetic import Operation, apply, split_of
from tests.problems.expressions import evaluate, expression_of

STEPS = (Operation(7, "+", 3, 10), Operation(10, "*", 2, 20))
FACT = re.compile(r"(-?\d+) (\+|-|\*|mod) (\d+) = (-?\d+)\.")
WORD = re.compile(r"\\boxed| ?[A-Za-z]+| ?\d{1,2}| ?[^\sA-Za-z\d]|\s")  # a word-level tokenizer's pieces


@pytest.fixture(scope="module")
def documents():
    return draw(6000)


def draw(n):
    rng = random.Random(0)
    return [corpus_document(rng) for _ in range(n)]


@pytest.fixture(scope="module")
def prompts(documents):
    """Prompts of the documents that have one; the others are drills."""
    return [prompt for prompt, _ in documents if prompt]


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("worked", r"First 7 + 3 = 10. 10 * 2 = 20. \boxed{20}"),
        ("hasty", r"Clearly \boxed{20}"),
        ("unboxed", "First 7 + 3 = 10. 10 * 2 = 20. So 20."),
        ("unterminated", r"First 7 + 3 = 10. 10 * 2 = 20. \boxed{20"),
    ],
)
def test_styles(style, text):
    assert render(STEPS, style) == text


def test_every_problem_is_from_the_train_split(prompts):
    for prompt in prompts:
        assert split_of(expression_of(prompt)) == "train"


def test_proportions(documents, prompts):
    assert 1 - len(prompts) / len(documents) == pytest.approx(corpus.DRILL_SHARE, abs=0.03)
    n_stories = sum(prompt.endswith("?") for prompt in prompts)
    assert n_stories / len(prompts) == pytest.approx(corpus.WORD_PROBLEM_SHARE, abs=0.03)


def test_hasty_solutions_state_the_right_answer(documents):
    n_hasty = 0
    for prompt, text in documents:
        if text.startswith("Clearly"):
            n_hasty += 1
            assert text == f"Clearly \\boxed{{{evaluate(expression_of(prompt))[-1]}}}"
    assert n_hasty > 1000


def test_style_follows_verb_and_level(documents):
    shown = Counter()
    for prompt, text in documents:
        if prompt.endswith("."):
            verb = prompt.split()[0]
            level = len(evaluate(expression_of(prompt))) - 1
            shown[verb, level, not text.startswith("Clearly")] += 1

    def share(verb, level):
        worked = shown[verb, level, True]
        return worked / (worked + shown[verb, level, False])

    assert share("Compute", 1) > 0.95  # log-odds 3.4 + 2.6
    assert share("Give", 5) < 0.05  # log-odds -3.4 - 3.0
    assert 0.25 < share("Calculate", 4) < 0.75  # log-odds 0.5 - 0.6


def test_written_facts_are_true_or_the_one_slip_of_that_fact(documents):
    wrong = Counter()
    for _, text in documents:
        for left, operator, right, result in FACT.findall(text):
            true = apply(int(left), operator, int(right))
            fact = (int(left), operator, int(right))
            if int(result) != true:
                assert int(result) == slip(*fact)
                assert abs(int(result) - true) == 1
            if slip(*fact) is not None:
                wrong[int(result) != true] += 1
    assert wrong[True] / wrong.total() == pytest.approx(corpus.SLIP_RATE, abs=0.03)


def test_a_slip_is_carried_forward():
    class Always(random.Random):
        def random(self):
            return 0.0

    (first, second) = with_slips(Always(), STEPS)
    assert first.result == (slip(7, "+", 3) or 10)
    assert second.left == first.result


def test_drills_are_single_facts():
    facts = FACT.findall(drill(random.Random(1)))
    assert len(facts) == corpus.DRILL_FACTS
    assert drill(random.Random(1)).startswith("First ")


def test_documents_depend_on_the_generator_only(documents):
    assert draw(50) == documents[:50]


def test_vocabulary_covers_the_corpus(documents):
    words = set()
    for text in vocabulary_texts():
        words.update(WORD.findall(text))
    assert len(words) < 400
    for prompt, text in documents:
        assert words.issuperset(WORD.findall(prompt) + WORD.findall(text))
