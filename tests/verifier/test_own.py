"""A verifier of the user's: a file with `judge(problem, completion) -> bool`."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import Any

import pandas as pd
import pytest

from g2d.checks.load import load
from g2d.checks.requirements import require_files
from g2d.cli import main
from g2d.problems import Problem, read_problems, write_problems
from g2d.problems.problem import references
from g2d.problems.problem_keys import LocalProblems
from g2d.problems.sources import ProblemError, load_problems
from g2d.settings import ConfigError
from g2d.verifier import Limits, Verifier, VerifierError
from g2d.verifier.user_code import signature
from g2d.verifier.verifier_keys import PythonVerifier, verifier_of, verifier_params
from tests.configs import MINIMAL

from .judging import boxed, verdicts_of

EXAMPLES = Path(__file__).parents[2] / "examples"
PROBLEM = {"prompt": "1 + 1?", "answer": "2", "level": 1, "subject": None, "metadata": {"n": [1, 1]}}
LIMITS = Limits(memory_bytes=300 * 2**20)
SHORT = replace(LIMITS, deadline_s=0.5, wall_s=2.0)  # for code that hangs


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a path is relative to the working directory
    signature.cache_clear()


def verdicts(
    body: str,
    *completions: str,
    reasons: list[str | None] | None = None,
    workers: int = 1,
    limits: Limits = LIMITS,
) -> list[str]:
    """Judge by the body of a `judge`."""
    write_judge(body)
    with Verifier(workers, limits, file="mine.py") as verifier:
        return verdicts_of(verifier.verify([(PROBLEM, text) for text in completions], reasons))


def write_judge(body: str = "return True") -> None:
    Path("mine.py").write_text("def judge(problem, completion):\n" + indent(body, "    ") + "\n")


def write_lines(path: str, rows: list[dict[str, Any]]) -> None:
    Path(path).write_text("\n".join(map(json.dumps, rows)))


def test_it_sees_the_problem_and_the_whole_completion() -> None:
    body = f"assert problem == {PROBLEM!r}, problem\nproblem.clear()\nreturn completion == 'so 2'"
    assert verdicts(body, "so 2", "so 3") == ["correct", "incorrect"]


def test_a_wrong_completion_that_ran_out_of_tokens_is_truncated() -> None:
    reasons: list[str | None] = ["length", "length", "stop"]
    assert verdicts("return completion == '2'", "2", "3", "3", reasons=reasons) == ["correct", "truncated", "incorrect"]


def test_a_wrong_completion_whose_thinking_never_ended_has_a_status_of_its_own() -> None:
    found = verdicts("return '2' in completion", "<think> 2", "<think> 3", "<think> 3 </think> 3")
    assert found == ["correct", "unfinished_thinking", "incorrect"]


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("raise ValueError('no')", "error"),
        ("raise KeyboardInterrupt", "error"),
        ("import sys\nsys.exit(0)", "error"),
        ("return 1", "not_bool"),
        ("return None", "not_bool"),
        ("return float('nan')", "not_bool"),
        ("return 'True'", "not_bool"),
        ("while True:\n    pass", "timeout"),
        ("import re\nreturn bool(re.match('(a+)+$', 'a' * 40 + 'b'))", "timeout"),  # in C, where no signal is handled
        ("import time\ntime.sleep(60)", "timeout"),
        ("import os\nos._exit(0)", "limit"),
        ("import os\nos.kill(os.getpid(), 11)", "limit"),
        ("return len(bytearray(400 * 2**20)) > 0", "limit"),
        ("def deeper(n):\n    return deeper(n + 1)\nreturn deeper(0)", "limit"),
    ],
)
def test_a_failure_is_a_verdict_of_that_completion_alone(body: str, verdict: str) -> None:
    hostile = "if completion != 'hostile':\n    return completion == '2'\n" + body
    limits = SHORT if verdict == "timeout" else LIMITS
    assert verdicts(hostile, "2", "hostile", "3", limits=limits) == ["correct", verdict, "incorrect"]


def test_a_file_may_define_a_dataclass() -> None:
    body = "from dataclasses import dataclass\n@dataclass\nclass Answer:\n    text: 'str'\n"
    assert verdicts(body + "return Answer(completion) == Answer('2')", "2", "3") == ["correct", "incorrect"]


def test_standard_input_and_output_are_no_way_to_the_parent() -> None:
    body = "import sys\nprint('noise')\nprint('noise', file=sys.stderr)\nreturn sys.stdin.read() == ''"
    assert verdicts(body, "2", "3") == ["correct", "correct"]


FLOOD = """
import os, sys
for descriptor in range(21):
    for noise in (b"noise" * 100_000, b'\\n["correct"]\\n', b"[", b"\\xff\\x00\\n"):
        try:
            os.write(descriptor, noise)
        except OSError:
            pass
