"""The manifest: hashes, counts and references that do not verify."""

import hashlib
import json

from g2d.problems import Problem, read_problems, write_problems
from g2d.problems.audit import manifest
from g2d.problems.problem_keys import LocalProblems, SyntheticProblems
from g2d.problems.sources import load_problems
from g2d.verifier import Verification

PROBLEMS = [
    Problem("p1", "What is 1+1?", "2", 2, "algebra", "s"),
    Problem("p2", "What is 1+1?", "2", 10, None, "s"),
    Problem("p3", "Which month?", "May", None, "prose", "s"),
]
SYNTHETIC = SyntheticProblems(source="synthetic", family="arithmetic", split="test", n=10)


def numbers_only(items):
    """A verifier that reads digits only."""
    return [
        Verification("correct" if answer.isdigit() and text == f"\\boxed{{{answer}}}" else "parse_error", answer)
        for answer, text in items
    ]


def test_counts_and_failures(tmp_path):
    record = manifest("pool", SYNTHETIC, PROBLEMS, numbers_only)
    write_problems(tmp_path / "pool.jsonl", PROBLEMS)
    assert record == {
        "name": "pool",
        "source": SYNTHETIC.model_dump(),
        "sha256": hashlib.sha256((tmp_path / "pool.jsonl").read_bytes()).hexdigest(),
        "n": 3,
        "levels": {"2": 1, "10": 1, "unknown": 1},
        "subjects": {"algebra": 1, "prose": 1, "unknown": 1},
        "duplicate_prompts": 1,
        "reference_failures": [{"problem_id": "p3", "answer": "May", "verdict": "parse_error"}],
    }
    assert list(record["levels"]) == ["2", "10", "unknown"], "levels in numerical order"
    json.dumps(record, allow_nan=False)


def test_a_local_source_is_pinned_by_its_hash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"problem": "1+1?", "answer": 2}\n')
    source = LocalProblems(source="local", path="rows.jsonl")
    record = manifest("pool", source, load_problems("pool", source), numbers_only)
    assert record["source_sha256"] == hashlib.sha256((tmp_path / "rows.jsonl").read_bytes()).hexdigest()
    assert record["source"]["fields"]["prompt"] == "problem"


def test_the_same_problems_have_the_same_hash():
    one = manifest("pool", SYNTHETIC, load_problems("pool", SYNTHETIC), numbers_only)
    assert one == manifest("pool", SYNTHETIC, load_problems("pool", SYNTHETIC), numbers_only)
    assert one["reference_failures"] == []


def test_jsonl_contract(tmp_path):
    path = tmp_path / "problems.jsonl"
    write_problems(path, PROBLEMS)
    for line in path.read_text(encoding="utf-8").splitlines():
        assert list(json.loads(line)) == ["problem_id", "prompt", "answer", "level", "subject", "source", "cluster"]
    assert read_problems(path) == PROBLEMS
