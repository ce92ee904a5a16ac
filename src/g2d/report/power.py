"""Smallest detectable differences, in sentences and a chart."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from g2d.forecast.power import needed_words
from g2d.report.styles import OKABE_ITO, numbered_style
from g2d.report.vega import Spec, finished, series_channels, tips
from g2d.tables.power import POINTS

_PARTS = {"from_questions": "questions", "from_seeds": "seeds", "from_answers": "single answers"}


def power_sentences(power: pd.DataFrame, variance: pd.DataFrame) -> list[str]:
    paragraphs = []
    for (model, benchmark), rows in power.groupby(["model", "benchmark"], sort=False):
        first = rows[rows["against"] == rows["against"].iloc[0]]
        parts = variance[(variance["model"] == model) & (variance["benchmark"] == benchmark)]
        called = f"{model}, {benchmark}" if power["model"].nunique() > 1 else str(benchmark)
        words = [_smallest(called, first[first["this_grid"]].iloc[0].to_dict())]
        words += [_components(row) for row in parts.dropna(subset=["from_seeds"]).to_dict("records")]
        paragraphs.append(" ".join([*words, needed_words(first)]))
    return paragraphs


def _smallest(called: str, row: dict[Any, Any]) -> str:
    sd = "difference" if pd.notna(row["difference"]) else "difference_sd_1"
    margin, finds, since = sd.replace("difference", "margin"), _points(row[sd]), ""
    if pd.notna(row["difference_low"]):
        finds = f"differences of {100 * row['difference_low']:.1f} to {_points(row['difference_high'])}"
        since = "; the seeds' standard deviation is estimated, and gains may be on other questions in every training"
    if row["n_seeds"] == 1:
        about = "between these weights, which are one training run each, "
    else:
        about = "" if sd == "difference" else "if seeds differ by 1 point, "
    return (
        f"{called}: with {row['n_seeds']} seed{'s' if row['n_seeds'] > 1 else ''} and {row['n_problems']:,} problems "
        f"{about}the tests find {finds} against {row['against']} with 80 % probability (corrected for "
        f"{row['family_size']}{since}), and if all K are equally good they show that a K is at most "
        f"{_points(row[margin])} worse than the best."
    )


def _components(row: dict[Any, Any]) -> str:
    shares = ", ".join(f"{100 * row[name]:.0f} % is from {words}" for name, words in _PARTS.items())
    twice = {"seeds": row["difference_twice_seeds"], "questions": row["difference_twice_questions"]}
    smaller = {name: 100 * (1 - difference / row["difference"]) for name, difference in twice.items()}
    more, other = sorted(twice, key=lambda name: name != row["more"])
    ends = f"{100 * row['seed_sd_low']:.1f} to {100 * row['seed_sd_high']:.1f}"
    seeds = (
        f"Seeds differ by {_points(row['seed_sd'])} (standard deviation of a policy; 95 % interval {ends})"
        if row["seed_sd"] >= 0.0005
        else "Policies differ between seeds no more than single answers explain by chance (standard deviation "
        f"at most {_points(row['seed_sd_high'])}, 95 %)"
    )
    return (
        f"{seeds}. Of a difference's variance {shares}. "
        f"Twice the {more} would lower the smallest detectable difference by {smaller[more]:.0f} %, twice the {other} "
        f"by {smaller[other]:.0f} %."
    )


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def difference_by_seeds(power: pd.DataFrame) -> Spec:
    first = power[power["against"] == power["against"].iloc[0]]
    columns = {f"difference_sd_{points}": f"seeds differ by {points} points" for points in POINTS.values()}
    if first["difference"].notna().all():
        measured = 100 * first["seed_sd"].iloc[0]
        columns = {"difference": f"as measured: {measured:.1f} points"} | columns
    rows = first.melt(id_vars=["n_seeds"], value_vars=list(columns), var_name="column", value_name="difference_found")
    rows = rows.assign(series=rows["column"].map(columns), points=100 * rows["difference_found"])
    styles = {name: numbered_style(i, name, OKABE_ITO[i + 1]) for i, name in enumerate(columns.values())}
    x = alt.X("n_seeds:Q", title="seeds", axis=alt.Axis(values=sorted(first["n_seeds"].unique().tolist()), grid=False))
    y = alt.Y(
        "points:Q",
        title=f"points detected with 80 % power, against {first['against'].iloc[0]}",
        scale=alt.Scale(zero=True),
    )
    tooltip = tips({"series": None, "n_seeds": "", "points": ".1f"}, n_seeds="seeds")
    base = alt.Chart(rows).encode(x=x, y=y, tooltip=tooltip, **series_channels(styles))
    here = alt.Chart(first[first["this_grid"]]).mark_rule(strokeDash=[4, 4], color="#777").encode(x=x)
    return finished(here, base.mark_line(), base.mark_point(filled=True, size=70, opacity=1), height=240)
