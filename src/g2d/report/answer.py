"""Sentences that answer how much online RL is enough, from the tables of a grid.

The columns `at_least` and `at_most` of Table 1 bound how far each K is behind the best K. K=0 was enough if its
`at_most` is at most the margin, and worse than the best K if its `at_least` is above 0. Any K whose `at_least` is 0 may
be the best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import pandas as pd

from g2d.analysis.statistics import LEVEL, MOST_SEEDS, POWER, Error, question_degrees, seeds_to_find
from g2d.grid.runs import called
from g2d.report.sentences import (
    listed,
    p_words,
    percent,
    percent_interval,
    points,
    rounded_down,
    rounded_up,
    sentence,
    signed,
    these_weights,
    time_unit,
)
from g2d.report.styles import policy_of

At = tuple[str, int, int]  # a policy: its label, K, and group size or 0


@dataclass(frozen=True)
class Answer:
    model: str
    benchmark: str
    sentences: tuple[str, ...]
    details: tuple[str, ...] = ()  # costs, automatic warm-up
    notes: tuple[str, ...] = ()  # method
    headline: str = ""
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    at: At
    name: str
    hours: float | None
    n_seeds: int
    n_problems: int
    n_clusters: int
    accuracy: float
    ci_low: float
    ci_high: float
    at_least: float | None  # bounds of the accuracy that it is behind the best K; None for policies without bounds
    at_most: float | None

    @property
    def policy(self) -> str:
        return self.at[0]

    @property
    def k(self) -> int:
        return self.at[1]

    def score(self, digits: int = 1) -> str:
        return percent_interval(self.accuracy, self.ci_low, self.ci_high, digits)


@dataclass(frozen=True)
class PairedTest:
    """Row of `comparisons.csv`; the difference is the first policy's accuracy minus the second's."""

    difference: float
    ci: tuple[float, float]
    p_value: float
    family: str
    family_size: int
    n_seeds: int
    n_problems: int
    n_clusters: int
    standard_error: float
    seed_share: float
    problem_share: float

    @property
    def turned(self) -> PairedTest:
        """The same test with the policies exchanged."""
        return replace(self, difference=-self.difference, ci=(-self.ci[1], -self.ci[0]))


@dataclass(frozen=True)
class Difference:
    """Accuracy of the first policy minus the second's, in -1..1."""

    accuracy: float
    test: PairedTest | None

    @property
    def significant(self) -> bool:
        return self.test is not None and self.test.p_value <= LEVEL

    def __str__(self) -> str:
        if self.test is None:
            return f"{signed(self.accuracy)} points, not tested"
        return f"{points(self.accuracy, *self.test.ci)}, {self.test.family}, p = {p_words(self.test.p_value)}"


class _Evidence:
    """Policies of one model on one benchmark."""

    def __init__(
        self, benchmark: str, sampling: str, rows: pd.DataFrame, margin: float, comparisons: pd.DataFrame | None
    ) -> None:
        by_policy: dict[str, list[Row]] = defaultdict(list)
        for row in _rows(rows):
            by_policy[row.policy].append(row)
        self.margin = margin
        self.where = f"{benchmark} ({sampling})"
        self.where_with_margin = f"{benchmark} ({sampling}, margin {_points(margin)})"
        self.tests = _tests(comparisons)
        self.base = _most_accurate(by_policy["base"])
        # DPO at each K: the answer chooses from these.
        self.candidates = sorted(by_policy["dpo"] + by_policy["g2d"], key=lambda row: row.k)
        self.none = next((row for row in self.candidates if row.k == 0), None)
        self.warmed = _most_accurate([row for row in self.candidates if row.k > 0])
        self.bounded: list[Row] = []  # candidates with a bound on their distance from the best K
        self.enough: list[Row] = []
        for row in self.candidates:
            if row.at_most is not None:
                self.bounded.append(row)
                if row.at_most <= margin:
                    self.enough.append(row)
        # GRPO at its last K, not at the best of its learning curve.
        grpo = by_policy["grpo"]
        last = max((row.k for row in grpo), default=0)
        self.grpo = _most_accurate([row for row in grpo if row.k == last])
        self.stopped = _most_accurate(by_policy["g2d-auto"])

        self.against_m0: dict[At, PairedTest] = {}
        if self.base is not None:
            self.against_m0 = {first: test for (first, other), test in self.tests.items() if other == self.base.at}

    @property
    def dpo_against_m0(self) -> dict[At, PairedTest]:
        return {row.at: self.against_m0[row.at] for row in self.candidates if row.at in self.against_m0}

    @property
    def dpo_helps(self) -> bool:
        """Whether a policy of which the answer speaks is shown to be better than M0; True if this was not tested."""
        return not self.dpo_against_m0 or bool(_better(self.dpo_against_m0))

    @property
    def best(self) -> Row:
        return max(self.candidates, key=lambda row: row.accuracy)

    def compare(self, first: Row, second: Row) -> Difference:
        return Difference(first.accuracy - second.accuracy, self.tests.get((first.at, second.at)))


