"""Extrapolated and trained policies of the same K, and the linearity of the warm-up, on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from g2d.analysis.linearity import LINEAR
from g2d.experiment.keys import called
from g2d.report.charts import ACCURACY, POINT, ROW_HEIGHT
from g2d.report.phrases import at_most, percent, points, these_weights
from g2d.report.styles import OKABE_ITO, Styles, names
from g2d.report.vega import Spec, dashed_line, finished, named_scale, tips


def extrapolation_sentences(table: pd.DataFrame, linearity: pd.DataFrame | None = None) -> list[str]:
    sentences = [_sentence(row, table["model"].nunique() > 1) for row in table.to_dict("records")]
    for (model, size), rows in [] if linearity is None else linearity.groupby(["model", "group_size"], sort=False):
        last = rows[rows["K"] == rows["K"].max()]
        sentences.append(
            f"{model}, G={size}: over the {last['n_checkpoints'].iloc[0]} checkpoints up to K={last['K'].iloc[0]}, "
            f"{percent(last['linear'].mean(), 0)} of the weights have R² above {LINEAR:g}."
        )
    return sentences


def _sentence(row: Mapping[Any, Any], several: bool) -> str:
    name = called(row["policy"], row["K"])
    where = f"{row['model']}, {row['benchmark']}" if several else row["benchmark"]
    bound = f"is at most {at_most(row['margin_shown'])} points worse" if row["margin_shown"] else "is better"
    paid, trained = row["device_hours"], row["trained_device_hours"]
    hours = f", at {percent(paid / trained, 0)} of its device-hours" if paid > 0 and trained > 0 else ""
    return (
        f"{where}: {name}, extrapolated from K={row['last_trained']}, {bound} than the trained policy (one-sided 95 %)"
        f"{these_weights(int(row['n_seeds']))}{hours}; the difference is "
        f"{points(row['difference'], row['ci_low'], row['ci_high'])}."
    )


def extrapolated_and_trained(table: pd.DataFrame, _: Styles) -> Spec:
    rows = table.assign(name=names(table))
    y = alt.Y("name:N", title=None, sort=list(rows["name"]), axis=alt.Axis(labelLimit=260))
    x = alt.X("difference:Q", title=f"{ACCURACY}: extrapolated minus trained", axis=alt.Axis(format="+.1~%"))
    shown = {"name": None, "difference": "+.1%", "ci_low": "+.1%", "ci_high": "+.1%", "accuracy": ".1%"}
    chart = alt.Chart(rows).encode(y=y)
    bars = chart.mark_rule(strokeWidth=1.5).encode(x=alt.X("ci_low:Q"), x2="ci_high:Q")
    marks = chart.mark_point(**POINT).encode(x=x, tooltip=tips(shown))
    return finished(dashed_line("x"), bars, marks, height=ROW_HEIGHT * (len(rows) + 1))


def linear_share(table: pd.DataFrame, _: Styles) -> Spec:
    rows = table.groupby(["group_size", "K"], as_index=False)["linear"].mean()
    rows = rows.assign(series=[f"G={size}" for size in rows["group_size"]])
    x = alt.X("K:Q", title="GRPO warm-up steps K", axis=alt.Axis(grid=False))
    y = alt.Y("linear:Q", title=f"weights with R² above {LINEAR:g}", scale=alt.Scale(domain=[0, 1]))
    color = alt.Color("series:N", title=None, scale=named_scale(dict.fromkeys(rows["series"]), OKABE_ITO[1:]))
    lines = alt.Chart(rows).encode(x=x, y=y, color=color, tooltip=tips({"series": None, "K": "", "linear": ".0%"}))
    return finished(lines.mark_line(), lines.mark_point(**POINT))
