"""Sentences that answer how much online RL is enough, from the tables of a grid.

Two policies differ if their Holm-corrected paired test is significant. A K is enough if the bound on its distance from
the best K (`margin_shown`) is at most the margin. K=0 was not enough if the corrected interval of another K's lead
starts at the margin or above; a lead whose interval starts below it is better, by an amount that may be below the
margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
class Test:
    """Row of `comparisons.csv`; the difference is the first policy's accuracy minus the second's."""

    difference: float
    p_holm: float
    family_size: int
    ci: tuple[float, float]
    family: tuple[float, float]

    @property
    def turned(self) -> Test:
        """The same test with the policies exchanged."""
        return Test(-self.difference, self.p_holm, self.family_size, _negated(self.ci), _negated(self.family))


@dataclass(frozen=True)
class Difference:
    """Accuracy of the first policy minus the second's, in -1..1."""

    accuracy: float
    test: Test | None

    @property
    def significant(self) -> bool:
        return self.test is not None and self.test.p_holm <= LEVEL

    @property
    def better(self) -> bool:
        return self.significant and self.accuracy > 0

    @property
    def low(self) -> float:
        """Lower end of the corrected interval."""
        return self.test.family[0] if self.test else -1.0

    @property
    def shown(self) -> str:
        return points(self.accuracy, *self.test.family) if self.test else f"{signed(self.accuracy)} points"

    @property
    def evidence(self) -> str:
        if self.test is None:
            return "not tested"
        return f"{'Holm-corrected p' if self.test.family_size > 1 else 'p'} = {self.test.p_holm:.2g}"

    def __str__(self) -> str:
        return f"{self.shown}, {self.evidence}"


