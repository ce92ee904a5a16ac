"""Sentences that answer how much online RL is enough, from the tables of a grid.

Two policies differ if their Holm-corrected paired test is significant or, without a test, if their intervals do not
overlap. A K is enough if the bound on its distance from the best K (`margin_shown`) is at most the margin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from g2d.analysis.comparisons import LEVEL
from g2d.report.phrases import (
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
    accuracy: float
    ci_low: float
    ci_high: float
    margin_shown: float | None  # accuracy that it may be behind the best K; None for policies without such a bound

    @property
    def k(self) -> int:
        return self.at[1]

    def score(self, digits: int = 1) -> str:
        return percent_interval(self.accuracy, self.ci_low, self.ci_high, digits)


@dataclass(frozen=True)
class Difference:
    """Accuracy of the first policy minus the second's, in -1..1."""

    accuracy: float
    distinct: bool
    evidence: str
    test: Mapping[Any, Any] | None = None  # its row of `comparisons.csv`

    @property
    def shown(self) -> str:
        if self.test is None:
            return f"{signed(self.accuracy)} points"
        return points(self.accuracy, self.test["family_low"], self.test["family_high"])

    def __str__(self) -> str:
        return f"{self.shown}, {self.evidence}"


class _Grid:
    def __init__(self, benchmark: str, rows: pd.DataFrame, margin: float, comparisons: pd.DataFrame | None) -> None:
        policies = _rows(rows)
        self.benchmark, self.margin, self.tests = benchmark, margin, _tests(comparisons)
        self.candidates = sorted((row for row in policies if row.at[0] in ("dpo", "g2d")), key=lambda row: row.k)
        self.none = next((row for row in self.candidates if row.k == 0), None)  # DPO at K=0
        self.warmed = _most_accurate([row for row in self.candidates if row.k > 0])
        self.bounded = [row for row in self.candidates if row.margin_shown is not None]
        self.enough = next((row for row in self.bounded if self.is_enough(row)), None)  # the smallest K
        grpo = [row for row in policies if row.at[0] == "grpo"]
        last = max((row.k for row in grpo), default=0)  # not the best of its learning curve
        self.grpo = _most_accurate([row for row in grpo if row.k == last])
        self.stopped = _most_accurate([row for row in policies if row.at[0] == "g2d-auto"])
        self.base = next((row for row in policies if row.at[0] == "base"), None)

    def is_enough(self, row: Row) -> bool:
        return row.margin_shown is not None and row.margin_shown <= self.margin

    @property
    def better_than_none(self) -> Row | None:
        if self.none is None:
            return None
        effects = [(row, self.compare(row, self.none)) for row in self.candidates if row.k > 0]
        return _most_accurate([row for row, effect in effects if effect.distinct and effect.accuracy > 0])

    @property
    def nothing_beats_m0(self) -> bool:
        tests = [test for (_, other), test in self.tests.items() if self.base and other == self.base.at]
        return bool(tests) and not any(test["p_holm"] <= LEVEL and test["difference"] > 0 for test in tests)

    @property
    def best(self) -> Row:
        return max(self.candidates, key=lambda row: row.accuracy)

    def compare(self, first: Row, second: Row) -> Difference:
        difference, test = first.accuracy - second.accuracy, self.tests.get((first.at, second.at))
        if test is None:
            distinct = first.ci_low > second.ci_high or second.ci_low > first.ci_high
            return Difference(difference, distinct, "intervals apart" if distinct else "intervals overlap")
        p = f"{'Holm-corrected p' if test['family_size'] > 1 else 'p'} = {test['p_holm']:.2g}"
        if test["p_holm"] <= LEVEL:
            return Difference(difference, True, f"paired test, {p}", test)
        return Difference(difference, False, p, test)


def answer(
    rows: pd.DataFrame,
    model: str,
    benchmark: str,
    margin: float,
    comparisons: pd.DataFrame | None = None,
) -> Answer:
    """Return the answer for one model and benchmark.

    Args:
        rows, comparisons: its rows of Table 1, without ablations, and of `comparisons.csv`.
        margin: accuracy that a K may be behind the best K and still be enough, in 0..1.
    """
    grid = _Grid(benchmark, rows, margin, comparisons)
    if not grid.candidates:
        return Answer(model, benchmark, ("No policy was trained on a harvest, so there is nothing to compare yet.",))
    sentences = (_effect(grid), _against(grid), *_enough(grid), _sample(grid.best))
    details = (_cost(grid), *_auto_stop(grid))
    return Answer(model, benchmark, sentences, details, _notes(grid), _headline(grid))


