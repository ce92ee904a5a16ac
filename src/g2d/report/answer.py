"""The answer in a few sentences, from the tables alone: which K, against what, which is enough, at what price.

Every word that claims something depends on a number. Whether two policies differ is decided by the paired,
Holm-corrected test of `comparisons.csv` where it has them, and otherwise by whether their intervals overlap, which is
stricter. The best K is picked after the fact. Differences come with the interval that holds for every comparison of the
family at once, so it holds for the one that was picked; its accuracy alone is flattered, and the caveats say so. Which
K is enough is no matter of differences that were not found: `margins.csv` says how much worse every K can be. With one
seed every claim is about these weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from g2d.analysis.crossed import ENOUGH_SEEDS
from g2d.report.controls import control_sentences
from g2d.report.differences import Row, compare, interval_text
from g2d.report.headline import headline
from g2d.report.phrases import at_most, listed, sentence, these_weights


@dataclass(frozen=True)
class Answer:
    """What one model's grid says on one benchmark."""

    model: str
    benchmark: str
    sentences: tuple[str, ...]
    caveats: tuple[str, ...]
    headline: str = ""


def answers(
    main: pd.DataFrame,
    benchmark: str,
    comparisons: pd.DataFrame | None = None,
    controls: pd.DataFrame | None = None,
    margins: pd.DataFrame | None = None,
) -> list[Answer]:
    """One answer per model, in the order of Table 1.

    Args:
        main: Table 1, from `g2d.tables.accuracy.main_table`.
        benchmark: the one that the answer is about.
        comparisons: `comparisons.csv`, where it was made.
        controls: `controls.csv`, where there are any.
        margins: `margins.csv`, where it was made.
    """
    of_benchmark = main[main["benchmark"] == benchmark]
    found = [
        answer(rows, str(model), benchmark, *(_of(table, str(model), benchmark) for table in (comparisons, margins)))
        for model, rows in of_benchmark.groupby("model", sort=False)
    ]
    if controls is None:
        return found
    return [
        replace(own, sentences=(*own.sentences, *control_sentences(controls, own.model, benchmark))) for own in found
    ]


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
    last = max((row.k for row in alone), default=0)  # what GRPO is for, and no pick from its learning curve
    grpo = max((row for row in alone if row.k == last), key=lambda row: row.accuracy, default=None)
    base = next((row for row in known if row.policy == "base"), None)
    if not candidates:
        return Answer(
            model, benchmark, ("No policy was trained on a harvest, so there is nothing to compare yet.",), ()
        )
    best = max(candidates, key=lambda row: row.accuracy)
    sentences = (
        _how_much(candidates, best, benchmark, comparisons),
        _against(best, base, grpo, comparisons),
        *_enough(candidates, margins),
        _price(candidates, best, grpo, margins),
    )
    stopped = [row for row in known if row.policy == "g2d-auto"]
    caveats = (*_by_itself(stopped, best, comparisons), *_caveats(candidates, best, comparisons))
    bounds = {row: (found["margin_shown"], bool(found["enough"])) for row, found in _margins(candidates, margins)}
    return Answer(model, benchmark, sentences, caveats, headline(candidates, grpo, benchmark, comparisons, bounds))


def duration(hours: float) -> str:
    """Device time in the unit that suits it."""
    if hours >= 1:
        return f"{hours:.3g} device-hours"
    if hours >= 1 / 60:
        return f"{60 * hours:.2g} device-minutes"
    return f"{3600 * hours:.2g} device-seconds"


# --------------------------------------------------------------------------------------------------------- sentences


def _how_much(candidates: Sequence[Row], best: Row, benchmark: str, comparisons: pd.DataFrame | None) -> str:
    none = next((row for row in candidates if row.k == 0), None)
    warmed = max((row for row in candidates if row.k > 0), key=lambda row: row.accuracy, default=None)
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
        f"{'above' if difference.points > 0 else 'below'} it"
        if difference.distinct
        else "not significantly different from it"
    )
    return (
        f"{start}, and {grpo.name} reaches {grpo.score}: the best DPO policy, {best.name}, is {relation}"
        f"{these_weights(best.n_seeds)} ({difference.shown}, {difference.evidence})."
    )


