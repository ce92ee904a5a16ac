"""Distance of policies from M0: a chart of gain against divergence, and a sentence on online training."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from g2d.analysis.comparisons import LEVEL
from g2d.report.charts import POINT
from g2d.report.phrases import these_weights
from g2d.report.styles import Styles, drawn, legend
from g2d.report.vega import Spec, finished, series_channels, tips
from g2d.tables.drift import KL_COLUMNS


def gain_by_divergence(drift: pd.DataFrame, styles: Styles) -> Spec | None:
    """Draw gain over M0 against divergence from M0; None if either was not measured."""
    base = drift.loc[drift["policy"] == "base", "accuracy"]
    rows = drift[drift["kl"] > 0] if "kl" in drift else drift.head(0)
    if base.empty or rows.empty:
        return None
    rows = drawn(rows.assign(gain=rows["accuracy"] - base.iloc[0]), styles)
    scale = alt.Scale(type="log", nice=False, padding=12)
    x = alt.X(
        "kl:Q", title="KL divergence from M0, nats per answer", axis=alt.Axis(grid=False, format="~g"), scale=scale
    )
    y = alt.Y("gain:Q", title="gain in accuracy over M0", axis=alt.Axis(format="+.1~%", tickCount=6))
    tooltip = tips({"name": None, "gain": "+.1%", **dict.fromkeys(KL_COLUMNS, ".3g")}, name="policy")
    channels = series_channels(legend(rows, styles), dash=False)
    bars = alt.Chart(rows[rows["kl_low"] > 0]).mark_rule(strokeWidth=1.5)
    points = alt.Chart(rows).mark_point(**POINT).encode(x=x, y=y, tooltip=tooltip, **channels)
    return finished(bars.encode(x=alt.X("kl_low:Q", scale=scale), x2="kl_high:Q", y=y, color=channels["color"]), points)


def equal_gain_sentences(table: pd.DataFrame) -> list[str]:
    several = table["model"].nunique() > 1
    return [_sentence(row, f"{row['model']}, " if several else "") for row in table.to_dict("records")]


def _sentence(row: dict[Any, Any], model: str) -> str:
    where = f"{model}{row['benchmark']}"
    if row["status"] == "not tested":
        return (
            f"{where}: at equal gain, the KL divergence from M0 of the {row['n_online']} policies trained online is "
            f"{row['ratio']:.2g} times that of the {row['n_others']} trained on harvests. This is not tested: there "
            "are too few policies."
        )
    if row["status"] != "compared":
        why = "their gains do not overlap" if row["status"] == "no common gain" else "there are too few of them"
        return f"{where}: policies trained online and others are not compared at equal gain, because {why}."
    closer = "closer to" if row["ratio"] < 1 else "further from"
    verdict = f"policies trained online are {closer} M0" if row["p_value"] <= LEVEL else "no significant difference"
    return (
        f"{where}: at equal gain, {verdict}{these_weights(int(row['n_seeds']))}: the KL divergence from M0 of the "
        f"{row['n_online']} policies trained online is {row['ratio']:.2g} times that of the {row['n_others']} trained "
        f"on harvests [{row['ratio_low']:.2g}, {row['ratio_high']:.2g}] (p = {row['p_value']:.2g}, over policies)."
    )
