"""A verifier of the user's that fails is reported with the reason."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from g2d.problems import Problem
from g2d.problems.problem import references
from g2d.rollouts.rollout import to_frame
from g2d.rollouts.verifier_failures import first_failure, require_judged
from g2d.verifier import Verifier
from tests.frames import rollout

PROBLEMS = [Problem("p0", "question 0", "0", 1, None, "a test"), Problem("p1", "question 1", "1", 1, None, "a test")]


def judged(file: Path, body: str) -> pd.DataFrame:
    file.write_text(f"def judge(problem, completion):\n    {body}\n")
    with Verifier(file=str(file)) as verifier:
        items = [(reference, "text") for reference in references(PROBLEMS, verifier)]
        first, second = verifier.verify(items)
    return to_frame([rollout("p0", 0, first.verdict), rollout("p1", 0, second.verdict)])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "return problem.answer == completion",
            r"\(2 error\); error: AttributeError: 'dict' object has no .*: mend it",
        ),
        ("return 1", r"\(2 not_bool\); not_bool: judge returned 1: mend it"),
        ("return 'five'", r"\(2 not_bool\); not_bool: judge returned 'five': mend it"),
        ("return bool(bytearray(3 * 2**30))", r"\(2 limit\); limit: mend it"),
    ],
)
def test_a_verifier_that_judges_nothing_is_refused_with_the_reason(tmp_path: Path, body: str, message: str) -> None:
    file = tmp_path / "mine.py"
    rollouts = judged(file, body)
    with pytest.raises(RuntimeError, match=rf"mine\.py: judge failed on all 2 completions {message}$"):
        require_judged(rollouts, PROBLEMS, str(file))


def test_one_that_judges_something_is_not_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    rollouts = judged(file, "return {'0': False}[problem['answer']]")
    require_judged(rollouts, PROBLEMS, str(file))
    assert first_failure(rollouts, PROBLEMS, str(file)) == "error: KeyError: '1'"


def test_math_verify_never_fails_in_this_sense() -> None:
    rollouts = to_frame([rollout("p0", 0, "limit")])
    require_judged(rollouts, PROBLEMS, None)
    assert first_failure(rollouts, PROBLEMS, None) is None