def answer(
    rows: pd.DataFrame,
    model: str,
    benchmark: str,
    sampling: str,
    margin: float,
    comparisons: pd.DataFrame | None = None,
) -> Answer:
    """Return the answer for one model and benchmark.

    Args:
        rows: its rows of Table 1, without ablations.
        sampling: how problems were answered, such as "greedy answers".
        margin: accuracy that a K may be behind the best K and still be enough, in 0..1.
        comparisons: its rows of `comparisons.csv`.
    """
    evidence = _Evidence(benchmark, sampling, rows, margin, comparisons)
    if not evidence.candidates:
        return Answer(model, benchmark, ("No policy was trained on a harvest, so there is nothing to compare yet.",))
    start = these_weights(evidence.best.n_seeds, before=True)
    notes = ["A device is a GPU, or the CPU if there is none."]
    if len(evidence.candidates) > 1:
        notes.insert(
            0,
            f"The best of {len(evidence.candidates)} policies was chosen on the same problems, so its accuracy is "
            "biased upwards.",
        )
    return Answer(
        model=model,
        benchmark=benchmark,
        headline=sentence(f"{start}{_verdict(evidence)}."),
        sentences=(
            _effect(evidence),
            *_bounds(evidence),
            *_error(evidence),
            _against(evidence),
            _sample(evidence.best),
        ),
        details=(_cost(evidence), *_auto_stop(evidence)),
        notes=tuple(notes),
    )


def duration(hours: float) -> str:
    unit, factor = time_unit(hours)
    digits = 3 if factor == 1 else 2
    number = f"{factor * hours:.{digits}g}"
    if number == "1":
        unit = unit.removesuffix("s")
    return f"{number} device-{unit}"


# --------------------------------------------------------------------------------------------------------- sentences


def _verdict(evidence: _Evidence) -> str:
    none = evidence.none
    warmed = evidence.warmed
    if evidence.base is not None and not evidence.dpo_helps:
        return _no_help(evidence, evidence.base)
    if warmed is None:
        return f"DPO without online RL (K=0) reached {evidence.best.score(0)} on {evidence.where}; no other K was run"
    if none is None:
        return f"{warmed.name} did best on {evidence.where}, {warmed.score(0)}; K=0, without online RL, was not run"
    where = evidence.where_with_margin
    grpo = "" if evidence.grpo is None else f". {evidence.grpo.name}: {percent(evidence.grpo.accuracy, 0)}"
    if none in evidence.enough:
        return f"K=0 was enough on {where}: {none.score(0)}, {_at_most_worse(none)}{grpo}"
    if none.at_least:
        verdict = "not enough" if none.at_least >= evidence.margin else "worse than the best K"
        lead = (
            f"{percent(none.accuracy, 0)}, at least {rounded_down(none.at_least)} points worse than the best K (95 %)"
        )
        return f"K=0 was {verdict} on {where}: {lead}; {_best(evidence)}{_smallest_enough(evidence)}{grpo}"
    verdict = f"whether K=0 was enough is open on {where}"
    if none not in evidence.bounded:
        return f"{verdict}: {_named([none, warmed], 'and')}{grpo}"
    return f"{verdict}: {_best(evidence)}; K=0 is {_at_most_worse(none)}{grpo}"


def _no_help(evidence: _Evidence, base: Row) -> str:
    scores = [f"M0 {base.score(0)}"]
    for row in (evidence.none, evidence.warmed):
        if row is not None:
            scores.append(f"{row.name} {percent(row.accuracy, 0)}")
    better = []
    for policy, k, size in _better(evidence.against_m0):
        gain = signed(evidence.against_m0[policy, k, size].difference)
        better.append(f"{called(policy, k, size)} ({gain} points)")
    words = f"shown to help on {evidence.where}: {', '.join(scores)}"
    all_tests = _corrected(len(evidence.against_m0))
    if not better:
        return f"no training is {words} ({all_tests})"
    return (
        f"DPO is at no K {words} ({_corrected(len(evidence.dpo_against_m0))}). Better than M0 ({all_tests}): "
        f"{listed(better)}"
    )