class _Grid:
    def __init__(
        self, benchmark: str, sampling: str, rows: pd.DataFrame, margin: float, comparisons: pd.DataFrame | None
    ) -> None:
        policies = _rows(rows)
        self.margin = margin
        self.where = f"{benchmark} ({sampling})"
        self.where_with_margin = f"{benchmark} ({sampling}, margin {_points(margin)})"
        self.tests = _tests(comparisons)
        self.candidates = sorted((row for row in policies if row.at[0] in ("dpo", "g2d")), key=lambda row: row.k)
        self.none = next((row for row in self.candidates if row.k == 0), None)  # DPO at K=0
        self.warmed = _most_accurate([row for row in self.candidates if row.k > 0])
        self.bounded = [row for row in self.candidates if row.margin_shown is not None]
        self.enough = [row for row in self.bounded if row.margin_shown is not None and row.margin_shown <= margin]
        grpo = [row for row in policies if row.at[0] == "grpo"]
        last = max((row.k for row in grpo), default=0)  # not the best of its learning curve
        self.grpo = _most_accurate([row for row in grpo if row.k == last])
        self.stopped = _most_accurate([row for row in policies if row.at[0] == "g2d-auto"])
        self.base = next((row for row in policies if row.at[0] == "base"), None)

    def ahead_of(self, none: Row, margin: float = 0.0) -> Row | None:
        """Return the most accurate K > 0 that is shown to be better than K=0, by at least a margin."""
        leads = [(row, self.compare(row, none)) for row in self.candidates if row.k > 0]
        return _most_accurate([row for row, lead in leads if lead.better and lead.low >= margin])

    @property
    def nothing_beats_m0(self) -> bool:
        tests = [test for (_, other), test in self.tests.items() if self.base and other == self.base.at]
        return bool(tests) and not any(test.p_holm <= LEVEL and test.difference > 0 for test in tests)

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
        rows, comparisons: its rows of Table 1, without ablations, and of `comparisons.csv`.
        sampling: how problems were answered, such as "greedy answers".
        margin: accuracy that a K may be behind the best K and still be enough, in 0..1.
    """
    grid = _Grid(benchmark, sampling, rows, margin, comparisons)
    if not grid.candidates:
        return Answer(model, benchmark, ("No policy was trained on a harvest, so there is nothing to compare yet.",))
    sentences = (_effect(grid), _against(grid), *_bounds(grid), _sample(grid.best))
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
    none = grid.none
    warmed = grid.warmed
    if warmed is None:
        return f"DPO without online RL (K=0) reached {grid.best.score(0)} on {grid.where}; no other K was run"
    if none is None:
        return f"{warmed.name} did best on {grid.where}, {warmed.score(0)}; K=0, without online RL, was not run"
    if grid.base is not None and grid.nothing_beats_m0:
        others = f"K=0 {percent(none.accuracy, 0)}, {warmed.name} {percent(warmed.accuracy, 0)}"
        return f"no training is shown to help on {grid.where}: M0 {grid.base.score(0)}, {others}"
    where = grid.where_with_margin
    ahead = grid.ahead_of(none)
    if none in grid.enough:
        though = f", although {ahead.name} is better by {grid.compare(ahead, none).shown}" if ahead else ""
        return f"K=0 was enough on {where}: {none.score(0)}, {_at_most_worse(none)}{though}"
    far_ahead = grid.ahead_of(none, grid.margin)
    if far_ahead is not None:
        return f"K=0 was not enough on {where}: {_lead(grid, far_ahead, none)}{_smaller_enough(grid, far_ahead)}"
    if ahead is not None:
        lead = f"{_lead(grid, ahead, none)}{_smaller_enough(grid, ahead)}"
        return f"{ahead.name} was better than K=0 on {where}, by an amount that may be below the margin: {lead}"
    bound = f"; K=0 is {_at_most_worse(none)}" if none in grid.bounded else ""
    return f"whether K=0 was enough is open on {where}: {_lead(grid, warmed, none)}{bound}"


def _lead(grid: _Grid, row: Row, none: Row) -> str:
    accuracies = f"K=0 {percent(none.accuracy, 0)}, {row.name} {percent(row.accuracy, 0)}"
    return f"{accuracies}, {grid.compare(row, none).shown}"


def _smaller_enough(grid: _Grid, row: Row) -> str:
    smaller = [other for other in grid.enough if other.k < row.k]
    return f"; {smaller[0].name} was enough, {_at_most_worse(smaller[0])}" if smaller else ""


def _at_most_worse(row: Row) -> str:
    if not row.margin_shown:
        return "better than any other K (95 %)"
    return f"at most {at_most(row.margin_shown)} points worse than the best K (95 %)"


def _points(share: float) -> str:
    return f"{100 * share:g} point{'' if share == 0.01 else 's'}"


def _effect(grid: _Grid) -> str:
    none = grid.none
    warmed = grid.warmed
    where = f"On {grid.where}" + ("" if grid.best.n_seeds > 1 else ", with these weights (one training run each)")
    if warmed is None:
        return f"{where}, DPO without online RL (K=0) reaches {grid.best.score()}; no other K was run."
    highest = f"{where}, accuracy is highest after {warmed.name} steps of online RL, {warmed.score()}"
    if none is None:
        return f"{highest}; K=0 was not run, so this grid cannot say whether any was needed."
    effect = grid.compare(warmed, none)
    if warmed.accuracy <= none.accuracy:
        verdict = "is worse" if effect.significant else "is not shown to help"
        return (
            f"{where}, online RL before the harvest {verdict}: DPO at K=0 reaches {none.score()} and the best "
            f"warmed-up policy, {warmed.name}, {warmed.score()} ({effect})."
        )
    if effect.significant:
        return f"{highest} against {none.score()} without any (K=0): {effect}."
    return f"{highest}, but not significantly different from {none.score()} at K=0, without online RL ({effect})."


def _against(grid: _Grid) -> str:
    best = grid.best
    grpo = grid.grpo
    start = "M0 was not evaluated" if grid.base is None else f"M0 starts from {grid.base.score()}"
    if grpo is None:
        return f"{start}; GRPO alone was not run, so nothing is said about it."
    difference = grid.compare(best, grpo)
    side = "above it" if difference.accuracy > 0 else "below it"
    return (
        f"{start}, and {grpo.name} reaches {grpo.score()}: the best DPO policy, {best.name}, is "
        f"{side if difference.significant else 'not significantly different from it'}{these_weights(best.n_seeds)} "
        f"({difference})."
    )


def _bounds(grid: _Grid) -> tuple[str, ...]:
    if len(grid.bounded) < 2 or grid.nothing_beats_m0:
        return ()
    worse = [f"{row.name} at most {at_most(row.margin_shown or 0.0)}" for row in grid.bounded]
    worse[0] = worse[0].replace(" at most", " is at most", 1) + " points worse than the best K"
    names = listed([row.name for row in grid.enough])
    verb = "are" if len(grid.enough) > 1 else "is"
    start = sentence(these_weights(grid.best.n_seeds, before=True))
    return (
        f"{start}{listed(worse)} (one-sided 95 % bounds, all at once): {names or 'no K'} {verb} shown to be enough "
        f"with a margin of {_points(grid.margin)}.",
    )


def _cost(grid: _Grid) -> str:
    best = grid.best
    if best.hours is None:
        return "What the policies cost was not recorded."
    paid = {row.name: row.hours for row in (*grid.enough[:1], best, grid.grpo) if row and row.hours is not None}
    costs = [
        f"{name}{', with the highest accuracy,' if name == best.name else ''} took {duration(hours)}"
        for name, hours in paid.items()
    ]
    return f"{'; '.join(costs)} (per seed, with every stage behind it)."


def _auto_stop(grid: _Grid) -> tuple[str, ...]:
    row = grid.stopped
    best = grid.best
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
    return *notes, "A device is a GPU, or the CPU if there is none."


def _choice(grid: _Grid) -> str:
    chosen = (
        f"The best of {len(grid.candidates)} policies was chosen on the same problems, so its accuracy is biased "
        "upwards."
    )
    test = grid.compare(grid.warmed, grid.none).test if grid.warmed and grid.none else None
    if not (grid.warmed and test and test.family_size > 1):
        return chosen
    return (
        f"{chosen} Differences are corrected for this choice: the interval of {grid.warmed.name} against K=0"
        f"{these_weights(grid.best.n_seeds)} is {signed_interval(*test.family)} points and holds for any of "
        f"{test.family_size} such comparisons; uncorrected it is {signed_interval(*test.ci)}."
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


def _tests(comparisons: pd.DataFrame | None) -> dict[tuple[At, At], Test]:
    tests: dict[tuple[At, At], Test] = {}
    rows = [] if comparisons is None else comparisons.to_dict("records")
    for row in rows:
        first = policy_of(row)
        second = policy_of(row, "reference")
        ci = (row["ci_low"], row["ci_high"])
        family = (row["family_low"], row["family_high"])
        test = Test(row["difference"], row["p_holm"], row["family_size"], ci, family)
        tests[first, second] = test
        tests.setdefault((second, first), test.turned)
    return tests


def _negated(interval: tuple[float, float]) -> tuple[float, float]:
    return -interval[1], -interval[0]
