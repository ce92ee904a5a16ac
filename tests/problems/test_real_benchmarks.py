"""MATH, MATH-500 and GSM8K as their publishers distribute them; skipped where the files are missing."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from g2d.problems.audit import assert_no_leakage, find_leaks, manifest
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
    with open(real_data / SOURCES[name].path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_sizes_and_levels(problems):
    assert {name: len(rows) for name, rows in problems.items()} == {"pool": 7500, "math500": 500, "gsm8k": 1319}
    assert Counter(problem.level for problem in problems["pool"]) == {
        1: 564, 2: 1348, 3: 1592, 4: 1690, 5: 2304, None: 2,
    }  # fmt: skip
    assert len({problem.subject for problem in problems["math500"]}) == 7


def test_math_answers_come_from_the_last_box(problems, real_data):
    boxes = {row["unique_id"]: row["solution"].count("\\boxed") for row in raw(real_data, "pool")}
    assert sum(count > 1 for count in boxes.values()) == 114
    answers = {problem.problem_id: problem.answer for problem in problems["pool"]}
    assert answers["train/algebra/0.json"] == "0"
    for row in raw(real_data, "pool"):
        if boxes[row["unique_id"]] > 1 and row["solution"].rstrip().endswith("}$."):
            tail = row["solution"].rpartition("\\boxed{")[2]
            assert tail.startswith(answers[row["unique_id"]])


def test_math500_answers_are_what_its_solutions_box(real_data, problems):
    source = SOURCES["math500"].model_copy(
        update={"answer_format": "boxed", "fields": Fields(**MATH, answer="solution", subject="subject")}
    )
    boxed = load_problems("math500", at(real_data, source))
    differing = [(b.answer, p.answer) for b, p in zip(boxed, problems["math500"], strict=True) if b.answer != p.answer]
    assert differing == []


def test_gsm8k_thousands_separators(problems, real_data):
    tails = [row["answer"].rpartition("####")[2].strip() for row in raw(real_data, "gsm8k")]
    assert sum("," in tail for tail in tails) == 14
    assert [int(problem.answer) for problem in problems["gsm8k"]] == [int(tail.replace(",", "")) for tail in tails]


def test_no_leak_between_math_and_its_benchmarks(problems):
    for name in ("math500", "gsm8k"):
        assert_no_leakage(problems["pool"], problems[name], name)


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
    retyped = []
    for problem in problems["pool"]:
        text = problem.prompt
        for pattern, replacement in RETYPED:
            text = re.sub(pattern, replacement, text)
        retyped.append(replace(problem, prompt=text))
    changed = [new for new, old in zip(retyped, problems["pool"], strict=True) if new.prompt != old.prompt]
    assert len(changed) > 4000
    assert len(find_leaks(problems["pool"], changed)) == len(changed)


def test_only_repeats_have_the_same_key(problems):
    by_key = defaultdict(list)
    for problem in [*problems["pool"], *problems["math500"], *problems["gsm8k"]]:
        by_key[text_key(problem.prompt)].append(problem)
    repeated = [group for group in by_key.values() if len(group) > 1]
    assert len(repeated) == 4  # of MATH's training problems, typed twice
    assert all(text_key(first.answer) == text_key(second.answer) for first, second in repeated)


def test_the_manifest_lists_the_references_of_math_that_do_not_verify(problems, real_data):
    def verify(items):
        """Judge only the empty references; tests/verifier/test_references.py judges all."""
        empty = iter(verify_batch([item for item in items if item[0] == ""]))
        return [next(empty) if answer == "" else Verification("correct", answer) for answer, _ in items]

    record = manifest("pool", at(real_data, SOURCES["pool"]), problems["pool"], verify)
    assert record["levels"] == {"1": 564, "2": 1348, "3": 1592, "4": 1690, "5": 2304, "unknown": 2}
    assert record["duplicate_prompts"] == 4
    assert record["reference_failures"] == [  # the publisher left both boxes empty
        {"problem_id": f"train/number_theory/{number}.json", "answer": "", "verdict": "parse_error"}
        for number in (7115, 7117)
    ]


def test_math500_references_verify_against_themselves(problems, real_data):
    record = manifest("math500", at(real_data, SOURCES["math500"]), problems["math500"], verify_batch)
    assert record["source_sha256"] == "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"
    assert record["reference_failures"] == []
