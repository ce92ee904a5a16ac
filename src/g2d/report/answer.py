"""Sentences that answer how much online RL is enough, from the tables of a grid.

Two policies differ if their Holm-corrected paired test is significant. A K is enough if the bound on its distance from
the best K (`margin_shown`) is at most the margin. K=0 was not enough if the corrected interval of another K's lead
starts at the margin or above. If it starts below the margin, that K is better, by an amount that may be below the
margin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from g2d.analysis.statistics import LEVEL
from g2d.report.sentences import (
    at_most,
    listed,
    percent,
    percent_interval,
    points,
    sentence,
    signed,
    signed_interval,
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
    margin_shown: float | None  # accuracy that it may be behind the best K; None for policies without such a bound

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
    p_holm: float
    family_size: int
    ci: tuple[float, float]
    family: tuple[float, float]

    @property
    def turned(self) -> PairedTest:
        """The same test with the policies exchanged."""
        return PairedTest(
            difference=-self.difference,
            p_holm=self.p_holm,
            family_size=self.family_size,
            ci=(-self.ci[1], -self.ci[0]),
            family=(-self.family[1], -self.family[0]),
        )


@dataclass(frozen=True)
class Difference:
    """Accuracy of the first policy minus the second's, in -1..1."""

    accuracy: float
    test: PairedTest | None

    @property
    def significant(self) -> bool:
        return self.test is not None and self.test.p_holm <= LEVEL

    @property
    def better(self) -> bool:
        return self.significant and self.accuracy > 0

    @property
    def low(self) -> float:
        """Lower end of the corrected interval."""
        if self.test is None:
            return -1.0
        return self.test.family[0]

    @property
    def shown(self) -> str:
        if self.test is None:
            return f"{signed(self.accuracy)} points"
        return points(self.accuracy, *self.test.family)

    @property
    def evidence(self) -> str:
        if self.test is None:
            return "not tested"
        name = "Holm-corrected p" if self.test.family_size > 1 else "p"
        return f"{name} = {self.test.p_holm:.3g}"

    def __str__(self) -> str:
        return f"{self.shown}, {self.evidence}"


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
            if row.margin_shown is not None:
                self.bounded.append(row)
                if row.margin_shown <= margin:
                    self.enough.append(row)
        # GRPO at its last K, not at the best of its learning curve.
        grpo = by_policy["grpo"]
        last = max((row.k for row in grpo), default=0)
        self.grpo = _most_accurate([row for row in grpo if row.k == last])
        self.stopped = _most_accurate(by_policy["g2d-auto"])

    def ahead_of(self, none: Row, margin: float = 0.0) -> Row | None:
        """Return the most accurate K > 0 that is shown to be better than K=0, by at least a margin."""
        ahead = []
        for row in self.candidates:
            lead = self.compare(row, none)
            if row.k > 0 and lead.better and lead.low >= margin:
                ahead.append(row)
        return _most_accurate(ahead)

    @property
    def nothing_beats_m0(self) -> bool:
        if self.base is None:
            return False
        is_tested = False
        for (_, other), test in self.tests.items():
            if other == self.base.at:
                is_tested = True
                if test.p_holm <= LEVEL and test.difference > 0:
                    return False
        return is_tested

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
        notes.insert(0, _choice(evidence))
    return Answer(
        model=model,
        benchmark=benchmark,
        headline=sentence(f"{start}{_verdict(evidence)}."),
        sentences=(_effect(evidence), _against(evidence), *_bounds(evidence), _sample(evidence.best)),
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
    if warmed is None:
        return f"DPO without online RL (K=0) reached {evidence.best.score(0)} on {evidence.where}; no other K was run"
    if none is None:
        return f"{warmed.name} did best on {evidence.where}, {warmed.score(0)}; K=0, without online RL, was not run"
    if evidence.base is not None and evidence.nothing_beats_m0:
        others = f"K=0 {percent(none.accuracy, 0)}, {warmed.name} {percent(warmed.accuracy, 0)}"
        return f"no training is shown to help on {evidence.where}: M0 {evidence.base.score(0)}, {others}"
    where = evidence.where_with_margin
    ahead = evidence.ahead_of(none)
    if none in evidence.enough:
        verdict = f"K=0 was enough on {where}: {none.score(0)}, {_at_most_worse(none)}"
        if ahead is not None:
            verdict += f", although {ahead.name} is better by {evidence.compare(ahead, none).shown}"
        return verdict
    far_ahead = evidence.ahead_of(none, evidence.margin)
    if far_ahead is not None:
        return (
            f"K=0 was not enough on {where}: {_lead(evidence, far_ahead, none)}{_smaller_enough(evidence, far_ahead)}"
        )
    if ahead is not None:
        lead = f"{_lead(evidence, ahead, none)}{_smaller_enough(evidence, ahead)}"
        return f"{ahead.name} was better than K=0 on {where}, by an amount that may be below the margin: {lead}"
    verdict = f"whether K=0 was enough is open on {where}: {_lead(evidence, warmed, none)}"
    if none in evidence.bounded:
        verdict += f"; K=0 is {_at_most_worse(none)}"
    return verdict


def _lead(evidence: _Evidence, row: Row, none: Row) -> str:
    accuracies = f"K=0 {percent(none.accuracy, 0)}, {row.name} {percent(row.accuracy, 0)}"
    return f"{accuracies}, {evidence.compare(row, none).shown}"


def _smaller_enough(evidence: _Evidence, row: Row) -> str:
    smallest = evidence.enough[0] if evidence.enough else None
    if smallest is None or smallest.k >= row.k:
        return ""
    return f"; {smallest.name} was enough, {_at_most_worse(smallest)}"


def _at_most_worse(row: Row) -> str:
    if not row.margin_shown:
        return "better than any other K (95 %)"
    return f"at most {at_most(row.margin_shown)} points worse than the best K (95 %)"


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
    highest = f"{where}, accuracy is highest at {warmed.name}, {warmed.score()}"
    if none is None:
        return f"{highest}; K=0 was not run, so this grid cannot say whether any was needed."
    effect = evidence.compare(warmed, none)
    if warmed.accuracy <= none.accuracy:
        verdict = "is worse" if effect.significant else "is not shown to help"
        return (
            f"{where}, online RL before the harvest {verdict}: DPO at K=0 reaches {none.score()} and the best "
            f"warmed-up policy, {warmed.name}, {warmed.score()} ({effect})."
        )
    if effect.significant:
        return f"{highest} against {none.score()} without any (K=0): {effect}."
    return f"{highest}, but not significantly different from {none.score()} at K=0, without online RL ({effect})."


def _against(evidence: _Evidence) -> str:
    best = evidence.best
    grpo = evidence.grpo
    start = "M0 was not evaluated" if evidence.base is None else f"M0 starts from {evidence.base.score()}"
    if grpo is None:
        return f"{start}; GRPO alone was not run, so nothing is said about it."
    difference = evidence.compare(best, grpo)
    if not difference.significant:
        place = "not significantly different from it"
    elif difference.accuracy > 0:
        place = "above it"
    else:
        place = "below it"
    return (
        f"{start}, and {grpo.name} reaches {grpo.score()}: the best DPO policy, {best.name}, is "
        f"{place}{these_weights(best.n_seeds)} ({difference})."
    )


def _bounds(evidence: _Evidence) -> tuple[str, ...]:
    if len(evidence.bounded) < 2 or evidence.nothing_beats_m0:
        return ()
    first, *others = evidence.bounded
    worse = [f"{first.name} is at most {at_most(first.margin_shown or 0.0)} points worse than the best K"]
    for row in others:
        worse.append(f"{row.name} at most {at_most(row.margin_shown or 0.0)}")
    names = listed([row.name for row in evidence.enough])
    verb = "are" if len(evidence.enough) > 1 else "is"
    start = sentence(these_weights(evidence.best.n_seeds, before=True))
    return (
        f"{start}{listed(worse)} (one-sided 95 % bounds, all at once): {names or 'no K'} {verb} shown to be enough "
        f"with a margin of {_points(evidence.margin)}.",
    )


def _cost(evidence: _Evidence) -> str:
    best = evidence.best
    if best.hours is None:
        return "What the policies cost was not recorded."
    costs: dict[str, str] = {}
    for row in (*evidence.enough[:1], best, evidence.grpo):
        if row is not None and row.hours is not None:
            which = ", with the highest accuracy," if row.name == best.name else ""
            costs[row.name] = f"{row.name}{which} took {duration(row.hours)}"
    return f"{'; '.join(costs.values())} (per seed, with every stage behind it)."


def _auto_stop(evidence: _Evidence) -> tuple[str, ...]:
    row = evidence.stopped
    best = evidence.best
    if row is None:
        return ()
    price = "" if row.hours is None else f" for {duration(row.hours)}"
    mean = ", the mean over seeds" if row.n_seeds > 1 else ""
    difference = evidence.compare(row, best)
    return (
        f"The automatic warm-up chose {row.name}{mean}; DPO on its harvest reached {row.score()}{price}: "
        f"{difference.shown} against {best.name}{these_weights(row.n_seeds)} ({difference.evidence}).",
    )


def _sample(row: Row) -> str:
    problems = f"{row.n_problems} problems"
    if row.n_clusters < row.n_problems:
        problems = f"{row.n_clusters} groups of {problems}"
    if row.n_seeds > 1:
        return f"Bars and brackets are 95 % intervals over {row.n_seeds} seeds and {problems}."
    return (
        f"Bars and brackets are 95 % intervals over {problems}, with these weights of one seed; other "
        "seeds may show the reverse."
    )


def _choice(evidence: _Evidence) -> str:
    chosen = (
        f"The best of {len(evidence.candidates)} policies was chosen on the same problems, so its accuracy is biased "
        "upwards."
    )
    if evidence.warmed is None or evidence.none is None:
        return chosen
    test = evidence.compare(evidence.warmed, evidence.none).test
    if test is None or test.family_size == 1:
        return chosen
    return (
        f"{chosen} Differences are corrected for this choice: the interval of {evidence.warmed.name} against K=0"
        f"{these_weights(evidence.best.n_seeds)} is {signed_interval(*test.family)} points, corrected for "
        f"{test.family_size} such comparisons; uncorrected it is {signed_interval(*test.ci)}."
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
                margin_shown=_or_none(row["margin_shown"]),
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
        ci = (row["ci_low"], row["ci_high"])
        family = (row["family_low"], row["family_high"])
        test = PairedTest(row["difference"], row["p_holm"], row["family_size"], ci, family)
        tests[first, second] = test
        tests.setdefault((second, first), test.turned)
    return tests
