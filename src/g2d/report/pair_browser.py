"""The pair browser: rollouts of the same problem across K, as in the paper's appendix C.

A grid can have a million rollouts and a page has room for a few thousand. Problems with pairs at the most values of K
are shown first, equals in the order of a hash of their names, so no model decides which are shown. Harvests that
another reward has judged are series of their own, with fewer problems.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Protocol

import pandas as pd
from markupsafe import Markup

from g2d.experiment.keys import HarvestKey
from g2d.problems import Problem
from g2d.report.markup import mathml, plain, render
from g2d.rollouts.pairs import Pair

PROBLEMS_PER_SERIES = 40
PROBLEMS_PER_CONTROL = 10
MAX_CHARACTERS = 2_500_000  # of all texts as HTML; the page stays small enough for a phone

ROLLOUT_COLUMNS = (
    *("problem_id", "level", "sample", "completion_text", "token_count", "finish_reason"),
    *("verdict", "reward", "extracted_answer", "disputed", "reference_answer"),
)


@dataclass(frozen=True)
class Completion:
    """One rollout on the page."""

    role: str  # chosen | rejected | example, where the prompt has no pair; in the answer browser the policy's name
    sample: int
    text: Markup
    verdict: str
    answer: Markup | None
    tokens: int
    truncated: bool
    disputed: bool
    reward: float | None  # of the harvest's reward; None where it had none


@dataclass(frozen=True)
class Step:
    """The rollouts of one policy on the problem."""

    k: int
    correct: int
    n: int
    verdicts: str  # for example "5 correct, 3 incorrect"
    completions: tuple[Completion, ...]

    @property
    def p_hat(self) -> float:
        """Share of correct rollouts, by the verifier."""
        return self.correct / self.n


@dataclass(frozen=True)
class Story:
    """One problem across K."""

    problem_id: str
    level: int | None
    prompt: Markup
    answer: Markup
    steps: tuple[Step, ...]

    @property
    def n_pairs(self) -> int:
        """Values of K at which the problem gave a pair."""
        return sum(len(step.completions) == 2 for step in self.steps)

    @property
    def size(self) -> int:
        """Characters of its texts."""
        return len(self.prompt) + sum(len(entry.text) for step in self.steps for entry in step.completions)


@dataclass(frozen=True)
class Series:
    """The harvests of one model, seed and group size, and the problems that are shown of them."""

    model: str
    seed: int
    variant: str  # whose harvests, "" for the main grid's
    group_size: int | None
    n_problems: int
    stories: tuple[Story, ...]


def series_keys(harvests: Sequence[HarvestKey]) -> dict[tuple[str, int, str, int | None], list[HarvestKey]]:
    """The harvests by (model, seed, variant, G), ascending in K; M0's harvest, which has no G, starts every series."""
    found: dict[tuple[str, int, str, int | None], list[HarvestKey]] = {}
    for at in dict.fromkeys((key.model, key.seed, key.variant) for key in harvests):
        own = sorted((key for key in harvests if (key.model, key.seed, key.variant) == at), key=lambda key: key.k)
        sizes: list[int | None] = [*sorted({key.group_size for key in own} - {0})]
        for size in sizes or [None]:
            found[*at, size] = [key for key in own if key.group_size in (0, size)]
    return found


def browse(
    harvests: Sequence[HarvestKey],
    pairs: Callable[[HarvestKey], Sequence[Pair]],
    rollouts: Callable[[HarvestKey], pd.DataFrame],
    problems: Mapping[str, Mapping[str, Problem]],
) -> list[Series]:
    """The series of a grid with the problems that are shown.

    Args:
        harvests: all of the grid, then those of its controls.
        pairs: of a harvest.
        rollouts: of a harvest, with `ROLLOUT_COLUMNS`.
        problems: by model and problem_id, the prompts that were harvested.

    Returns:
        At most `PROBLEMS_PER_SERIES` problems each, `PROBLEMS_PER_CONTROL` of controls, and fewer where all series
        together exceed `MAX_CHARACTERS`.
    """
    found = [_series(*at, keys, pairs, rollouts, problems[at[0]]) for at, keys in series_keys(harvests).items()]
    shown = within_budget([series.stories for series in found])
    return [replace(series, stories=series.stories[:n]) for series, n in zip(found, shown, strict=True)]


