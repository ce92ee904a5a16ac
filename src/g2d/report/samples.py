"""The figure of samples.csv: pass@k against k."""

from __future__ import annotations

import altair as alt
import pandas as pd

from g2d.report.marks import POLICY_NAMES, Marks, names, of_lines
from g2d.report.vega import Spec, finished, series_channels


def pass_at_k(samples: pd.DataFrame, known: Marks) -> Spec:
    """pass@k against k, a line per policy of the main grid, with its interval under the pointer.

    Where lines cross, a policy is better with one answer and worse with several. Other policies are in the table.

    Args:
        samples: rows of samples.csv of one model and benchmark.
        known: how policies are drawn; lines of one colour differ by dash.
    """
    rows = samples[(samples["measure"] == "pass") & samples["policy"].isin(POLICY_NAMES)]
    bounds = zip(rows["ci_low"], rows["ci_high"], strict=True)
    looks = of_lines(rows, known)
    rows = rows.assign(series=names(rows), interval=[f"{low:.3f} to {high:.3f}" for low, high in bounds])
    ks = sorted(int(k) for k in rows["k"].unique())
    x = alt.X("k:Q", title="samples k", axis=alt.Axis(values=ks, grid=False), scale=alt.Scale(type="log", base=2))
    y = alt.Y("share:Q", title="pass@k", scale=alt.Scale(zero=False))
    tooltip = [
        alt.Tooltip("series:N", title="policy"),
        alt.Tooltip("k:Q"),
        alt.Tooltip("share:Q", title="pass@k", format=".3f"),
        alt.Tooltip("interval:N", title="95 %"),
    ]
    lines = alt.Chart(rows).encode(x=x, y=y, tooltip=tooltip, **series_channels(looks))
    return finished(lines.mark_line(), lines.mark_point(filled=True, size=60, opacity=1))
