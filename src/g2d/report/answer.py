"""The answer of a grid in sentences, from its tables: which K is best, how it compares, which is enough, what it costs.

Two policies differ where their Holm-corrected paired test in `comparisons.csv` says so, or, without a test, where their
intervals do not overlap. Intervals of differences hold for a family of comparisons at once, so they hold for the K that
was chosen afterwards; its accuracy is biased upwards, which a caveat says. Whether a K is enough is read from
`margins.csv`. With one seed every claim is about these weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from g2d.analysis.crossed import ENOUGH_SEEDS
from g2d.report.differences import Row, compare
from g2d.report.phrases import at_most, listed, percent, sentence, signed_interval, these_weights, time_unit

Bounds = Mapping[Row, Mapping[Any, Any]]  # rows of margins.csv by policy: `margin_shown`, `enough`, `margin`


@dataclass(frozen=True)
class Answer:
    """The result of one model on one benchmark."""

    model: str
    benchmark: str
    sentences: tuple[str, ...]
    caveats: tuple[str, ...]
    headline: str = ""


def answer(
    rows: pd.DataFrame,
    model: str,
    benchmark: str,
    comparisons: pd.DataFrame | None = None,
    margins: pd.DataFrame | None = None,
) -> Answer:
    """The sentences about one model on one benchmark.

    Args:
        rows: its rows of Table 1.
        comparisons: its rows of `comparisons.csv`.
        margins: its rows of `margins.csv`.
    """
    several = rows.loc[rows["policy"] == "g2d", "group_size"].nunique() > 1
    known = [_row(values, several) for values in rows.to_dict("records")]
    candidates = sorted((row for row in known if row.policy in ("dpo", "g2d")), key=lambda row: row.k)
    alone = [row for row in known if row.policy == "grpo"]
    last = max((row.k for row in alone), default=0)  # the last K, not the best of its learning curve
    grpo = max((row for row in alone if row.k == last), key=lambda row: row.accuracy, default=None)
    base = next((row for row in known if row.policy == "base"), None)
    if not candidates:
        return Answer(
            model, benchmark, ("No policy was trained on a harvest, so there is nothing to compare yet.",), ()
        )
    best = max(candidates, key=lambda row: row.accuracy)
    bounds = _bounds(candidates, margins)
    sentences = (
        _effect(candidates, best, benchmark, comparisons),
        _against(best, base, grpo, comparisons),
        *_enough(bounds),
        _cost(best, grpo, bounds),
    )
    stopped = [row for row in known if row.policy == "g2d-auto"]
    caveats = (*_auto_stop(stopped, best, comparisons), *_caveats(candidates, best, comparisons))
    return Answer(model, benchmark, sentences, caveats, _headline(candidates, grpo, benchmark, comparisons, bounds))


def duration(hours: float) -> str:
    """Device time in the unit that suits it."""
    unit, factor = time_unit(hours)
    return f"{factor * hours:.{3 if factor == 1 else 2}g} device-{unit}"


# --------------------------------------------------------------------------------------------------------- sentences


def _headline(
    candidates: Sequence[Row], grpo: Row | None, benchmark: str, comparisons: pd.DataFrame | None, bounds: Bounds
) -> str:
    """Which K was enough, or what is open, in one line with the numbers that say so.

    A K was enough where it is shown to be less than the margin worse than any other. The bounds hold for all K at once,
    so the smallest K that is enough may be chosen.
    """
    start = these_weights(candidates[0].n_seeds, before=True)
    end = "" if grpo is None else f"; GRPO alone {percent(grpo.accuracy, 0)}"
    return sentence(f"{start}{_verdict(candidates, benchmark, comparisons, bounds)}{end}.")


def _verdict(candidates: Sequence[Row], benchmark: str, comparisons: pd.DataFrame | None, bounds: Bounds) -> str:
    none, warmed = _without_and_with(candidates)
    if warmed is None:
        return f"DPO without online RL (K=0) reached {candidates[0].rounded} on {benchmark}; no other K was run"
    if none is None:
        return f"{warmed.name} did best on {benchmark}, {warmed.rounded}; K=0, without online RL, was not run"
    enough = _smallest_enough(bounds)
    if enough is not None:
        ahead, others = bounds[enough]["margin_shown"], [row for row in candidates if row is not enough]
        other = f"{others[0].name} no" if len(others) == 1 else "no other K"
        bound = f"{other} more than {at_most(ahead)} points better" if ahead else "better than any other K"
        without = "" if enough is none else f"; K=0 {percent(none.accuracy, 0)}"
        return f"{enough.name} was enough on {benchmark}: {enough.rounded}, {bound}{without}"
    difference = compare(warmed, none, comparisons)
    reached = f"{none.rounded} without it (K=0), {warmed.rounded} with {warmed.name}, {difference.shown}"
    if difference.distinct:
        return f"online RL {'helped' if difference.accuracy > 0 else 'did harm'} on {benchmark}: {reached}"
    return f"whether online RL helps is open on {benchmark}: {reached}"


def _effect(candidates: Sequence[Row], best: Row, benchmark: str, comparisons: pd.DataFrame | None) -> str:
    """The best K > 0 against K=0."""
    none, warmed = _without_and_with(candidates)
    where = f"On {benchmark}" + ("" if best.n_seeds > 1 else ", with these weights (one training run each)")
    if none is None:
        return (
            f"{where}, accuracy is highest after {best.name} steps of online RL, {best.score}; K=0 was not "
            "run, so this grid cannot say whether any was needed."
        )
    if warmed is None:
        return f"{where}, DPO without online RL (K=0) reaches {none.score}; no other K was run."
    difference = compare(warmed, none, comparisons)
    if warmed.accuracy > none.accuracy and difference.distinct:
        return (
            f"{where}, accuracy is highest after {warmed.name} steps of online RL, {warmed.score} against "
            f"{none.score} without any (K=0): {difference.shown}, {difference.evidence}."
        )
    if warmed.accuracy > none.accuracy:
        return (
            f"{where}, accuracy is highest after {warmed.name} steps of online RL, {warmed.score}, but not "
            f"significantly different from {none.score} at K=0, without online RL ({difference.shown}, "
            f"{difference.evidence})."
        )
    verdict = "is worse" if difference.distinct else "does no better"
    return (
        f"{where}, online RL before the harvest {verdict}: DPO at K=0 reaches {none.score} and the best "
        f"warmed-up policy, {warmed.name}, {warmed.score} ({difference.shown}, {difference.evidence})."
    )


def _against(best: Row, base: Row | None, grpo: Row | None, comparisons: pd.DataFrame | None) -> str:
    start = "M0 was not evaluated" if base is None else f"M0 starts from {base.score}"
    if grpo is None:
        return f"{start}; GRPO alone was not run, so nothing is said about it."
    difference = compare(best, grpo, comparisons)
    relation = (
        f"{'above' if difference.accuracy > 0 else 'below'} it"
        if difference.distinct
        else "not significantly different from it"
    )
    return (
        f"{start}, and {grpo.name} reaches {grpo.score}: the best DPO policy, {best.name}, is {relation}"
        f"{these_weights(best.n_seeds)} ({difference.shown}, {difference.evidence})."
    )


def _enough(bounds: Bounds) -> tuple[str, ...]:
    """How much worse than the best every K can be, and the smallest K for which that is within the margin."""
    if len(bounds) < 2:
        return ()
    worse = [f"{row.name} at most {at_most(found['margin_shown'])}" for row, found in bounds.items()]
    worse[0] = worse[0].replace(" at most", " is at most", 1) + " points worse than the best K"
    first = next(iter(bounds))
    margin = f"{100 * bounds[first]['margin']:g} points"
    enough = _smallest_enough(bounds)
    shown = (
        f"No K is shown to be less than {margin} worse than the best"
        if enough is None
        else f"The smallest K that is shown to be less than {margin} worse than any other is {enough.name}"
    )
    return (
        f"{sentence(these_weights(first.n_seeds, before=True))}{listed(worse)} (one-sided 95 % bounds, all "
        f"at once). {shown}.",
    )


def _bounds(candidates: Sequence[Row], margins: pd.DataFrame | None) -> Bounds:
    """The rows of `margins.csv`, by policy in ascending K."""
    if margins is None:
        return {}
    found = {
        (row["policy"], row["K"], None if pd.isna(row["group_size"]) else int(row["group_size"])): row
        for row in margins.to_dict("records")
    }
    at = [(row.policy, row.k, row.group_size) for row in candidates]
    return {row: found[key] for row, key in zip(candidates, at, strict=True) if key in found}


def _smallest_enough(bounds: Bounds) -> Row | None:
    return next((row for row, found in bounds.items() if found["enough"]), None)


def _without_and_with(candidates: Sequence[Row]) -> tuple[Row | None, Row | None]:
    """DPO at K=0, and the most accurate policy with K > 0."""
    none = next((row for row in candidates if row.k == 0), None)
    return none, max((row for row in candidates if row.k > 0), key=lambda row: row.accuracy, default=None)


def _cost(best: Row, grpo: Row | None, bounds: Bounds) -> str:
    if best.device_hours is None:
        return "What the policies cost was not recorded."
    enough = _smallest_enough(bounds) or best
    costs = [f"{best.name}, with the highest accuracy, took {duration(best.device_hours)}"]
    if enough is not best and enough.device_hours is not None:
        costs = [f"{enough.name} took {duration(enough.device_hours)}", *costs]
    if grpo is not None and grpo.device_hours is not None:
        costs.append(f"{grpo.name} took {duration(grpo.device_hours)}")
    return f"{'; '.join(costs)} (per seed, with every stage behind it)."


def _auto_stop(stopped: Sequence[Row], best: Row, comparisons: pd.DataFrame | None) -> tuple[str, ...]:
    """The policy of a warm-up that stopped by itself, against the best of the grid."""
    if not stopped:
        return ()
    row = max(stopped, key=lambda row: row.accuracy)
    difference = compare(row, best, comparisons)
    price = "" if row.device_hours is None else f" for {duration(row.device_hours)}"
    mean = ", the mean over seeds" if row.n_seeds > 1 else ""
    return (
        f"Warm-up that stopped by itself chose {row.name}{mean}, and DPO on its harvest reached {row.score}{price}: "
        f"{difference.shown} against {best.name}{these_weights(row.n_seeds)} ({difference.evidence}).",
    )


def _caveats(candidates: Sequence[Row], best: Row, comparisons: pd.DataFrame | None) -> tuple[str, ...]:
    seeds = best.n_seeds
    found = [
        f"95 % intervals and tests over {seeds} seeds and {best.n_problems} problems."
        if seeds > 1
        else f"One seed, that is one training run each: the 95 % intervals and tests, over {best.n_problems} problems, "
        "say what other problems would show with these weights. Other seeds may show the reverse."
    ]
    tested = comparisons is not None and not comparisons.empty
    if tested and 1 < seeds < ENOUGH_SEEDS:
        found.append(
            f"{seeds} seeds are few: the variance between seeds is pooled over all policies, which is safe as long "
            "as no policy's seeds scatter more than three times as much as another's."
        )
    if len(candidates) > 1:
        found.append(_choice(candidates, best, comparisons))
    if not tested:
        found.append("Two policies are said to differ only where their intervals do not overlap.")
    found.append("A device is a GPU, or the CPU where there is none.")
    return tuple(found)


def _choice(candidates: Sequence[Row], best: Row, comparisons: pd.DataFrame | None) -> str:
    """The correction for choosing the best K afterwards."""
    chosen = (
        f"The best of {len(candidates)} policies was chosen on the same problems, so its accuracy is biased upwards"
    )
    none, warmed = _without_and_with(candidates)
    if none is None or warmed is None:
        return f"{chosen}."
    difference, weights = compare(warmed, none, comparisons), these_weights(best.n_seeds)
    if difference.single is None or difference.family is None or difference.family_size == 1:
        return f"{chosen}."
    return (
        f"{chosen}. Differences are corrected for this choice: the interval of {warmed.name} against K=0{weights} is "
        f"{signed_interval(*difference.family)} points and holds for any of {difference.family_size} such comparisons; "
        f"uncorrected it is {signed_interval(*difference.single)}."
    )


def _row(values: Mapping[Any, Any], several_groups: bool) -> Row:
    known: dict[Any, Any] = {name: None if pd.isna(value) else value for name, value in values.items()}
    return Row(
        policy=known["policy"],
        k=int(known["K"]),
        group_size=None if known["group_size"] is None else int(known["group_size"]),
        n_seeds=int(known["n_seeds"]),
        n_problems=int(known["n_problems"]),
        accuracy=known["accuracy"],
        low=known["ci_low"],
        high=known["ci_high"],
        device_hours=known["device_hours"],
        several_groups=several_groups,
    )