def _series(
    model: str,
    seed: int,
    variant: str,
    group_size: int | None,
    keys: Sequence[HarvestKey],
    pairs: Callable[[HarvestKey], Sequence[Pair]],
    rollouts: Callable[[HarvestKey], pd.DataFrame],
    problems: Mapping[str, Problem],
) -> Series:
    drawn: list[dict[str, Pair]] = []
    for key in keys:
        first: dict[str, Pair] = {}
        for pair in pairs(key):
            first.setdefault(pair["problem_id"], pair)
        drawn.append(first)
    chosen = ranked(problems, drawn)[: PROBLEMS_PER_CONTROL if variant else PROBLEMS_PER_SERIES]
    steps: dict[str, list[Step]] = {name: [] for name in chosen}
    for key, own in zip(keys, drawn, strict=True):
        frame = rollouts(key)
        for name, rows in frame[frame["problem_id"].isin(chosen)].groupby("problem_id"):
            steps[str(name)].append(_step(key.k, rows, own.get(str(name))))
    stories = [
        Story(name, own.level, render(own.prompt), shown_answer(own.answer), tuple(steps[name]))
        for name, own in ((name, problems[name]) for name in chosen)
    ]
    return Series(model, seed, variant, group_size, len(problems), tuple(stories))


def ranked(names: Iterable[str], paired: Iterable[Iterable[str]]) -> list[str]:
    """Problems by the number of K at which they have a pair, most first; equals by the hash of their name."""
    counts = Counter(name for step in paired for name in step)
    return sorted(names, key=lambda name: (-counts[name], hashlib.sha256(name.encode()).digest()))


def _step(k: int, rows: pd.DataFrame, pair: Pair | None) -> Step:
    correct = int((rows["verdict"] == "correct").sum())
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in rows["verdict"].value_counts(sort=True).items())
    samples = {"example": int(rows["sample"].min())}
    if pair is not None:
        samples = {"chosen": pair["chosen_sample"], "rejected": pair["rejected_sample"]}
    by_sample = rows.set_index("sample").to_dict("index")
    completions = tuple(completion_of(role, sample, by_sample[sample]) for role, sample in samples.items())
    return Step(k, correct, len(rows), verdicts, completions)


def completion_of(role: str, sample: int, row: Mapping[Any, Any]) -> Completion:
    """A rollout as the page shows it.

    Args:
        row: its `ROLLOUT_COLUMNS`.
    """
    answer = row["extracted_answer"]
    return Completion(
        role=role,
        sample=sample,
        text=render(row["completion_text"]),
        verdict=row["verdict"],
        answer=None if pd.isna(answer) else shown_answer(answer),
        tokens=int(row["token_count"]),
        truncated=row["finish_reason"] == "length",
        disputed=bool(row["disputed"]),
        reward=None if pd.isna(row["reward"]) else float(row["reward"]),
    )


def shown_answer(answer: str | None) -> Markup:
    """An answer, which is LaTeX without delimiters; empty where there is none."""
    return mathml(answer or "") or plain(answer or "")


class Sized(Protocol):
    """A problem whose texts have a length."""

    @property
    def size(self) -> int:
        """Characters of its texts."""


def within_budget(stories: Sequence[Sequence[Sized]]) -> list[int]:
    """How many stories of each series fit, taking one of each series in turn."""
    shown, left = [0] * len(stories), MAX_CHARACTERS
    for at, story in (own for turn in zip_longest(*stories) for own in enumerate(turn) if own[1]):
        left -= story.size
        if left < 0:
            break
        shown[at] += 1
    return shown
