"""Online trainings: training curves, and a caveat about importance ratios."""

from __future__ import annotations

import altair as alt
import pandas as pd

from g2d.analysis.training_steps import RATIO_BOUND
from g2d.grid.runs import POLICY_NAMES
from g2d.report.phrases import percent
from g2d.report.styles import Styles, legend, styles_of
from g2d.report.vega import Spec, finished, series_channels, tips

HEIGHT = 200  # pixels: one of several


def course(training: pd.DataFrame, styles: Styles) -> Spec:
    rows = training.assign(series=[style.series for style in styles_of(training, styles)])
    measure = str(training["measure"].iloc[0])
    axis = alt.Axis(format="~s", grid=False, tickCount=5)
    x = alt.X("tokens:Q", title="tokens trained on", axis=axis)
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    seen = {"series": None, "step": "", "tokens": "~s", "value": ".3g", "value_low": ".3g", "value_high": ".3g"}
    tooltip = tips(seen, series="training", value=measure, value_low="lowest seed", value_high="highest seed")
    channels = series_channels(legend(training, styles))
    del channels["shape"]
    chart = alt.Chart(rows)
    seeds = chart.mark_area(opacity=0.18).encode(x=x, y="value_low:Q", y2="value_high:Q", color=channels["color"])
    mean = chart.mark_line().encode(x=x, y=y, tooltip=tooltip, **channels)
    return finished(seeds, mean, height=HEIGHT)


def mismatch_caveats(training: pd.DataFrame) -> tuple[str, ...]:
    caveats = []
    for (policy, size), rows in training.groupby(["policy", "group_size"], sort=False):
        mean = rows.groupby("measure")["value"].mean()
        if abs(mean.get("ratio", 1.0) - 1) > RATIO_BOUND:
            capped = ""
            if "capped" in mean:
                capped = f"; {percent(mean['capped'], 0)} of the ratios exceeded their cap"
            regime = str(policy).removesuffix("/grpo")
            called = f"{POLICY_NAMES.get(regime, regime)}, G={size}"
            caveats.append(
                f"In the training of {called} the probabilities of trainer and sampler differ: their "
                f"ratio is {mean['ratio']:.2f} on average, off 1 by more than {RATIO_BOUND:g}{capped}."
            )
    return tuple(caveats)
