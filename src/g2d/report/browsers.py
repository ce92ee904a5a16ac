"""Browsers of the page: rollouts of a problem across K (the paper's appendix C), and answers to a question by
policy."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TypeVar

import pandas as pd
from markupsafe import Markup

from g2d.grid.grid import Grid
from g2d.grid.runs import Harvest, Policy
from g2d.problems import Problem
from g2d.report.markup import mathml, plain, render
from g2d.report.styles import names
from g2d.rollouts.pairs import Pair
from g2d.tables.frames import Cells
from g2d.tables.reads import side_by_side

PROBLEMS_PER_SERIES = 40
PROBLEMS_PER_CONTROL = 10
QUESTIONS_PER_BENCHMARK = 40
MAX_CHARACTERS = 2_500_000  # HTML of all texts: the page must stay small enough for a phone

ROLLOUT_COLUMNS = (
    *("problem_id", "level", "sample", "completion_text", "token_count", "finish_reason"),
    *("verdict", "reward", "extracted_answer", "reference_answer"),
)


@dataclass(frozen=True)
class ShownCompletion:
    role: str  # chosen, rejected, example (no pair), or the policy's name
    sample: int
    text: Markup
    verdict: str
    answer: Markup | None
    tokens: int
    truncated: bool
    reward: float | None  # number from the harvest's reward, None without one


@dataclass(frozen=True)
class Shown:
    problem_id: str
    level: int | None
    prompt: Markup
    answer: Markup
    completions: tuple[ShownCompletion, ...]

    @property
    def size(self) -> int:
        return len(self.prompt) + sum(len(completion.text) for completion in self.completions)


@dataclass(frozen=True)
class RolloutsAtK:
    k: int
    correct: int
    n: int
    verdicts: str  # such as "5 correct, 3 incorrect"
    completions: tuple[ShownCompletion, ...]


@dataclass(frozen=True)
class Story(Shown):
    steps: tuple[RolloutsAtK, ...]

    @property
    def n_pairs(self) -> int:
        return sum(len(step.completions) == 2 for step in self.steps)


@dataclass(frozen=True)
class Series:
    model: str
    seed: int
    variant: str  # name of the entry, "" for the main grid
    group_size: int | None
    shown: tuple[Story, ...]


@dataclass(frozen=True)
class Answered:
    model: str
    benchmark: str
    policies: tuple[str, ...]  # names on the page
    right: tuple[str, ...]  # one string per problem, with 1 or 0 for each policy: whether its answer is right
    shown: tuple[Shown, ...]


At = tuple[str, int, str, int | None]  # model, seed, variant, G of a series
Browsed = TypeVar("Browsed", Series, Answered)


# --------------------------------------------------------------------------------------------------------------- pairs


def series_keys(harvests: Sequence[Harvest]) -> dict[At, list[Harvest]]:
    """Return the harvests by (model, seed, variant, G), ascending in K; M0's (K=0) are in each series."""
    by_variant: dict[tuple[str, int, str], list[Harvest]] = {}
    for harvest in harvests:
        by_variant.setdefault((harvest.model, harvest.seed, harvest.variant), []).append(harvest)
    by_series: dict[At, list[Harvest]] = {}
    for at, members in by_variant.items():
        members.sort(key=lambda harvest: harvest.k)
        sizes = sorted({harvest.group_size for harvest in members} - {0})
        for size in sizes:
            by_series[*at, size] = [harvest for harvest in members if harvest.group_size in (0, size)]
        if not sizes:
            by_series[*at, None] = members
    return by_series


def browse_pairs(
    harvests: Sequence[Harvest],
    pairs: Callable[[Harvest], Sequence[Pair]],
    rollouts: Callable[[Harvest], pd.DataFrame],
    problems: Mapping[str, Mapping[str, Problem]],
) -> list[Series]:
    """Return the series with the problems to show, fewer if the texts exceed `MAX_CHARACTERS`.

    Args:
        harvests: harvests of the grid, then of its controls.
        rollouts: rollouts of each harvest, with `ROLLOUT_COLUMNS`.
        problems: the harvested prompts by model and problem_id.
    """
    series = []
    for at, members in series_keys(harvests).items():
        model, seed, variant, group_size = at
        prompts = problems[model]
        paired = [_first_pairs(pairs(harvest)) for harvest in members]
        n_problems = PROBLEMS_PER_CONTROL if variant else PROBLEMS_PER_SERIES
        steps: dict[str, list[RolloutsAtK]] = {name: [] for name in ranked(prompts, paired)[:n_problems]}
        for harvest, pair_of in zip(members, paired, strict=True):
            frame = rollouts(harvest)
            for name, rows in frame[frame["problem_id"].isin(list(steps))].groupby("problem_id"):
                steps[str(name)].append(_at_k(harvest.k, rows, pair_of.get(str(name))))
        stories = []
        for name, at_each_k in steps.items():
            completions = chain.from_iterable(step.completions for step in at_each_k)
            stories.append(Story(*_problem(prompts[name]), tuple(completions), tuple(at_each_k)))
        series.append(Series(model, seed, variant, group_size, tuple(stories)))
    return within_budget(series)


def _first_pairs(pairs: Sequence[Pair]) -> dict[str, Pair]:
    """Return the first pair of each problem."""
    return {pair["problem_id"]: pair for pair in reversed(pairs)}