def _corrected(n_tests: int) -> str:
    return f"corrected for {n_tests} comparisons with M0" if n_tests > 1 else "one comparison with M0"


def _better(tests: Mapping[At, PairedTest]) -> list[At]:
    """Return the policies that are shown to be better than their reference, corrected for all tests (Bonferroni)."""
    n = len(tests)
    return [at for at, test in tests.items() if test.difference > 0 and n * test.p_value <= LEVEL]


def _best(evidence: _Evidence) -> str:
    """Name the values of K of which one is the best (95 %)."""
    may_be_best = [row for row in evidence.bounded if not row.at_least]
    if len(may_be_best) == len(evidence.bounded):
        return f"any K may be the best: {_named(may_be_best, 'or')}"
    others = [row for row in evidence.bounded if row.at_least and row.k > 0]
    words = f"the best is {_named(may_be_best, 'or')}"
    return f"{words}, not {_named(others, 'or')}" if others else words


def _named(rows: Sequence[Row], last: str) -> str:
    return listed([f"{row.name} ({percent(row.accuracy, 0)})" for row in rows], last)


def _smallest_enough(evidence: _Evidence) -> str:
    first = evidence.enough[0] if evidence.enough else None
    if first is None or not first.at_most:
        return ""
    return f"; {first.name} was enough, at most {rounded_up(first.at_most)} points worse"


def _at_most_worse(row: Row) -> str:
    if not row.at_most:
        return "better than any other K (95 %)"
    return f"at most {rounded_up(row.at_most)} points worse than the best K (95 %)"


def _points(share: float) -> str:
    if share == 0.01:
        return "1 point"
    return f"{100 * share:g} points"


def _effect(evidence: _Evidence) -> str:
    none = evidence.none
    warmed = evidence.warmed
    where = f"On {evidence.where}"
    if evidence.best.n_seeds == 1:
        where += ", with these weights (one training run each)"
    if warmed is None:
        return f"{where}, DPO without online RL (K=0) reaches {evidence.best.score()}; no other K was run."
    if none is None:
        return (
            f"{where}, {warmed.name} is the most accurate of the DPO policies, {warmed.score()}; K=0 was not run, so "
            "this grid cannot say whether any was needed."
        )
    return (
        f"{where}, DPO at K=0, without online RL, reaches {none.score()}, and the most accurate warmed-up policy, "
        f"{warmed.name}, {warmed.score()}."
    )


def _against(evidence: _Evidence) -> str:
    best = evidence.best
    grpo = evidence.grpo
    start = "M0 was not evaluated" if evidence.base is None else f"M0 starts from {evidence.base.score()}"
    if grpo is None:
        return f"{start}; GRPO alone was not run, so nothing is said about it."
    difference = evidence.compare(best, grpo)
    n = len(evidence.candidates)
    test = difference.test
    of_several = ""
    place = "not significantly different from it"
    if test is not None and difference.accuracy > 0 and n > 1:
        # The best was chosen by its accuracy (Bonferroni).
        p = min(n * test.p_value, 1.0)
        of_several = f"; {p_words(p)} as the best of {n}"
        if p <= LEVEL:
            place = "above it"
    elif difference.significant:
        place = "above it" if difference.accuracy > 0 else "below it"
    return (
        f"{start}, and {grpo.name} reaches {grpo.score()}: the best DPO policy, {best.name}, is "
        f"{place}{these_weights(best.n_seeds)} ({difference}{of_several})."
    )


def _bounds(evidence: _Evidence) -> tuple[str, ...]:
    if len(evidence.bounded) < 2 or not evidence.dpo_helps:
        return ()
    first, *others = evidence.bounded
    worse = [f"{first.name} is at most {rounded_up(first.at_most or 0.0)} points worse than the best K"]
    for row in others:
        worse.append(f"{row.name} at most {rounded_up(row.at_most or 0.0)}")
    names = listed([row.name for row in evidence.enough])
    verb = "are" if len(evidence.enough) > 1 else "is"
    start = sentence(these_weights(evidence.best.n_seeds, before=True))
    return (
        f"{start}{listed(worse)} (one-sided 95 % bounds, all at once): {names or 'no K'} {verb} shown to be enough "
        f"with a margin of {_points(evidence.margin)}.",
    )


