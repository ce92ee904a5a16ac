"""The controls in a sentence: how much of a gain does a policy get that was trained alike on another reward?

A control that does not differ significantly from the truth is not thereby as good, and one that does not from M0 has
not thereby learnt nothing: the sentence gives intervals, and says what the tests show and nothing beyond.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from g2d.report.differences import ALPHA, NBSP, interval_text, signed
from g2d.report.phrases import these_weights

GRPO = "GRPO"


def control_sentences(controls: pd.DataFrame, model: str, benchmark: str) -> tuple[str, ...]:
    """The sentence about the most accurate of the policies that have controls, and where the others are.

    Args:
        controls: `controls.csv`.
    """
    own = controls[(controls["model"] == model) & (controls["benchmark"] == benchmark)]
    by_policy = [rows for _, rows in own.groupby(["truth", "K", "group_size"], sort=False, dropna=False)]
    if not by_policy:
        return ()
    said = _sentence(max(by_policy, key=lambda rows: rows["truth_accuracy"].iloc[0]))
    others = len(by_policy) - 1
    return (f"{said} The table of controls has {others} more." if others else said,)


def _sentence(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    gain = f"{signed(100 * first['truth_gain'])} points {_interval(first, 'truth_gain')}"
    said = "; ".join(_control(row) for row in rows.to_dict("records"))
    weights = these_weights(first["n_seeds"])
    if first["p_truth"] > ALPHA:
        return (
            f"Controls: what {_name(first)} gains over M0{weights}, {gain}, is not significantly different from 0 "
            f"(p = {first['p_truth']:.2g}), so there is nothing to take a share of: {said}."
        )
    return f"Controls: of the {gain} that {_name(first)} gains over M0{weights}, {said}."


def _control(row: dict[Any, Any]) -> str:
    parts = [f"{row['reward']} get {signed(100 * row['gain'])} {_interval(row, 'gain')}"]
    if pd.notna(row["share"]):
        parts.append(f"{_percent(row['share'])}{NBSP}% {_share_interval(row)}")
    differs = "different" if row["p_holm"] <= ALPHA else "not significantly different"
    points = f"{signed(100 * row['difference'])} points {_interval(row, 'difference')}"
    if row["p_holm"] > ALPHA:
        points += f"; about {100 * row['minimum_detectable']:.1f} would have been found four times in five"
    parts.append(f"{differs} from the truth by a paired test, p = {row['p_holm']:.2g}: {points}")
    return f"{parts[0]} ({', '.join(parts[1:])})"


def _name(row: Any) -> str:
    if row["truth"] == "grpo":
        return f"{GRPO} alone (G={int(row['group_size'])}, K={int(row['K'])})"
    return f"K={int(row['K'])}" if row["truth"] in ("dpo", "g2d") else f"{row['truth']} (K={int(row['K'])})"


def _interval(row: Any, name: str) -> str:
    return interval_text((100 * row[f"{name}_low"], 100 * row[f"{name}_high"]))


def _share_interval(row: dict[Any, Any]) -> str:
    low, high = (_percent(row[end]) if pd.notna(row[end]) else None for end in ("share_low", "share_high"))
    return f"[{low or 'no lower end'}, {high or 'no upper end'}]"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}".replace("-", "−")
