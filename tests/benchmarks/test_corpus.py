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
    rng = random.Random(0)
    return [corpus_document(rng) for _ in range(6000)]


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


def test_every_problem_is_from_the_train_split(documents):
    prompts = [prompt for prompt, _ in documents if prompt]
    assert {split_of(expression_of(prompt)) for prompt in prompts} == {"train"}


def test_proportions(documents):
    n = len(documents)
    problems = [prompt for prompt, _ in documents if prompt]
    assert 1 - len(problems) / n == pytest.approx(corpus.DRILL_SHARE, abs=0.03)
    stories = [prompt for prompt in problems if prompt.endswith("?")]
    assert len(stories) / len(problems) == pytest.approx(corpus.WORD_PROBLEM_SHARE, abs=0.03)


def test_hasty_solutions_state_the_right_answer(documents):
    hasty = [(prompt, text) for prompt, text in documents if text.startswith("Clearly")]
    assert len(hasty) > 1000
    for prompt, text in hasty:
        assert text == f"Clearly \\boxed{{{evaluate(expression_of(prompt))[-1]}}}"


def test_style_follows_verb_and_level(documents):
    shown = Counter()
    for prompt, text in documents:
        if prompt.endswith("."):
            verb = prompt.split()[0]
            level = len(evaluate(expression_of(prompt))) - 1
            shown[verb, level, not text.startswith("Clearly")] += 1

    def share(verb, level):
        worked, hasty = shown[verb, level, True], shown[verb, level, False]
        return worked / (worked + hasty)

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
    rng = random.Random(0)
    assert [corpus_document(rng) for _ in range(50)] == documents[:50]


def test_vocabulary_covers_the_corpus(documents):
    words = {word for text in vocabulary_texts() for word in WORD.findall(text)}
    missing = {word for document in documents for text in document for word in WORD.findall(text)} - words
    assert missing == set()
    assert len(words) < 400
