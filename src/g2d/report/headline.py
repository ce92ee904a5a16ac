"""The answer in one line of plain words, above everything else on the page."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from g2d.report.differences import NBSP, Row, compare, interval_text, signed
from g2d.report.phrases import at_most, sentence, these_weights

Margins = dict[Row, tuple[float, bool]]  # by how much a K is at most worse than any other, and whether that is enough


def headline(
    candidates: Sequence[Row], grpo: Row | None, benchmark: str, comparisons: pd.DataFrame | None, margins: Margins
) -> str:
    """Which K was enough, or what is open, with the numbers that say so.

    A K was enough where it is shown to be less than the margin worse than any other; that no difference was found is
    not enough. The bounds hold for all K at once, so the smallest K that is enough may be picked.

    Args:
        candidates: DPO at every K, ascending; at least one.
        grpo: GRPO alone at its last K, if it was run.
        benchmark: which the answer is about.
        comparisons: rows of `comparisons.csv`.
        margins: of the candidates, from `margins.csv`.
    """
    start = these_weights(candidates[0].n_seeds, before=True)
    end = "" if grpo is None else f"; GRPO alone {_percent(grpo.accuracy)}"
    enough = next((row for row in candidates if row in margins and margins[row][1]), None)
    return sentence(f"{start}{_verdict(candidates, enough, benchmark, comparisons, margins)}{end}.")


def _verdict(
    candidates: Sequence[Row],
    enough: Row | None,
    benchmark: str,
    comparisons: pd.DataFrame | None,
    margins: Margins,
) -> str:
    none = next((row for row in candidates if row.k == 0), None)
    warmed = max((row for row in candidates if row.k > 0), key=lambda row: row.accuracy, default=None)
    if warmed is None:
        return f"DPO without online RL (K=0) reached {_score(candidates[0])} on {benchmark}; no other K was run"
    if none is None:
        return f"{warmed.name} did best on {benchmark}, {_score(warmed)}; K=0, without online RL, was not run"
    if enough is not None:
        (ahead, _), others = margins[enough], [row for row in candidates if row is not enough]
        other = f"{others[0].name} no" if len(others) == 1 else "no other K"
        bound = f"{other} more than {at_most(ahead)} points better" if ahead else "better than any other K"
        without = "" if enough is none else f"; K=0 {_percent(none.accuracy)}"
        return f"{enough.name} was enough on {benchmark}: {_score(enough)}, {bound}{without}"
    difference = compare(warmed, none, comparisons)
    ends = "" if difference.family is None else f" {interval_text(difference.family)}"
    points = f"{signed(difference.points)} points{ends}"
    reached = f"{_score(none)} without it (K=0), {_score(warmed)} with {warmed.name}, {points}"
    if difference.distinct:
        return f"online RL {'helped' if difference.points > 0 else 'did harm'} on {benchmark}: {reached}"
    return f"whether online RL helps is open on {benchmark}: {reached}"


def _score(row: Row) -> str:
    return f"{_percent(row.accuracy)} [{100 * row.low:.0f}, {100 * row.high:.0f}]"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}{NBSP}%"
