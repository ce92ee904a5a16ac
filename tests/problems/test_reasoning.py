"""Problems of reasoning-gym: splits, mistakes, and verdicts by the tasks in the verifier's workers."""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from g2d.experiment.config import load
from g2d.experiment.requirements import require_tasks
from g2d.problems import Problem, read_problems, reasoning, write_problems
from g2d.problems.leakage import find_leaks
from g2d.problems.settings import ReasoningProblems
from g2d.settings import ConfigError
from g2d.verifier import Entry, Limits, Verifier
from g2d.verifier.reasoning import EVALUATING, FORMULAS
from tests.experiment.test_config import MINIMAL

needs_package = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed")

REQUEST = {"task": "chain_sum", "split": "train", "n": 40, "seed": 0, "config": {}, "levels": None, "seconds": None}
SMALL = {"max_terms": 2, "max_digits": 1}  # 200 questions


def rows(**keys):
    return [*reasoning.rows(REQUEST | keys)]


def problems(**keys):
    return [Problem(str(i), **row, subject=None, source="s") for i, row in enumerate(rows(**keys))]


@needs_package
def test_splits_share_no_question_for_any_seeds():
    drawn = {
        split: [p for seed in range(3) for p in problems(split=split, seed=seed, n=n, config=SMALL)]
        for split, n in (("train", 100), ("development", 10), ("test", 10))
    }
    for one, other in (("train", "test"), ("train", "development"), ("development", "test")):
        assert find_leaks(drawn[one], drawn[other]) == {}


@needs_package
def test_seeds_give_other_questions_and_a_seed_the_same():
    assert rows() == rows()
    first, next_seed = ({row["prompt"] for row in rows(seed=seed)} for seed in (0, 1))
    assert len(first & next_seed) < 5, "of neighbouring seeds reasoning-gym itself has almost the same problems"


@needs_package
def test_levels_have_equal_counts_and_separate_configurations():
    drawn = rows(n=9, levels=[{"max_terms": 2}, {"min_terms": 5, "max_terms": 5}])
    assert [row["level"] for row in drawn].count(1) == 5
    terms = {row["level"]: len(re.findall(r"\d+", row["prompt"])) for row in drawn}
    assert terms == {1: 2, 2: 5}


@needs_package
@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ({"task": "chain_sums"}, "task", "did you mean chain_sum"),
        ({"config": {"terms": 3}}, "config", "no terms: choose from .*max_terms"),
        ({"config": {"min_terms": 9}}, "config", "max_terms must be >= min_terms"),
        ({"config": {"seed": 3}}, "config", "seed is not for"),
        ({"levels": [{}, {"terms": 1}]}, "levels.1", "no terms"),
        ({"n": 300, "config": SMALL}, "n", r"lower n to at most 1\d\d"),
    ],
)
def test_mistakes_name_key_and_fix(keys, key, words):
    with pytest.raises(reasoning.TaskError, match=words) as caught:
        rows(**keys)
    assert caught.value.key == key


@needs_package
def test_a_mistake_is_found_before_any_job():
    config = load(MINIMAL | {"pool": {"source": "reasoning_gym", "task": "chain_sum", "n": 300, "config": SMALL}})
    with pytest.raises(ConfigError, match=r"pool\.n: chain_sum gives"):
        require_tasks(config)


def test_without_the_package_the_mistake_says_what_to_install(monkeypatch):
    monkeypatch.setattr(reasoning, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pool\.source: reasoning-gym is not installed .*\[reasoning-gym\]"):
        require_tasks(load(MINIMAL | {"pool": {"source": "reasoning_gym", "task": "chain_sum", "n": 3}}))


@needs_package
def test_a_task_that_depends_on_the_hash_seed_gives_the_same_problems_in_every_process(monkeypatch):
    source = ReasoningProblems(source="reasoning_gym", task="ransom_note", n=4)
    drawn = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        drawn.append(reasoning.generate("pool", source))
    assert drawn[0] == drawn[1]
    assert drawn[0][0].source == "reasoning_gym:ransom_note:train"


def test_the_entry_survives_the_file_and_other_problems_have_none(tmp_path):
    written = [Problem("a", "?", "1", None, None, "s", entry="{'task': 't'}"), Problem("b", "?", "1", None, None, "s")]
    write_problems(tmp_path / "p.jsonl", written)
    assert read_problems(tmp_path / "p.jsonl") == written
    assert "entry" not in (tmp_path / "p.jsonl").read_text().splitlines()[1]
    assert (written[0].reference, written[1].reference) == (Entry("{'task': 't'}"), "1")


@needs_package
def test_the_task_judges_where_several_answers_are_right_and_no_answer_runs_code(tmp_path):
    sums = problems(task="countdown", n=1, config={"min_numbers": 2, "max_numbers": 2, "operators": ["+"]})[0]
    numbers = ast.literal_eval(sums.entry)["entry"]["metadata"]["numbers"]
    text = problems(task="string_insertion", n=1)[0]
    touched = tmp_path / "touched"
    code = f"__import__('pathlib').Path({str(touched)!r}).touch()"
    items = [
        (sums.reference, f"\\boxed{{{numbers[0]} + {numbers[1]}}}"),
        (sums.reference, f"\\boxed{{{numbers[1]} + {numbers[0]}}}"),
        (sums.reference, f"\\boxed{{{numbers[0]} - {numbers[1]}}}"),
        (sums.reference, "none"),
        (sums.reference, rf"\boxed{{{code}}}"),
        (sums.reference, r"\boxed{(1).real}"),
        (sums.reference, r"\boxed{lambdify(x, x)}"),
        (sums.reference, r"\boxed{9**9**9**9}"),
        (text.reference, rf"\boxed{{{text.answer}}}"),
        (text.reference, rf"\boxed{{[{code}]}}"),
        ("1/2", r"\boxed{0.5}"),
    ]
    with Verifier(limits=Limits(deadline_s=1)) as verifier:
        judged = verifier.verify(items)
    verdicts = [judgement.verdict for judgement in judged]
    assert verdicts[:4] == ["correct", "correct", "incorrect", "no_boxed"]
    assert verdicts[4:7] == ["parse_error"] * 3
    assert verdicts[7] in ("timeout", "limit", "incorrect")
    assert verdicts[8:] == ["correct", "incorrect", "correct"]
    assert not touched.exists()
    assert judged[0].second_opinion is None, "nothing but the task knows"


@needs_package
def test_every_task_that_evaluates_an_answer_is_known():
    folder = Path(next(iter(find_spec("reasoning_gym").submodule_search_locations)))
    evaluating, formulas = set(), set()
    for file in folder.rglob("*.py"):
        text = file.read_text()
        where = ".".join(file.relative_to(folder).with_suffix("").parts)
        if re.search(r"\beval\((answer|user_answer|solution)\b", text):
            evaluating.add(where)
        if re.search(r"(?:sympy\.|sp\.|\b)(?:parse_expr|sympify)\(", text) and "sympy" in text:
            formulas.add(where.rpartition(".")[2])
    assert evaluating == set(EVALUATING)
    assert formulas == set(FORMULAS)
