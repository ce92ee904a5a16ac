"""The share of a policy's gain that its controls get, which were trained the same way on another reward.

No significant difference from the truth does not show that a control is as good, and none from M0 does not show that it
learnt nothing. So the sentence gives the intervals beside the tests.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from g2d.analysis.comparisons import LEVEL
from g2d.experiment.keys import called
from g2d.report.phrases import NBSP, points_of, signed, signed_interval, these_weights


def control_sentences(controls: pd.DataFrame) -> tuple[str, ...]:
    """A sentence about the most accurate policy in rows of `controls.csv`, of one model and benchmark."""
    by_policy = [rows for _, rows in controls.groupby(["truth", "K", "group_size"], sort=False, dropna=False)]
    if not by_policy:
        return ()
    said = _sentence(max(by_policy, key=lambda rows: rows["truth_accuracy"].iloc[0]))
    others = len(by_policy) - 1
    return (f"{said} The table of controls has {others} more." if others else said,)


def _sentence(rows: pd.DataFrame) -> str:
    first = rows.iloc[0].to_dict()
    gain = points_of(first, "truth_gain")
    name = called(first["truth"], first["K"], first["group_size"] if first["truth"] == "grpo" else 0)
    said = "; ".join(_control(row) for row in rows.to_dict("records"))
    weights = these_weights(first["n_seeds"])
    if first["p_truth"] > LEVEL:
        return (
            f"Controls: what {name} gains over M0{weights}, {gain}, is not significantly different from 0 "
            f"(p = {first['p_truth']:.2g}), so there is nothing to take a share of: {said}."
        )
    return f"Controls: of the {gain} that {name} gains over M0{weights}, {said}."


def _control(row: dict[Any, Any]) -> str:
    parts = [f"{row['reward']} get {signed(row['gain'])} {signed_interval(row['gain_low'], row['gain_high'])}"]
    if pd.notna(row["share"]):
        parts.append(f"{_percent(row['share'])}{NBSP}% {_share_interval(row)}")
    differs = "different" if row["p_holm"] <= LEVEL else "not significantly different"
    shown = points_of(row, "difference")
    if row["p_holm"] > LEVEL:
        shown += f"; about {100 * row['minimum_detectable']:.1f} would have been found four times in five"
    parts.append(f"{differs} from the truth by a paired test, p = {row['p_holm']:.2g}: {shown}")
    return f"{parts[0]} ({', '.join(parts[1:])})"


def _share_interval(row: dict[Any, Any]) -> str:
    low, high = (_percent(row[end]) if pd.notna(row[end]) else None for end in ("share_low", "share_high"))
    return f"[{low or 'no lower end'}, {high or 'no upper end'}]"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}".replace("-", "−")
