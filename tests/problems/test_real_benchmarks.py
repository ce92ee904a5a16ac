"""MATH, MATH-500 and GSM8K as their publishers distribute them; skipped where the files are missing."""

import re
from collections import defaultdict
from dataclasses import replace

import pandas as pd
import pytest

from g2d.problems.audit import find_leaks, manifest
from g2d.problems.problem_keys import Fields, LocalProblems
from g2d.problems.sources import load_problems
from g2d.problems.text_key import text_key
from g2d.verifier import Verification, verify_batch

MATH = {"prompt": "problem", "id": "unique_id", "level": "level"}
SOURCES = {
    "pool": LocalProblems(
        source="local", path="math/train.jsonl", answer_format="boxed",
        fields=Fields(**MATH, answer="solution", subject="type"),
    ),
    "math500": LocalProblems(
        source="local", path="math500/test.jsonl", fields=Fields(**MATH, answer="answer", subject="subject")
    ),
    "gsm8k": LocalProblems(
        source="local", path="gsm8k/test.jsonl", answer_format="gsm8k",
        fields=Fields(prompt="question", answer="answer"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def problems(real_data):
    return {name: load_problems(name, at(real_data, source)) for name, source in SOURCES.items()}


def at(real_data, source):
    """The source, by the whole path of its file."""
    return source.model_copy(update={"path": str(real_data / source.path)})


def raw(real_data, name):
    """Return the rows as published, in the order of `problems`."""
    return pd.read_json(real_data / SOURCES[name].path, lines=True)


def test_sizes_and_levels(problems):
    pool, math500 = pd.DataFrame(problems["pool"]), pd.DataFrame(problems["math500"])
    assert (len(pool), len(math500), len(problems["gsm8k"])) == (7500, 500, 1319)
    assert pool["level"].value_counts().to_dict() == {1: 564, 2: 1348, 3: 1592, 4: 1690, 5: 2304}
    assert pool["level"].isna().sum() == 2
    assert math500["subject"].nunique() == 7


def test_math_answers_come_from_the_last_box(problems, real_data):
    assert problems["pool"][0].answer == "0"
    solutions = raw(real_data, "pool")["solution"]
    has_several = solutions.str.count(r"\\boxed") > 1
    assert has_several.sum() == 114
    for i, solution in solutions[has_several].items():
        if solution.rstrip().endswith("}$."):
            assert solution.rpartition("\\boxed{")[2].startswith(problems["pool"][i].answer)


def test_math500_answers_are_what_its_solutions_box(real_data, problems):
    source = SOURCES["math500"].model_copy(
        update={"answer_format": "boxed", "fields": Fields(**MATH, answer="solution", subject="subject")}
    )
    for boxed, problem in zip(load_problems("math500", at(real_data, source)), problems["math500"], strict=True):
        assert boxed.answer == problem.answer


def test_gsm8k_thousands_separators(problems, real_data):
    tails = raw(real_data, "gsm8k")["answer"].str.rpartition("####")[2].str.strip()
    assert tails.str.contains(",").sum() == 14
    numbers = tails.str.replace(",", "").astype(int)
    answers = pd.DataFrame(problems["gsm8k"])["answer"].astype(int)
    assert answers.tolist() == numbers.tolist()


@pytest.mark.parametrize("name", ["math500", "gsm8k"])
def test_math_does_not_leak_into_its_benchmarks(problems, name):
    assert find_leaks(problems["pool"], problems[name]) == {}


# What another publisher of MATH changes, one after the other.
RETYPED = (
    (r"([\^_])(\d(?!\d)|[a-z](?![a-z]))", r"\1{\2}"),
    (r"\\(le|ge|ne)(?![A-Za-z])", r"\\\1q"),
    (r"(?<=\d)(?:,\\!|\{,\}|,)(?=\d{3}(?!\d))", "{,}"),
    (r"\^\\circ", r"^{\\circ}"),
    (r"\\text\{", r"\\mbox{"),
    (r"\\l?dots(?![a-z])", r"\\cdots"),
    (r"\\frac\{(\d)\}\{(\d)\}", r"\\frac\1\2"),
    (r" ([+=<>]) ", r"\1"),
    (r"\\times(?![a-z])", "×"),
    (r"\\pi(?![a-z])", "π"),
    (r"(?<!\\)\\[\[\]]", "$$"),
    (r"\{align(\*?)\}", r"{aligned\1}"),
)


def test_math_as_another_publisher_types_it_is_found(problems):
    changed = []
    for problem in problems["pool"]:
        text = problem.prompt
        for pattern, replacement in RETYPED:
            text = re.sub(pattern, replacement, text)
        if text != problem.prompt:
            changed.append(replace(problem, prompt=text))
    assert len(changed) > 4000
    assert len(find_leaks(problems["pool"], changed)) == len(changed)


def test_only_repeats_have_the_same_key(problems):
    by_key = defaultdict(list)
    for problem in [*problems["pool"], *problems["math500"], *problems["gsm8k"]]:
        by_key[text_key(problem.prompt)].append(problem)
    repeated = [group for group in by_key.values() if len(group) > 1]
    assert len(repeated) == 4  # of MATH's training problems, typed twice
    for first, second in repeated:
        assert text_key(first.answer) == text_key(second.answer)


def test_the_manifest_lists_the_references_of_math_that_do_not_verify(problems, real_data):
    def verify(items):
        """Judge only the empty references; tests/verifier/test_references.py judges all."""
        judgements = []
        for item in items:
            judgements += verify_batch([item]) if item[0] == "" else [Verification("correct", item[0])]
        return judgements

    record = manifest("pool", at(real_data, SOURCES["pool"]), problems["pool"], verify)
    assert record["levels"] == {"1": 564, "2": 1348, "3": 1592, "4": 1690, "5": 2304, "unknown": 2}
    assert record["duplicate_prompts"] == 4
    assert record["reference_failures"] == [  # the publisher left both boxes empty
        {"problem_id": "train/number_theory/7115.json", "answer": "", "verdict": "parse_error"},
        {"problem_id": "train/number_theory/7117.json", "answer": "", "verdict": "parse_error"},
    ]


def test_math500_references_verify_against_themselves(problems, real_data):
    record = manifest("math500", at(real_data, SOURCES["math500"]), problems["math500"], verify_batch)
    assert record["source_sha256"] == "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"
    assert record["reference_failures"] == []