def duration(hours: float) -> str:
    unit, factor = time_unit(hours)
    number = f"{factor * hours:.{3 if factor == 1 else 2}g}"
    return f"{number} device-{unit.removesuffix('s') if number == '1' else unit}"


# --------------------------------------------------------------------------------------------------------- sentences


def _headline(grid: _Grid) -> str:
    start = these_weights(grid.best.n_seeds, before=True)
    return sentence(f"{start}{_verdict(grid)}.")


def _verdict(grid: _Grid) -> str:
    none, warmed, where = grid.none, grid.warmed, grid.benchmark
    if warmed is None:
        return f"DPO without online RL (K=0) reached {grid.best.score(0)} on {where}; no other K was run"
    if none is None:
        return f"{warmed.name} did best on {where}, {warmed.score(0)}; K=0, without online RL, was not run"
    if grid.base is not None and grid.nothing_beats_m0:
        others = f"K=0 {percent(none.accuracy, 0)}, {warmed.name} {percent(warmed.accuracy, 0)}"
        return f"no training is shown to help on {where}: M0 {grid.base.score(0)}, {others}"
    effect, better = grid.compare(warmed, none), grid.better_than_none
    if grid.is_enough(none):
        verdict = f"K=0 was enough on {where} (margin {_points(grid.margin)}): {none.score(0)}"
        though = f", although {better.name} is better by {grid.compare(better, none).shown}" if better else ""
        return f"{verdict}, {_at_most_worse(none)}{though}"
    if better is not None:
        verdict = (
            f"K=0 was not enough on {where}: {percent(none.accuracy, 0)}, {better.name} {percent(better.accuracy, 0)}"
        )
        enough = ""
        if grid.enough:  # a K > 0, since K=0 is not
            enough = f"; {grid.enough.name} was (margin {_points(grid.margin)}), {_at_most_worse(grid.enough)}"
        return f"{verdict}, {grid.compare(better, none).shown}{enough}"
    if effect.distinct:
        return f"online RL did harm on {where}: K=0 {none.score(0)}, {warmed.name} {warmed.score(0)}, {effect.shown}"
    accuracies = f"K=0 {percent(none.accuracy, 0)}, {warmed.name} {percent(warmed.accuracy, 0)}"
    certainty = f"; K=0 is {_at_most_worse(none)}" if none in grid.bounded else f", {effect.shown}"
    return f"whether K > 0 is needed is open on {where}: {accuracies}{certainty}"


def _at_most_worse(row: Row) -> str:
    if not row.margin_shown:
        return "better than any other K (95 %)"
    return f"at most {at_most(row.margin_shown)} points worse than the best K (95 %)"


def _points(share: float) -> str:
    return f"{100 * share:g} point{'' if share == 0.01 else 's'}"


def _effect(grid: _Grid) -> str:
    none, warmed = grid.none, grid.warmed
    where = f"On {grid.benchmark}" + ("" if grid.best.n_seeds > 1 else ", with these weights (one training run each)")
    if warmed is None:
        return f"{where}, DPO without online RL (K=0) reaches {grid.best.score()}; no other K was run."
    highest = f"{where}, accuracy is highest after {warmed.name} steps of online RL, {warmed.score()}"
    if none is None:
        return f"{highest}; K=0 was not run, so this grid cannot say whether any was needed."
    effect = grid.compare(warmed, none)
    if warmed.accuracy <= none.accuracy:
        verdict = "is worse" if effect.distinct else "is not shown to help"
        return (
            f"{where}, online RL before the harvest {verdict}: DPO at K=0 reaches {none.score()} and the best "
            f"warmed-up policy, {warmed.name}, {warmed.score()} ({effect})."
        )
    if effect.distinct:
        return f"{highest} against {none.score()} without any (K=0): {effect}."
    return f"{highest}, but not significantly different from {none.score()} at K=0, without online RL ({effect})."


def _against(grid: _Grid) -> str:
    best, grpo = grid.best, grid.grpo
    start = "M0 was not evaluated" if grid.base is None else f"M0 starts from {grid.base.score()}"
    if grpo is None:
        return f"{start}; GRPO alone was not run, so nothing is said about it."
    difference = grid.compare(best, grpo)
    side = "above it" if difference.accuracy > 0 else "below it"
    return (
        f"{start}, and {grpo.name} reaches {grpo.score()}: the best DPO policy, {best.name}, is "
        f"{side if difference.distinct else 'not significantly different from it'}{these_weights(best.n_seeds)} "
        f"({difference})."
    )


