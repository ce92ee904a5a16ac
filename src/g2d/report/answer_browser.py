"""The answer browser: what the policies of the main grid answered to the same questions of a benchmark.

All questions are counted; a page has room for the texts of some. The first question of every pattern of right and wrong
over the policies comes first, then the second of every pattern, equals in the order of a hash of their names, so that
every kind of disagreement is shown and no model decides by which question.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from markupsafe import Markup

from g2d.experiment.config import Config
from g2d.experiment.grid import side_by_side
from g2d.experiment.keys import PolicyKey
from g2d.problems import Problem, read_problems
from g2d.report.marks import names
from g2d.report.markup import render
from g2d.report.pair_browser import ROLLOUT_COLUMNS, Completion, completion_of, shown_answer, within_budget
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.results import Results

QUESTIONS_PER_BENCHMARK = 40


@dataclass(frozen=True)
class Question:
    """One problem and an answer of every policy."""

    problem_id: str
    prompt: Markup
    answer: Markup
    answers: tuple[Completion, ...]

    @property
    def size(self) -> int:
        """Characters of its texts."""
        return len(self.prompt) + sum(len(own.text) for own in self.answers)


@dataclass(frozen=True)
class Answered:
    """The answers of a model's policies to a benchmark, those of one seed."""

    model: str
    benchmark: str
    policies: tuple[str, ...]  # as the page calls them
    right: tuple[str, ...]  # of every problem, a 1 or a 0 per policy
    questions: tuple[Question, ...]


def browse_answers(
    config: Config,
    answers: Callable[[PolicyKey, str], pd.DataFrame],
    problems: Callable[[str], Iterable[Problem]],
) -> list[Answered]:
    """The answers of a grid, with the questions that are shown.

    Args:
        config: of the grid.
        answers: of a policy to a benchmark, with `pair_browser.ROLLOUT_COLUMNS`; of several samples the first counts.
        problems: of a benchmark.

    Returns:
        At most `QUESTIONS_PER_BENCHMARK` questions each, and fewer where all together exceed
        `pair_browser.MAX_CHARACTERS`.
    """
    asked = {name: {problem.problem_id: problem for problem in problems(name)} for name in config.benchmarks}
    found = [
        _answered(model, benchmark, asked[benchmark], _called(keys), (answers(key, benchmark) for key in keys))
        for (model, benchmark), keys in side_by_side(config).items()
    ]
    return _within_page(found)


def browse_runs(runs: Mapping[str, Results], benchmarks: Sequence[str] = ()) -> list[Answered]:
    """The same of several runs: each one's policies that answered the questions of the first run with the benchmark.

    Args:
        runs: by the names that policies get before theirs.
        benchmarks: those to show; all without any.
    """
    places = dict.fromkeys(at for run in runs.values() for at in side_by_side(run.config))
    found = [_over_runs(runs, *at) for at in places if not benchmarks or at[1] in benchmarks]
    return _within_page([own for own in found if len(own.policies) > 1])


def _over_runs(runs: Mapping[str, Results], model: str, benchmark: str) -> Answered:
    asked: dict[str, Problem] = {}
    policies: list[tuple[str, PolicyKey]] = []
    for name, run in runs.items():
        file = run.folder / f"problems/{benchmark}.jsonl"
        own = {problem.problem_id: problem for problem in read_problems(file)} if file.is_file() else {}
        asked = asked or own
        if own == asked:
            keys = side_by_side(run.config).get((model, benchmark), [])
            answered = [key for key in keys if (key, benchmark) in run.answers]
            whole = [key for key in answered if set(run.answers[key, benchmark]["problem_id"]) == set(asked)]
            policies += [(name, run.finished.get(key, key)) for key in whole]
    called = [f"{name}: {own}" for (name, _), own in zip(policies, _called([key for _, key in policies]), strict=True)]
    files = (runs[name].folder / key.folder / f"eval/{benchmark}.parquet" for name, key in policies)
    return _answered(model, benchmark, asked, called, (read_rollouts(file, ROLLOUT_COLUMNS) for file in files))


def _called(keys: Sequence[PolicyKey]) -> list[str]:
    """The policies as the page calls them."""
    rows = [{"policy": key.label, "K": key.shown_k, "group_size": key.group_size or None} for key in keys]
    return names(pd.DataFrame(rows, columns=["policy", "K", "group_size"]))


def _answered(
    model: str,
    benchmark: str,
    problems: Mapping[str, Problem],
    called: Sequence[str],
    answers: Iterable[pd.DataFrame],
) -> Answered:
    by_policy = [frame[frame["sample"] == 0].set_index("problem_id").to_dict("index") for frame in answers]
    right = {name: "".join("01"[own[name]["verdict"] == "correct"] for own in by_policy) for name in problems}
    questions = [
        Question(
            name,
            render(problems[name].prompt),
            shown_answer(problems[name].answer),
            tuple(completion_of(title, 0, own[name]) for title, own in zip(called, by_policy, strict=True)),
        )
        for name in in_turn(right)[:QUESTIONS_PER_BENCHMARK]
    ]
    return Answered(model, benchmark, tuple(called), tuple(right.values()), tuple(questions))


def _within_page(found: Sequence[Answered]) -> list[Answered]:
    """The same with as many questions as a page has room for."""
    shown = within_budget([own.questions for own in found])
    return [replace(own, questions=own.questions[:n]) for own, n in zip(found, shown, strict=True)]


def in_turn(right: Mapping[str, str]) -> list[str]:
    """Questions, the first of every pattern before the second of any; patterns with a disagreement first.

    Args:
        right: by question, its pattern.
    """
    seen: Counter[str] = Counter()
    places = {}
    for name in sorted(right, key=lambda name: hashlib.sha256(name.encode()).digest()):
        places[name] = (seen[right[name]], len(set(right[name])) == 1)
        seen[right[name]] += 1
    return sorted(places, key=lambda name: places[name])
