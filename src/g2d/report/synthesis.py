"""Effects pooled over models and benchmarks: sentences and a forest plot."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from g2d.analysis.comparisons import LEVEL
from g2d.analysis.statistics import holm
from g2d.report.phrases import points, signed_interval
from g2d.report.styles import OKABE_ITO
from g2d.report.vega import Spec, dashed_line, finished, named_scale, tips
from g2d.tables.synthesis import OVER_MODELS, STUDY

ROW_HEIGHT = 24  # pixels
_STUDY, _POOLED, _PREDICTED = "one study, 95 % interval", "pooled, 95 % interval", "another study, 95 % prediction"


def synthesis_sentences(synthesis: pd.DataFrame) -> list[str]:
    pooled = synthesis[synthesis["over"] != STUDY]
    sentences = []
    for (reference, over), rows in pooled.groupby(["reference", "over"], sort=False):
        sentences.append(_sentence(str(reference), str(over), rows.loc[rows["mean"].idxmax()].to_dict(), len(rows)))
        if over == OVER_MODELS:
            studies = synthesis[(synthesis["over"] == STUDY) & (synthesis["reference"] == reference)]
            sentences += _by_model(str(reference), studies, rows)
    return sentences


def _by_model(reference: str, studies: pd.DataFrame, pooled: pd.DataFrame) -> list[str]:
    means = studies.groupby(["model", "K"], sort=False)["difference"].mean().unstack()
    if len(means.columns) < 2:
        return []
    best = ", ".join(f"{model} K={k}" for model, k in means.idxmax(axis=1).items())
    smallest = float(holm(pooled["p_heterogeneity"].to_numpy()).min())
    verdict = "some K differs significantly" if smallest <= LEVEL else "any K does not differ significantly"
    return [
        f"By model, the largest mean difference from {reference} is at {best}. Over these models the difference of "
        f"{verdict} (Cochran's Q, Holm-corrected over {len(pooled)}: smallest p = {smallest:.2g})."
    ]


def _sentence(reference: str, over: str, row: dict[Any, Any], n: int) -> str:
    difference = points(row["mean"], row["mean_low"], row["mean_high"])
    prediction = signed_interval(row["prediction_low"], row["prediction_high"])
    best = f", the largest of {n} mean differences" if n > 1 else ""
    test = "" if row["p_mean"] <= LEVEL else ", not significantly different from 0"
    return (
        f"In these {row['n_studies']} studies ({over}), K={row['K']} is on average {difference} from {reference}{best}"
        f"{test} (p = {row['p_mean']:.2g}). Another such study is a different question: between studies the true "
        f"difference varies by an estimated {100 * row['tau']:.1f} points (standard deviation), and a new one lies in "
        f"{prediction} (95 % prediction interval)."
    )


_DRAWN = ["name", "kind", "difference", "low", "high"]  # an empty text among the others would be no JSON


def forest(synthesis: pd.DataFrame) -> Spec:
    rows = synthesis.assign(
        name=[
            f"{row['model']}, {row['benchmark']}" if row["over"] == STUDY else f"all: {row['over']}"
            for row in synthesis.to_dict("records")
        ],
        low=synthesis["ci_low"],
        high=synthesis["ci_high"],
    )
    rows["kind"] = [_STUDY if over == STUDY else _POOLED for over in rows["over"]]
    predicted = rows[rows["over"] != STUDY].assign(kind=_PREDICTED)
    predicted = predicted.assign(low=predicted["prediction_low"], high=predicted["prediction_high"])[_DRAWN]
    rows = rows[_DRAWN]
    y = alt.Y("name:N", title=None, sort=list(rows["name"]), axis=alt.Axis(labelLimit=260))
    x = alt.X("low:Q", title="difference in accuracy", axis=alt.Axis(format="+.1~%", tickCount=6))
    color = alt.Color("kind:N", title=None, scale=named_scale([_STUDY, _POOLED, _PREDICTED], OKABE_ITO))
    shown = tips({"name": None, "kind": None, **dict.fromkeys(("difference", "low", "high"), "+.1%")})
    thin, drawn = (alt.Chart(frame).encode(y=y, color=color, tooltip=shown) for frame in (predicted, rows))
    return finished(
        dashed_line("x"),
        thin.mark_rule(strokeDash=[2, 2]).encode(x=x, x2="high:Q"),
        drawn.mark_rule(strokeWidth=2).encode(x=x, x2="high:Q"),
        drawn.mark_point(filled=True, size=80, opacity=1).encode(x="difference:Q"),
        height=ROW_HEIGHT * max(len(rows), 2),
    )
