"""Words of the page: numbers, intervals and lists; sentences about win rates; lines of a run of one K."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from g2d.analysis.statistics import LEVEL
from g2d.grid.runs import called
from g2d.report.styles import names
from g2d.tables.families import EXPLORATORY
from g2d.tables.frames import Cells
from g2d.tables.win_rates import THEN

NBSP = "\u00a0"  # keeps a number and its unit on one line


def listed(items: Sequence[str], last: str = "and") -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def these_weights(n_seeds: int, before: bool = False) -> str:
    if n_seeds > 1:
        return ""
    if before:
        return "with these weights, "
    return " with these weights"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}{NBSP}%"


def percent_interval(share: float, low: float, high: float, digits: int = 1) -> str:
    return f"{percent(share, digits)} [{100 * low:.{digits}f}, {100 * high:.{digits}f}]"


def percent_of(row: Cells, name: str, bounds: str = "") -> str:
    """Return "12.3 % [10.1, 14.5]" from a column and its bounds (names begin with `bounds`)."""
    bounds = bounds or name
    return percent_interval(row[name], row[f"{bounds}_low"], row[f"{bounds}_high"])


def signed(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def signed_interval(low: float, high: float) -> str:
    """Write an interval in percentage points: [−0.1, +2.5]."""
    return f"[{signed(low)}, {signed(high)}]"


def points(share: float, low: float, high: float) -> str:
    return f"{signed(share)} points {signed_interval(low, high)}"


def p_words(p: float) -> str:
    """Write a p-value with as many digits as put it on its side of the level."""
    for digits in range(3, 17):
        text = f"{p:.{digits}g}"
        if (float(text) <= LEVEL) == (p <= LEVEL):
            break
    return text


def time_unit(hours: float) -> tuple[str, int]:
    """Return the unit that suits a time, and how many of it make an hour."""
    if hours >= 1:
        return "hours", 1
    if hours >= 1 / 60:
        return "minutes", 60
    return "seconds", 3600


def rounded_up(share: float) -> str:
    return f"{math.ceil(1000 * share - 1e-9) / 10:.1f}"


def rounded_down(share: float) -> str:
    return f"{math.floor(1000 * share + 1e-9) / 10:.1f}"


# ------------------------------------------------------------------------------------------------------ win rates

FEW = 0.05  # share of comparisons with the shorter or longer reply below which equal length is extrapolated
TRAINED_ON = {
    "verifiable": "verifiable prompts",
    "open_ended": "open-ended prompts",
    "mixed": "verifiable and open-ended prompts together",
}


def win_rate_sentences(table: pd.DataFrame) -> list[str]:
    sentences = []
    for model, rows in table.groupby("model", sort=False):
        open_ended = rows["prompts"] != "verifiable"
        sentences += [_win_rate(row) for row in rows[open_ended].to_dict("records")]
        if not open_ended.all():
            sentences.append(_others(str(model), rows[~open_ended]))
    return sentences


def _win_rate(row: Cells) -> str:
    longer = row["length"] / row["base_length"] - 1 if row["base_length"] else 0.0
    has_equal_length = not math.isnan(row["equal_length"])
    trained_on = " and then on ".join(TRAINED_ON[kind] for kind in row["prompts"].split(THEN))
    text = (
        f"{sentence(these_weights(row['n_seeds'], before=True))}"
        f"{called(row['policy'], row['K'])} of {row['model']}, trained on {trained_on}, is preferred "
        f"to M0 in {percent_of(row, 'win_rate', 'win')} of comparisons on {row['n_prompts']} held-out prompts"
    )
    if has_equal_length:
        text += f", and at equal length in {percent_of(row, 'equal_length')}"
    text += f"; its replies are {percent(abs(longer))} {'longer' if longer >= 0 else 'shorter'}, in characters. "
    text += _verdict(row) if has_equal_length else _unknown(row)
    if has_equal_length and not FEW < row["longer"] < 1 - FEW:
        side = "longer" if row["longer"] > 0.5 else "shorter"
        text += f" Nearly all its replies are {side} than M0's, so equal length is extrapolated."
    if row["cut_off"]:
        text += f" {row['cut_off']} of {row['n_replies']} replies did not end within their token budget."
    if row["not_judged"]:
        text += f" {row['not_judged']} of {row['n_replies']} comparisons have no score and are left out."
    return text


def _verdict(row: Cells) -> str:
    differs = row["p_win"] <= LEVEL
    differs_at_equal = row["p_equal_length"] <= LEVEL
    half = f"from 50{NBSP}% (p = {p_words(row['p_win'])}; at equal length {p_words(row['p_equal_length'])})"
    if differs and differs_at_equal:
        same_sign = (row["win_rate"] > 0.5) == (row["equal_length"] > 0.5)
        opposite = "" if same_sign else ", with opposite signs: the result depends on length"
        return f"Both differ significantly {half}{opposite}."
    if differs:
        return f"The first differs significantly {half}, the second does not: length may explain the preference."
    if differs_at_equal:
        return f"The second differs significantly {half}, the first does not: their length may hide it."
    return f"Neither differs significantly {half}."


def _unknown(row: Cells) -> str:
    verb = "differs significantly" if row["p_win"] <= LEVEL else "does not differ significantly"
    share = row["longer"]
    side = "longer"
    if share <= 0.5:
        share = 1 - share
        side = "shorter"
    return (
        f"This {verb} from 50{NBSP}% (p = {p_words(row['p_win'])}). In {percent(share)} of comparisons its reply is "
        f"{side} than M0's, so the data do not say what it would be at equal length."
    )


def _others(model: str, rows: pd.DataFrame) -> str:
    significant = rows[rows["p_win"] <= LEVEL]
    better = int((significant["win_rate"] > 0.5).sum())
    worse = len(significant) - better
    policies = "policy" if len(rows) == 1 else "policies"
    verb = "is" if better == 1 else "are"
    return (
        f"Of {len(rows)} {policies} of {model} trained on verifiable prompts only, {better} {verb} preferred to M0 "
        f"significantly more often than not{these_weights(rows['n_seeds'].min())}, and {worse} less often."
    )


# ----------------------------------------------------------------------------------------------------------- tests


def exploratory_tests(comparisons: pd.DataFrame) -> str:
    p_values = comparisons.loc[comparisons["family"] == EXPLORATORY, "p_value"]
    n = len(p_values)
    significant = int((p_values <= LEVEL).sum())
    return (
        f"Of {n} exploratory tests in this table, {significant} have a p of at most {LEVEL}; without any difference, "
        f"about {LEVEL * n:.3g} would."
    )


# -------------------------------------------------------------------------------------------- a run of one K


def accuracies_at(k: int, main: pd.DataFrame) -> list[str]:
    """Return a line per benchmark and policy of this K, and of M0, from Table 1; accuracies with 95 % intervals."""
    is_at_k = (main["K"] == k) & (main["policy"] != "g2d-auto")
    rows = main[is_at_k | (main["policy"] == "base")]
    lines = []
    for name, row in zip(names(rows), rows.to_dict("records"), strict=True):
        seeds = "1 seed" if row["n_seeds"] == 1 else f"{row['n_seeds']} seeds"
        score = percent_interval(row["accuracy"], row["ci_low"], row["ci_high"])
        lines.append(f"{row['model']}, {row['benchmark']}: {name} {score}, {seeds}")
    return sorted(lines, key=lambda line: line.split(":")[0])
