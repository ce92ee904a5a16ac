"""Difficulty calibration of M0: success by level, and the levels to train on (paper, sections 5.3 and A.3, Table 4).

Problems without a level have their own row and are not trained on, unless no problem has a level.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pandas as pd

from g2d.analysis.informativeness import pairable, success_counts
from g2d.problems.problem import Level
from g2d.rollouts.rollout_keys import Calibration

OUTCOMES = ["pairable", "all_wrong", "all_correct"]  # outcomes of a prompt's rollouts; exactly one holds
LEVEL_COLUMNS = {  # levels.csv
    "levels": "object",
    "selected": "bool",
    "n": "int64",
    "pass_at_1": "float64",
    **dict.fromkeys(OUTCOMES, "int64"),
    **{f"{outcome}_share": "float64" for outcome in OUTCOMES},
}


def level_table(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Return the success of M0 by level, ascending, problems without a level last: numbers of problems (n, `OUTCOMES`)
    and pass_at_1 (mean of p(x), 0..1).
    """
    counts = success_counts(rollouts)
    right = counts["correct"]
    n = counts["n"]
    counts = counts.assign(pairable=pairable(counts), all_wrong=right == 0, all_correct=right == n)
    sums = {outcome: (outcome, "sum") for outcome in OUTCOMES}
    groups = counts.groupby("level", sort=True, dropna=False)
    table = groups.agg(n=("problem_id", "size"), pass_at_1=("p_hat", "mean"), **sums)
    return table.reset_index().astype({"level": "Int64"} | dict.fromkeys(["n", *OUTCOMES], "int64"))


def choose_levels(table: pd.DataFrame, settings: Calibration) -> list[Level]:
    """Return the levels to train on, ascending: the listed ones, or all with pass@1 in the window. `[None]` is a pool
    without levels.

    Raises:
        ValueError: a listed level has no problems, or no level is in the window.
    """
    levels = _levels(table)
    if settings.levels != "auto":
        require_levels(settings, levels)
        return [*sorted(set(settings.levels))]
    low, high = settings.window
    success = dict(zip(levels, table["pass_at_1"], strict=True))
    eligible = [level for level in levels if level is not None] or levels
    chosen = [level for level in eligible if low <= success[level] <= high]
    if chosen:
        return chosen
    shares = ", ".join(f"level {format_levels([level])}: {share:.1%}" for level, share in success.items())
    raise ValueError(
        f"no level has pass@1 between {low:.0%} and {high:.0%} ({shares}): "
        "widen calibration.window or pin calibration.levels"
    )


def require_levels(settings: Calibration, levels: Collection[Level]) -> None:
    """Raise a ValueError for a pinned level without problems."""
    if settings.levels == "auto":
        return
    unknown = sorted(set(settings.levels) - set(levels))
    if unknown:
        raise ValueError(
            f"calibration.levels: level {unknown[0]} has no calibrated problems: choose from "
            f"{format_levels([*levels])}, or write auto"
        )


def with_mixes(table: pd.DataFrame, chosen: Sequence[Level]) -> pd.DataFrame:
    """Return Table 4 of the paper (`LEVEL_COLUMNS`): the rows of `level_table`, the chosen levels combined if several,
    and all combined. `selected` rows have only chosen levels.
    """
    levels = _levels(table)
    groups: list[tuple[str, list[Level]]] = [(format_levels([level]), [level]) for level in levels]
    if len(set(chosen)) > 1:
        groups.append((format_levels(chosen), list(chosen)))
    groups.append(("all", levels))
    rows = []
    for label, members in groups:
        part = table.loc[[level in members for level in levels]]
        totals = {name: int(part[name].sum()) for name in ("n", *OUTCOMES)}
        n = totals["n"]
        pass_at_1 = float((part["n"] * part["pass_at_1"]).sum() / n) if n else None
        shares: dict[str, float | None] = {}
        for outcome in OUTCOMES:
            shares[f"{outcome}_share"] = totals[outcome] / n if n else None
        selected = bool(members) and set(members) <= set(chosen)
        rows.append({"levels": label, "selected": selected, "pass_at_1": pass_at_1} | totals | shares)
    return pd.DataFrame(rows, columns=list(LEVEL_COLUMNS)).astype(LEVEL_COLUMNS)


FEW_MIXED = 0.1  # share of prompts with right and wrong rollouts below which a grid learns next to nothing


def few_mixed(table: pd.DataFrame) -> str | None:
    """Return a warning with a fix if few prompts of the chosen levels have mixed outcomes, else None."""
    chosen = table[table["selected"] & (table["n"] > 0)].sort_values("n")
    if chosen.empty:
        return None
    row = chosen.iloc[-1]
    if row["pairable_share"] >= FEW_MIXED:
        return None
    if row["all_wrong"] >= row["all_correct"]:
        change = "an easier level (calibration.levels) or easier problems, worked examples (prompt.examples)"
    else:
        change = "a harder level (calibration.levels) or harder problems"
    return (
        f"Only {row['pairable']} of {row['n']} calibrated prompts of the chosen levels have right and wrong "
        f"rollouts ({row['all_wrong']} have wrong ones only, {row['all_correct']} right ones only): there is next to "
        f"nothing to learn from. Try {change}, or a higher temperature."
    )


def format_levels(levels: Sequence[Level]) -> str:
    """Write levels as the paper does: [2, 3, 4, 6] is "2-4, 6"; no level is "none"."""
    runs: list[list[int]] = []
    for level in sorted({level for level in levels if level is not None}):
        if runs and level == runs[-1][-1] + 1:
            runs[-1].append(level)
        else:
            runs.append([level])
    parts: list[str] = []
    for run in runs:
        if len(run) == 1:
            parts.append(str(run[0]))
        else:
            parts.append(f"{run[0]}-{run[-1]}")
    if None in levels:
        parts.append("none")
    return ", ".join(parts)


def _levels(table: pd.DataFrame) -> list[Level]:
    return [None if pd.isna(level) else int(level) for level in table["level"]]