def _error(evidence: _Evidence) -> tuple[str, ...]:
    """Return what makes the error of an open answer, and how many seeds would find a difference of the margin."""
    none = evidence.none
    warmed = evidence.warmed
    if none is None or warmed is None or none in evidence.enough or none.at_least or not evidence.dpo_helps:
        return ()
    test = evidence.compare(warmed, none).test
    if test is None or test.n_seeds == 1:
        return ()
    of = f"of the squared error of {warmed.name} against K=0"
    if test.seed_share >= 0.5:
        source = f"Seeds make {percent(test.seed_share, 0)} {of}: more problems would not settle it."
    else:
        source = f"Problems and single answers make {percent(1 - test.seed_share, 0)} {of}: more problems would help."
    variance = test.standard_error**2
    questions = test.problem_share * variance
    degrees = question_degrees(test.n_clusters, test.n_problems)
    error = Error(0.0, questions, degrees, variance - questions, test.n_seeds - 1)
    fewest, most = seeds_to_find(evidence.margin, error, LEVEL / test.family_size)
    if fewest == MOST_SEEDS:
        number = f"more than {MOST_SEEDS}"
    elif most == MOST_SEEDS:
        number = f"at least {fewest}"
    else:
        number = f"some {fewest} to {most}"
    return (f"{source} To find {_points(evidence.margin)} with {percent(POWER, 0)} probability takes {number} seeds.",)


def _cost(evidence: _Evidence) -> str:
    best = evidence.best
    if best.hours is None:
        return "What the policies cost was not recorded."
    costs: dict[str, str] = {}
    for row in (*evidence.enough[:1], best, evidence.grpo):
        if row is not None and row.hours is not None:
            which = ", the most accurate of the DPO policies," if row.name == best.name else ""
            costs[row.name] = f"{row.name}{which} took {duration(row.hours)}"
    return f"{'; '.join(costs.values())} (per seed, with every stage behind it)."


def _auto_stop(evidence: _Evidence) -> tuple[str, ...]:
    row = evidence.stopped
    best = evidence.best
    if row is None:
        return ()
    price = "" if row.hours is None else f" for {duration(row.hours)}"
    mean = ", the mean over seeds" if row.n_seeds > 1 else ""
    return (
        f"The automatic warm-up chose {row.name}{mean}; DPO on its harvest reached {row.score()}{price}; against "
        f"{best.name}{these_weights(row.n_seeds)} {evidence.compare(row, best)}.",
    )


def _sample(row: Row) -> str:
    problems = f"{row.n_problems} problems"
    if row.n_clusters < row.n_problems:
        problems = f"{row.n_clusters} groups of {problems}"
    shared = "No interval includes another choice of training problems or calibration, which all seeds share."
    if row.n_seeds > 1:
        return f"Bars and brackets are 95 % intervals over {row.n_seeds} seeds and {problems}. {shared}"
    return (
        f"Bars and brackets are 95 % intervals over {problems}, with these weights of one seed; other "
        f"seeds may show the reverse. {shared}"
    )


# ------------------------------------------------------------------------------------------------------------- tables


def _most_accurate(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=lambda row: row.accuracy, default=None)


def _rows(table: pd.DataFrame) -> list[Row]:
    several_sizes = table.loc[table["policy"] == "g2d", "group_size"].nunique() > 1
    rows = []
    for row in table.to_dict("records"):
        policy, k, size = policy_of(row)
        if policy == "grpo":
            name = f"GRPO alone (G={size}, K={k})"
        elif several_sizes and size:
            name = f"K={k} (G={size})"
        else:
            name = f"K={k}"
        rows.append(
            Row(
                at=(policy, k, size),
                name=name,
                hours=_or_none(row["device_hours"]),
                n_seeds=row["n_seeds"],
                n_problems=row["n_problems"],
                n_clusters=row["n_clusters"],
                accuracy=row["accuracy"],
                ci_low=row["ci_low"],
                ci_high=row["ci_high"],
                at_least=_or_none(row["at_least"]),
                at_most=_or_none(row["at_most"]),
            )
        )
    return rows


def _or_none(number: float) -> float | None:
    return None if pd.isna(number) else number


def _tests(comparisons: pd.DataFrame | None) -> dict[tuple[At, At], PairedTest]:
    tests: dict[tuple[At, At], PairedTest] = {}
    if comparisons is None:
        return tests
    for row in comparisons.to_dict("records"):
        first = policy_of(row)
        second = policy_of(row, "reference")
        cells = {field.name: row[field.name] for field in fields(PairedTest) if field.name != "ci"}
        test = PairedTest(ci=(row["ci_low"], row["ci_high"]), **cells)
        tests[first, second] = test
        tests.setdefault((second, first), test.turned)
    return tests