print("noise" * 200_000, flush=True)
print("noise" * 200_000, file=sys.stderr, flush=True)
"""


def test_writing_to_any_descriptor_spoils_no_reply() -> None:
    """One of them is the way to the parent, which still reads the right replies."""
    assert verdicts(FLOOD + "return completion == '2'", "2", "3", "2") == ["correct", "incorrect", "correct"]


def test_a_file_that_writes_to_any_descriptor_when_it_is_loaded_can_be_used() -> None:
    Path("mine.py").write_text(FLOOD + "def judge(problem, completion):\n    return completion == '2'\n")
    with Verifier(1, LIMITS, file="mine.py") as verifier:
        assert verdicts_of(verifier.verify([(PROBLEM, "2"), (PROBLEM, "3")])) == ["correct", "incorrect"]


ENDLESS = """
import os
while True:
    for descriptor in range(3, 21):
        try:
            os.write(descriptor, NOISE * 10_000)
        except OSError:
            pass
"""


@pytest.mark.parametrize("noise", ["b'noise'", "b'\\n'"])
def test_the_time_limit_ends_a_flood_of_any_descriptor(noise: str) -> None:
    hostile = "if completion != 'hostile':\n    return completion == '2'\n" + ENDLESS.replace("NOISE", noise)
    assert verdicts(hostile, "2", "hostile", "3", limits=SHORT) == ["correct", "timeout", "incorrect"]


@pytest.mark.parametrize("close", ["os.closerange(3, 21)", "[os.dup2(0, n) for n in range(3, 21)]"])
def test_closing_every_descriptor_hangs_nothing(close: str) -> None:
    hostile = f"import os\nif completion == 'hostile':\n    {close}\nreturn completion == '2'"
    right, lost, wrong = verdicts(hostile, "2", "hostile", "3", limits=SHORT)
    assert (right, wrong) == ("correct", "incorrect")
    assert lost in ("limit", "timeout")


def test_verdicts_do_not_depend_on_workers(caplog: pytest.LogCaptureFixture) -> None:
    body = "if completion == '7':\n    raise ValueError('seven')\nreturn int(completion) % 2 == 0"
    texts = [*"012345678901234567"]
    with caplog.at_level(logging.WARNING):
        assert verdicts(body, *texts, workers=3) == verdicts(body, *texts)
    assert "mine.py: ValueError: seven: a completion has the verdict error" in caplog.text


def test_the_first_timeout_is_logged_at_once_with_the_answer_and_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The second completion is judged once the log has the timeout of the first."""

    class Tell(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            Path("logged").touch()

    tell = Tell()
    logger = logging.getLogger("g2d.verifier.verifier")
    logger.addHandler(tell)
    body = "import os, time\nwhile completion == 'endless':\n    pass\n"
    body += "while not os.path.exists('logged'):\n    time.sleep(0.01)\nreturn True"
    try:
        with caplog.at_level(logging.WARNING):
            found = verdicts(body, "endless", "2", limits=replace(LIMITS, deadline_s=0.5))
    finally:
        logger.removeHandler(tell)
    assert found == ["timeout", "correct"]
    message = "mine.py: it took more than 0.5 s of CPU time: a completion has the verdict timeout: 'endless'"
    assert message in caplog.text


def loops_after(n: int) -> str:
    return f"while int(completion) >= {n}:\n    pass\nreturn False"


def test_a_verifier_that_times_out_on_all_first_completions_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("g2d.verifier.verifier.N_FIRST", 2)
    message = r"^mine\.py: judge failed on all of the first 2 completions \(2 timeout\); timeout: it took more than"
    with pytest.raises(VerifierError, match=message):
        verdicts(loops_after(0), "0", "1", "2", limits=SHORT)


def test_a_verifier_that_times_out_later_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("g2d.verifier.verifier.N_FIRST", 2)
    assert verdicts(loops_after(1), "0", "1", "2", limits=SHORT) == ["incorrect", "timeout", "timeout"]


def test_first_completions_are_counted_over_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("g2d.verifier.verifier.N_FIRST", 2)
    Path("mine.py").write_text("def judge(problem, completion):\n    return 1\n")
    with Verifier(1, LIMITS, file="mine.py", fatal=["not_bool"]) as verifier:
        verifier.verify([(PROBLEM, "2")])
        with pytest.raises(VerifierError, match=r"\(2 not_bool\); not_bool: judge returned 1: mend it"):
            verifier.verify([(PROBLEM, "2")])


def test_only_slow_failures_end_a_job_after_the_calibration() -> None:
    assert set(verdicts("return 1", *["2"] * 50)) == {"not_bool"}


def test_open_ended_problems_are_not_judged() -> None:
    write_judge()
    problems = [Problem("a", "?", None, None, None, "s"), Problem("b", "?", "1", None, None, "s", metadata=[1])]
    with Verifier(1, LIMITS, file="mine.py") as verifier:
        asked = references(problems, verifier)
        assert asked[0] is None
        assert asked[1] == {"prompt": "?", "answer": "1", "level": None, "subject": None, "metadata": [1]}
        assert verdicts_of(verifier.verify([(None, "x"), (asked[1], "x")])) == ["no_reference", "correct"]
    with Verifier(1) as verifier:
        assert references(problems, verifier) == [None, "1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "mine.py does not exist in "),
        ("def judge(problem\n", r"mine.py cannot be read as Python \(SyntaxError: .*, line 1\): mend it"),
        ("def score(problem, completion): ...\n", r"mine.py has no function judge \(its functions: score\): define it"),
        ("async def judge(problem, completion): ...\n", "judge in mine.py is async: make it a plain function"),
        ("def judge(completion): ...\n", r"judge in mine.py has other parameters: write def judge\(problem, compl"),
        ("def judge(problem, completion, more): ...\n", "judge in mine.py has other parameters"),
        ("def judge(problem, completion, *, more): ...\n", "judge in mine.py has other parameters"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(text: str | None, message: str) -> None:
    if text is not None:
        Path("mine.py").write_text(text)
    config = load(MINIMAL | {"verifier": {"source": "python", "file": "mine.py"}})
    with pytest.raises(ConfigError, match=rf"^verifier.file: {message}"):
        require_files(config)


@pytest.mark.parametrize("text", ["judge(problem, completion, more=1)", "judge(*given)", "judge(a, b, **more)"])
def test_a_function_with_other_names_for_its_two_arguments_is_accepted(text: str) -> None:
    Path("mine.py").write_text(f"raise SystemExit  # planning does not execute it\ndef {text}: ...\n")
    require_files(load(MINIMAL | {"verifier": {"source": "python", "file": "mine.py"}}))


def test_a_file_that_cannot_be_executed_is_named_with_the_line() -> None:
    Path("mine.py").write_text("import not_there\ndef judge(problem, completion): ...\n")
    with (
        pytest.raises(VerifierError, match=r"mine\.py cannot be executed \(ModuleNotFoundError: .*, line 1\): mend it"),
        Verifier(1, file="mine.py") as verifier,
    ):
        verifier.verify([(PROBLEM, "2")])


def test_a_changed_file_is_another_verifier() -> None:
    Path("mine.py").write_text("def judge(problem, completion): ...\n")
    own = PythonVerifier(source="python", file="mine.py")
    params = verifier_params(own)
    assert verifier_of(params) == own
    assert (verifier_params(None), verifier_of({})) == ({}, None)
    with Verifier(1, file="mine.py") as verifier:
        write_judge()
        assert verifier_params(own) != params
        with pytest.raises(ValueError, match=r"mine\.py: changed after this job was planned: sha256"):
            verifier_of(params)
        with pytest.raises(VerifierError, match=r"mine\.py changed after this job began: put it back"):
            verifier.verify([(PROBLEM, "2")])


def test_any_json_of_a_column_reaches_it() -> None:
    more = {"numbers": [1, None, 0.5]}
    write_lines("rows.jsonl", [{"question": "1?", "answer": "1", "more": more}])
    fields = {"prompt": "question", "metadata": "more"}
    source = LocalProblems.model_validate({"source": "local", "path": "rows.jsonl", "fields": fields})
    problems = load_problems("pool", source)
    assert problems[0].metadata == more
    write_problems("problems.jsonl", problems)
    assert read_problems("problems.jsonl") == problems
    without = Problem("a", "?", "1", None, None, "s")
    write_problems("without.jsonl", [without])
    assert "metadata" not in Path("without.jsonl").read_text()
    source = source.model_copy(update={"fields": source.fields.model_copy(update={"metadata": "extra"})})
    with pytest.raises(ProblemError, match="no column 'extra'"):
        load_problems("pool", source)


def test_g2d_verify_gives_it_the_whole_row() -> None:
    write_judge("return problem == {'limit': len(completion)}")
    rows = [{"limit": 1, "completion": "a", "finish_reason": "stop"}, {"limit": 3, "completion": "ab"}]
    write_lines("in.jsonl", rows)
    assert main(["verify", "in.jsonl", "out.jsonl", "--verifier", "mine.py"]) == 0
    judged = pd.read_json("out.jsonl", lines=True)
    assert judged["verdict"].tolist() == ["correct", "incorrect"]
    assert judged["reward"].tolist() == [1.0, 0.0]
    assert main(["verify", "in.jsonl", "out.jsonl", "--verifier", "not-there.py"]) == 2


def test_g2d_verify_refuses_a_function_with_other_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("def judge(problem):\n    return True\n")
    Path("in.jsonl").write_text('{"completion": "a"}\n')
    assert main(["verify", "in.jsonl", "out.jsonl", "--verifier", "mine.py"]) == 2
    assert "judge in mine.py has other parameters: write def judge(problem, completion)" in capsys.readouterr().err
    assert not Path("out.jsonl").exists()


# ------------------------------------------------------------------------------------------------------------ examples


def test_exact_match() -> None:
    problem = PROBLEM | {"answer": "New York"}
    items = [(problem, "I think\n new  york "), (problem, "new\nyork"), (problem, ""), (problem, "York")]
    with Verifier(1, file=str(EXAMPLES / "exact_match.py")) as verifier:
        assert verdicts_of(verifier.verify(items)) == ["correct", "incorrect", "incorrect", "incorrect"]


needs_package = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed")


@needs_package
def test_reasoning_gym_judges_where_several_answers_are_right_and_no_answer_runs_code(tmp_path: Path) -> None:
    import reasoning_gym

    def problem(task: str, **config: Any) -> dict[str, Any]:
        entry = reasoning_gym.create_dataset(task, size=1, seed=0, **config)[0]
        own = {"prompt": entry["question"], "answer": entry["answer"], "metadata": entry["metadata"]}
        return PROBLEM | json.loads(json.dumps(own))  # through a file of problems

    sums = problem("countdown", min_numbers=2, max_numbers=2, operators=["+"])
    a, b = sums["metadata"]["numbers"]
    text = problem("string_insertion")
    touched = tmp_path / "touched"
    code = f"__import__('pathlib').Path({str(touched)!r}).touch()"
    right = [boxed(sums, f"{a} + {b}"), boxed(sums, f"{b} + {a}"), boxed(text, text["answer"])]
    wrong = [boxed(sums, f"{a} - {b}"), boxed(sums, code), boxed(sums, "(1).real"), boxed(sums, "lambdify(x, x)")]
    wrong += [(sums, "none"), boxed(text, f"[{code}]")]
    with Verifier(1, file=str(EXAMPLES / "reasoning_gym_verifier.py")) as verifier:
        assert verdicts_of(verifier.verify(right)) == ["correct"] * len(right)
        assert verdicts_of(verifier.verify(wrong)) == ["incorrect"] * len(wrong)
    assert not touched.exists()


@needs_package
def test_every_task_of_reasoning_gym_that_evaluates_an_answer_is_known() -> None:
    import re
    import runpy

    known = runpy.run_path(str(EXAMPLES / "reasoning_gym_verifier.py"))
    spec = find_spec("reasoning_gym")
    assert spec is not None
    folder = Path(next(iter(spec.submodule_search_locations or [])))
    evaluating: set[str] = set()
    formulas: set[str] = set()
    for file in folder.rglob("*.py"):
        text = file.read_text()
        where = ".".join(file.relative_to(folder).with_suffix("").parts)
        if re.search(r"\beval\((answer|user_answer|solution)\b", text):
            evaluating.add(where)
        if re.search(r"(?:sympy\.|sp\.|\b)(?:parse_expr|sympify)\(", text) and "sympy" in text:
            formulas.add(where.rpartition(".")[2])
    assert evaluating == set(known["EVALUATING"])
    assert formulas == set(known["FORMULAS"])