def _enough(grid: _Grid) -> tuple[str, ...]:
    if len(grid.bounded) < 2:
        return ()
    worse = [f"{row.name} at most {at_most(row.margin_shown or 0.0)}" for row in grid.bounded]
    worse[0] = worse[0].replace(" at most", " is at most", 1) + " points worse than the best K"
    margin = f"{100 * grid.margin:g} points"
    shown = (
        f"No K is shown to be less than {margin} worse than the best"
        if grid.enough is None
        else f"The smallest K that is shown to be less than {margin} worse than any other is {grid.enough.name}"
    )
    start = sentence(these_weights(grid.best.n_seeds, before=True))
    return (f"{start}{listed(worse)} (one-sided 95 % bounds, all at once). {shown}.",)


def _cost(grid: _Grid) -> str:
    best = grid.best
    if best.hours is None:
        return "What the policies cost was not recorded."
    paid = {row.name: row.hours for row in (grid.enough, best, grid.grpo) if row and row.hours is not None}
    costs = [
        f"{name}{', with the highest accuracy,' if name == best.name else ''} took {duration(hours)}"
        for name, hours in paid.items()
    ]
    return f"{'; '.join(costs)} (per seed, with every stage behind it)."


def _auto_stop(grid: _Grid) -> tuple[str, ...]:
    row, best = grid.stopped, grid.best
    if row is None:
        return ()
    price = "" if row.hours is None else f" for {duration(row.hours)}"
    mean = ", the mean over seeds" if row.n_seeds > 1 else ""
    difference = grid.compare(row, best)
    return (
        f"The automatic warm-up chose {row.name}{mean}; DPO on its harvest reached {row.score()}{price}: "
        f"{difference.shown} against {best.name}{these_weights(row.n_seeds)} ({difference.evidence}).",
    )


def _sample(row: Row) -> str:
    if row.n_seeds > 1:
        return f"Bars and brackets are 95 % intervals over {row.n_seeds} seeds and {row.n_problems} problems."
    return (
        f"Bars and brackets are 95 % intervals over {row.n_problems} problems, with these weights of one seed; other "
        "seeds may show the reverse."
    )


def _notes(grid: _Grid) -> tuple[str, ...]:
    notes = []
    if len(grid.candidates) > 1:
        notes.append(_choice(grid))
    if not grid.tests:
        notes.append("Two policies differ only if their intervals do not overlap.")
    return *notes, "A device is a GPU, or the CPU if there is none."


def _choice(grid: _Grid) -> str:
    chosen = (
        f"The best of {len(grid.candidates)} policies was chosen on the same problems, so its accuracy is biased "
        "upwards."
    )
    test = grid.compare(grid.warmed, grid.none).test if grid.warmed and grid.none else None
    if not (grid.warmed and test and test["family_size"] > 1):
        return chosen
    return (
        f"{chosen} Differences are corrected for this choice: the interval of {grid.warmed.name} against K=0"
        f"{these_weights(grid.best.n_seeds)} is {signed_interval(test['family_low'], test['family_high'])} points and "
        f"holds for any of {test['family_size']} such comparisons; uncorrected it is "
        f"{signed_interval(test['ci_low'], test['ci_high'])}."
    )


# ------------------------------------------------------------------------------------------------------------- tables


def _most_accurate(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=lambda row: row.accuracy, default=None)


def _rows(table: pd.DataFrame) -> list[Row]:
    several = table.loc[table["policy"] == "g2d", "group_size"].nunique() > 1
    policies = []
    for row in table.to_dict("records"):
        policy, k, size = at = policy_of(row)
        name = f"K={k} (G={size})" if several and size else f"K={k}"
        name = f"GRPO alone (G={size}, K={k})" if policy == "grpo" else name
        hours = None if pd.isna(row["device_hours"]) else row["device_hours"]
        bound = None if pd.isna(row["margin_shown"]) else row["margin_shown"]
        cells = ["n_seeds", "n_problems", "accuracy", "ci_low", "ci_high"]
        policies.append(Row(at, name, hours, **{column: row[column] for column in cells}, margin_shown=bound))
    return policies


def _tests(comparisons: pd.DataFrame | None) -> dict[tuple[At, At], Mapping[Any, Any]]:
    tested = [] if comparisons is None else comparisons.dropna(subset=["p_holm"]).to_dict("records")
    sides = {"low": "high", "high": "low"}
    by_policies: dict[tuple[At, At], Mapping[Any, Any]] = {}
    for row in tested:
        first, second = policy_of(row), policy_of(row, "reference")
        turned = {f"{name}_{end}": -row[f"{name}_{other}"] for name in ("ci", "family") for end, other in sides.items()}
        by_policies.setdefault((second, first), row | turned)
        by_policies[first, second] = row
    return by_policies