def ranked(names: Iterable[str], paired: Iterable[Iterable[str]]) -> list[str]:
    """Return problems with pairs at most K first, and equal ones in a fixed random order."""
    counts = Counter(chain.from_iterable(paired))
    return sorted(names, key=lambda name: (-counts[name], _shuffled(name)))


def _shuffled(name: str) -> bytes:
    """Return a key that sorts names in a fixed random order."""
    return hashlib.sha256(name.encode()).digest()


def _at_k(k: int, rows: pd.DataFrame, pair: Pair | None) -> RolloutsAtK:
    counts = rows["verdict"].value_counts(sort=True)
    samples = {"example": int(rows["sample"].min())}
    if pair is not None:
        samples = {"chosen": pair["chosen_sample"], "rejected": pair["rejected_sample"]}
    by_sample = rows.set_index("sample").to_dict("index")
    return RolloutsAtK(
        k=k,
        correct=int((rows["verdict"] == "correct").sum()),
        n=len(rows),
        verdicts=", ".join(f"{n} {verdict}" for verdict, n in counts.items()),
        completions=tuple(_completion(role, sample, by_sample[sample]) for role, sample in samples.items()),
    )


# ------------------------------------------------------------------------------------------------------------- answers


def browse_answers(
    grid: Grid,
    shown: Callable[[Policy], Policy],
    answers: Callable[[Policy, str], pd.DataFrame],
    problems: Callable[[str], Iterable[Problem]],
) -> list[Answered]:
    """Return the problems to show of each model and benchmark; `shown` gives a policy the K of tables."""
    questions = {}
    for name in grid.config.benchmarks:
        questions[name] = {problem.problem_id: problem for problem in problems(name)}
    answered = []
    for (model, benchmark), policies in side_by_side(grid).items():
        first_answers = []
        for policy in policies:
            frame = answers(policy, benchmark)
            first_answers.append(frame[frame["sample"] == 0].set_index("problem_id").to_dict("index"))
        by_policy = dict(zip(_names_of([shown(policy) for policy in policies]), first_answers, strict=True))
        answered.append(_answered(model, benchmark, questions[benchmark], by_policy))
    return within_budget(answered)


def _names_of(policies: Sequence[Policy]) -> list[str]:
    rows = []
    for policy in policies:
        rows.append({"policy": policy.label, "K": policy.shown_k, "group_size": policy.group_size or None})
    return names(pd.DataFrame(rows, columns=["policy", "K", "group_size"]))


Answers = Mapping[Hashable, Cells]  # row of a policy's first sample by problem_id


def _answered(
    model: str, benchmark: str, problems: Mapping[str, Problem], by_policy: Mapping[str, Answers]
) -> Answered:
    right = {}
    for name in problems:
        right[name] = ""
        for answers in by_policy.values():
            right[name] += "1" if answers[name]["verdict"] == "correct" else "0"
    questions = []
    for name in in_turn(right)[:QUESTIONS_PER_BENCHMARK]:
        completions = [_completion(title, 0, answers[name]) for title, answers in by_policy.items()]
        questions.append(Shown(*_problem(problems[name]), tuple(completions)))
    return Answered(model, benchmark, tuple(by_policy), tuple(right.values()), tuple(questions))


def in_turn(right: Mapping[str, str]) -> list[str]:
    """Return problems by turns of the patterns of right policies; patterns that tell policies apart come first."""
    seen: Counter[str] = Counter()
    places = {}
    for name in sorted(right, key=_shuffled):
        places[name] = (seen[right[name]], len(set(right[name])) == 1)
        seen[right[name]] += 1
    return sorted(places, key=lambda name: places[name])


# ---------------------------------------------------------------------------------------------------------------- both


def _completion(role: str, sample: int, row: Cells) -> ShownCompletion:
    answer = row["extracted_answer"]
    return ShownCompletion(
        role=role,
        sample=sample,
        text=render(row["completion_text"]),
        verdict=row["verdict"],
        answer=None if pd.isna(answer) else _answer(answer),
        tokens=int(row["token_count"]),
        truncated=row["finish_reason"] == "length",
        reward=None if pd.isna(row["reward"]) else float(row["reward"]),
    )


def _problem(problem: Problem) -> tuple[str, int | None, Markup, Markup]:
    return problem.problem_id, problem.level, render(problem.prompt), _answer(problem.answer)


def _answer(answer: str | None) -> Markup:
    return mathml(answer or "") or plain(answer or "")


def within_budget(series: Sequence[Browsed]) -> list[Browsed]:
    """Return as many problems as `MAX_CHARACTERS` admits: the first of each series, then the second, and so on."""
    n_shown = [0] * len(series)
    left = MAX_CHARACTERS
    for row in zip_longest(*(one.shown for one in series)):
        for number, problem in enumerate(row):
            if problem is None:
                continue
            left -= problem.size
            if left < 0:
                return _first(series, n_shown)
            n_shown[number] += 1
    return _first(series, n_shown)


def _first(series: Sequence[Browsed], n_shown: Sequence[int]) -> list[Browsed]:
    return [replace(one, shown=one.shown[:n]) for one, n in zip(series, n_shown, strict=True)]