def _enough(candidates: Sequence[Row], margins: pd.DataFrame | None) -> tuple[str, ...]:
    """By how much every K can be worse than the best, and the smallest K for which that is little enough."""
    known = _margins(candidates, margins)
    if len(known) < 2:
        return ()
    bounds = [f"{row.name} at most {at_most(found['margin_shown'])}" for row, found in known]
    bounds[0] = bounds[0].replace(" at most", " is at most", 1) + " points worse than the best K"
    margin = f"{100 * known[0][1]['margin']:g} points"
    enough = next((row for row, found in known if found["enough"]), None)
    shown = (
        f"No K is shown to be less than {margin} worse than the best"
        if enough is None
        else f"The smallest K that is shown to be less than {margin} worse than any other is {enough.name}"
    )
    return (
        f"{sentence(these_weights(candidates[0].n_seeds, before=True))}{listed(bounds)} (one-sided 95 % bounds, all "
        f"at once). {shown}.",
    )


def _margins(candidates: Sequence[Row], margins: pd.DataFrame | None) -> list[tuple[Row, dict[Any, Any]]]:
    """The rows of `margins.csv` of the policies that have one."""
    if margins is None:
        return []
    found = {
        (row["policy"], row["K"], None if pd.isna(row["group_size"]) else int(row["group_size"])): row
        for row in margins.to_dict("records")
    }
    at = [(row.policy, row.k, row.group_size) for row in candidates]
    return [(row, found[key]) for row, key in zip(candidates, at, strict=True) if key in found]


def _price(candidates: Sequence[Row], best: Row, grpo: Row | None, margins: pd.DataFrame | None) -> str:
    if best.device_hours is None:
        return "What the policies cost was not recorded."
    enough = next((row for row, found in _margins(candidates, margins) if found["enough"]), best)
    costs = [f"{best.name}, with the highest accuracy, took {duration(best.device_hours)}"]
    if enough is not best and enough.device_hours is not None:
        costs = [f"{enough.name} took {duration(enough.device_hours)}", *costs]
    if grpo is not None and grpo.device_hours is not None:
        costs.append(f"{grpo.name} took {duration(grpo.device_hours)}")
    return f"{'; '.join(costs)} (per seed, with every stage behind it)."


def _by_itself(stopped: Sequence[Row], best: Row, comparisons: pd.DataFrame | None) -> tuple[str, ...]:
    """What a warm-up that stops by itself would have come to, instead of a grid of K."""
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
            f"{seeds} seeds are few: how much seeds differ is learnt from all policies together, which is safe as long "
            "as no policy's seeds scatter more than three times as much as another's."
        )
    if len(candidates) > 1:
        found.append(_picked(candidates, best, comparisons))
    if not tested:
        found.append("Two policies are said to differ only where their intervals do not overlap.")
    found.append("A device is a GPU, or the CPU where there is none.")
    return tuple(found)


def _picked(candidates: Sequence[Row], best: Row, comparisons: pd.DataFrame | None) -> str:
    """What it costs that the best was picked after the fact."""
    flattered = f"The best of {len(candidates)} policies was picked on the same problems, which flatters its accuracy"
    none = next((row for row in candidates if row.k == 0), None)
    warmed = max((row for row in candidates if row.k > 0), key=lambda row: row.accuracy, default=None)
    if none is None or warmed is None:
        return f"{flattered}."
    difference, weights = compare(warmed, none, comparisons), these_weights(best.n_seeds)
    if difference.single is None or difference.family is None or difference.family_size == 1:
        return f"{flattered}."
    return (
        f"{flattered}. Differences are corrected for the pick: the interval of {warmed.name} against K=0{weights} is "
        f"{interval_text(difference.family)} points and holds for any of {difference.family_size} such comparisons; "
        f"uncorrected it is {interval_text(difference.single)}."
    )


def _of(table: pd.DataFrame | None, model: str, benchmark: str) -> pd.DataFrame | None:
    return None if table is None else table[(table["model"] == model) & (table["benchmark"] == benchmark)]


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
