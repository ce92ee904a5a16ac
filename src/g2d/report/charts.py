"""The interactive figures, as Vega-Lite specifications that draw themselves in the page.

They say what the printed figures of `g2d.figures` say, with values under the pointer. What differs by colour differs by
shape, dash or lightness too, so a grey print can be read. Each specification carries its own rows and is as wide as its
place in the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import pandas as pd

HEIGHT = 320  # pixels
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#007F5F", "#8A4F7D"
COLORS = [BLUE, VERMILION, GREEN, PURPLE]
SHAPES = ["circle", "square", "triangle-up", "diamond"]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]]
STEPS = ["#e3e9f1", "#b5c7de", "#7f9fc6", "#4a76a8", "#1f4b7d", "#0a2748"]  # light to dark

FONT = "system-ui, sans-serif"
THEME: dict[str, Any] = {
    "font": FONT,
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "gridColor": "#e6e6e6"},
    "legend": {"labelFontSize": 12, "titleFontSize": 12, "orient": "bottom", "symbolSize": 90, "columns": 2},
    "view": {"stroke": None},
}

Spec = dict[str, Any]


def accuracy_by_k(main: pd.DataFrame) -> Spec:
    """Accuracy against K with intervals; M0 and GRPO as labelled bands.

    Args:
        main: rows of Table 1 of one model and benchmark.
    """
    trained = _trained(main)
    baselines = _baselines(main)
    y = _accuracy_axis(main)
    ks = sorted(int(k) for k in trained["K"].unique())
    x = alt.X("K:Q", title="GRPO warm-up steps K", axis=alt.Axis(values=ks, grid=False), scale=_padded(ks))
    series = list(dict.fromkeys(trained["series"]))
    points = alt.Chart(trained).encode(x=x, y=y, tooltip=_tooltip(main), **_series(series))
    bars = (
        alt.Chart(trained)
        .mark_rule(strokeWidth=1.5)
        .encode(x=x, y=y, y2="ci_high:Q", color=alt.Color("series:N", legend=None, scale=_scale(series, COLORS)))
    )
    lower = bars.encode(y=_accuracy_axis(main, "ci_low"))
    band = (
        alt.Chart(baselines)
        .mark_rect(opacity=0.13, color="#444")
        .encode(y=_accuracy_axis(main, "ci_low"), y2="ci_high:Q")
    )
    line = alt.Chart(baselines).mark_rule(strokeDash=[5, 3], color="#333").encode(y=y, tooltip=_tooltip(main))
    name = (
        alt.Chart(baselines)
        .mark_text(align="right", baseline="bottom", dy=-3, fontSize=12, font=FONT)
        .encode(x=alt.value("width"), y=_accuracy_axis(main, "label_at"), text="name:N")
    )
    return _finished(band, line, lower, points.mark_line(), points.mark_point(filled=True, size=90, opacity=1), name)


def accuracy_by_hours(main: pd.DataFrame) -> Spec:
    """Accuracy against device-hours: one point per policy, DPO policies joined in the order of K.

    Args:
        main: rows of Table 1 of one model and benchmark.
    """
    rows = main.dropna(subset=["device_hours"])
    baselines = rows[rows["policy"].isin(["base", "grpo"])].assign(series=lambda d: d["policy"].map(_KINDS))
    rows = pd.concat([_trained(rows), baselines])
    rows = rows.assign(name=[_policy_name(row) for row in rows.to_dict("records")], order=rows["K"])
    series = list(dict.fromkeys(rows["series"]))
    x = alt.X("device_hours:Q", title="device-hours per seed", axis=alt.Axis(grid=False))
    y = _accuracy_axis(main)
    color = alt.Color("series:N", legend=None, scale=_scale(series, COLORS))
    joined = alt.Chart(rows[~rows["policy"].isin(["base", "grpo"])])
    lines = joined.mark_line(strokeWidth=1.5).encode(x=x, y=y, color=color, order="order:Q")
    bars = (
        alt.Chart(rows)
        .mark_rule(strokeWidth=1.5)
        .encode(x=x, y=_accuracy_axis(main, "ci_low"), y2="ci_high:Q", color=color)
    )
    points = alt.Chart(rows).mark_point(filled=True, size=90, opacity=1)
    channels = {"x": x, "y": y, "tooltip": _tooltip(main), **_series(series, dash=False)}
    names = alt.Chart(rows).mark_text(align="left", dx=8, dy=-8, fontSize=12, font=FONT).encode(x=x, y=y, text="name:N")
    return _finished(lines, bars, points.encode(**channels), names)


def informativeness_by_k(harvest: pd.DataFrame) -> Spec:
    """Pairability, middle band and entropy of the harvest against K (Figure 3), on an axis from 0 to 1.

    Args:
        harvest: rows of Table 2 of one model.
    """
    first = harvest["group_size"].dropna().min()
    own = harvest[harvest["group_size"].isna() | (harvest["group_size"] == first)]
    rows = pd.concat([_metric(own, column, name) for column, name in METRICS.items()]).dropna(subset=["value"])
    names = list(METRICS.values())
    ks = sorted(int(k) for k in own["K"].unique())
    x = alt.X("K:Q", title="GRPO warm-up steps K", axis=alt.Axis(values=ks, grid=False), scale=_padded(ks))
    scale = alt.Scale(domain=[0, 1])
    y = alt.Y("value:Q", title="share, or bits for H", scale=scale)
    tooltip = [
        alt.Tooltip("series:N", title="metric"),
        alt.Tooltip("K:Q"),
        alt.Tooltip("value:Q", format=".3f"),
        alt.Tooltip("interval:N"),
    ]
    base = alt.Chart(rows).encode(x=x, y=y, **(_series(names) | {"tooltip": tooltip}))
    layers = [base.mark_line(), base.mark_point(filled=True, size=80, opacity=1)]
    bounded = rows.dropna(subset=["low", "high"])
    if len(bounded):
        bars = alt.Chart(bounded).mark_rule(strokeWidth=1.5)
        color = alt.Color("series:N", legend=None, scale=_scale(names, COLORS))
        layers.insert(0, bars.encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=color))
    return _finished(*layers)


def difficulty_by_level(calibration: pd.DataFrame) -> Spec:
    """Prompts of every level that M0 never, sometimes and always solves (Table 4).

    Args:
        calibration: rows of Table 4 of one model.
    """
    kinds = {"all_wrong_share": "never right", "pairable_share": "pairable", "all_correct_share": "always right"}
    rows = calibration.rename(columns=kinds).melt(
        id_vars=["levels", "selected", "n", "pass_at_1"], value_vars=list(kinds.values()), var_name="prompts"
    )
    rows = rows.assign(order=rows["prompts"].map({name: i for i, name in enumerate(kinds.values())}))
    chart = (
        alt.Chart(rows)
        .mark_bar(stroke="white")
        .encode(
            y=alt.Y("levels:N", title="level", sort=list(calibration["levels"])),
            x=alt.X("value:Q", title="share of prompts", axis=alt.Axis(format="%"), stack="zero"),
            color=alt.Color(
                "prompts:N", title=None, scale=_scale(list(kinds.values()), [STEPS[4], STEPS[2], STEPS[0]])
            ),
            order="order:Q",
            tooltip=[
                "levels:N",
                "prompts:N",
                alt.Tooltip("value:Q", title="share", format=".1%"),
                alt.Tooltip("pass_at_1:Q", title="pass@1", format=".1%"),
                "n:Q",
                "selected:N",
            ],
        )
    )
    return _finished(chart, height=alt.Step(26))


def bill(cost: pd.DataFrame) -> Spec:
    """Device-hours of every policy by stage, mean over seeds.

    Args:
        cost: rows of the bill of one model.
    """
    rows = cost.assign(name=[_policy_name(row) for row in cost.to_dict("records")])
    seeds = rows.groupby("name", sort=False)["seed"].nunique().clip(lower=1)
    hours = rows.groupby(["name", "stage"], sort=False)["device_hours"].sum().reset_index()
    hours["device_hours"] /= hours["name"].map(seeds)
    stages = list(dict.fromkeys(hours["stage"]))
    hours["order"] = hours["stage"].map(stages.index)
    chart = (
        alt.Chart(hours)
        .mark_bar(stroke="white")
        .encode(
            y=alt.Y("name:N", title=None, sort=list(seeds.index), axis=alt.Axis(labelLimit=220)),
            x=alt.X("device_hours:Q", title="device-hours per seed"),
            color=alt.Color("stage:N", title=None, scale=_scale(stages, [STEPS[i % len(STEPS)] for i in range(9)])),
            order="order:Q",
            tooltip=["name:N", "stage:N", alt.Tooltip("device_hours:Q", format=".3g")],
        )
    )
    return _finished(chart, height=alt.Step(26))


# ------------------------------------------------------------------------------------------------------------- parts

_KINDS = {"base": "M0", "grpo": "GRPO alone"}
METRICS = {"pairability": "pairability ρ", "entropy": "entropy H (bits)", "mid_band": "middle band μ"}


def _trained(main: pd.DataFrame) -> pd.DataFrame:
    """DPO and G2D by group size; K=0, which has none, starts every curve."""
    rows = main[main["policy"].isin(["dpo", "g2d"])]
    sizes = sorted({int(size) for size in rows["group_size"].dropna()})
    if not sizes:
        return rows.assign(series="DPO")
    curves = [rows[rows["group_size"].isna() | (rows["group_size"] == g)].assign(series=f"G2D, G={g}") for g in sizes]
    return pd.concat(curves)


def _baselines(main: pd.DataFrame, gap: float = 0.06) -> pd.DataFrame:
    """M0 and GRPO with the heights of their names, moved apart where two would overlap."""
    rows = main[main["policy"].isin(["base", "grpo"])].sort_values("accuracy")
    low, high = _range(main)
    at, heights = float("-inf"), []
    for accuracy in rows["accuracy"]:
        at = max(accuracy, at + gap * (high - low))
        heights.append(at)
    return rows.assign(label_at=heights, name=[_policy_name(row) for row in rows.to_dict("records")])


def _policy_name(row: Any) -> str:
    policy, k, size = row["policy"], int(row["K"]), row["group_size"]
    group = "" if pd.isna(size) else f", G={int(size)}"
    if policy == "base":
        return "M0"
    if policy in ("dpo", "g2d"):
        return f"K={k}{group}" if policy == "g2d" else "DPO, K=0"
    return f"{'GRPO' if policy == 'grpo' else policy}, K={k}{group}"


def _range(main: pd.DataFrame) -> tuple[float, float]:
    """The accuracies that the axis spans, a little more than the intervals."""
    low, high = float(main["ci_low"].min()), float(main["ci_high"].max())
    margin = 0.06 * (high - low) or 0.02
    return max(0.0, low - margin), min(1.0, high + margin)


def _accuracy_axis(main: pd.DataFrame, column: str = "accuracy") -> alt.Y:
    scale = alt.Scale(domain=list(_range(main)), zero=False, nice=False)
    return alt.Y(f"{column}:Q", title="accuracy (pass@1)", scale=scale, axis=alt.Axis(format=".0%", tickCount=6))


def _padded(ks: Sequence[int]) -> alt.Scale:
    margin = 0.04 * (ks[-1] - ks[0]) or 1 if ks else 1
    return alt.Scale(domain=[ks[0] - margin, ks[-1] + margin] if ks else [0, 1], nice=False, zero=False)


def _scale(names: Iterable[str], values: Sequence[Any]) -> alt.Scale:
    names = list(names)
    return alt.Scale(domain=names, range=[values[i % len(values)] for i in range(len(names))])


def _series(names: Sequence[str], dash: bool = True) -> dict[str, Any]:
    """Colour, shape and dash for each series, with one legend for all three."""
    channels: dict[str, Any] = {
        "color": alt.Color("series:N", title=None, scale=_scale(names, COLORS)),
        "shape": alt.Shape("series:N", title=None, scale=_scale(names, SHAPES)),
    }
    if dash:
        channels["strokeDash"] = alt.StrokeDash("series:N", title=None, scale=_scale(names, DASHES))
    return channels


def _tooltip(main: pd.DataFrame) -> list[alt.Tooltip]:
    shares = {"accuracy": ".1%", "ci_low": ".1%", "ci_high": ".1%", "device_hours": ".3g"}
    columns = ("policy", "K", "group_size", "accuracy", "ci_low", "ci_high", "device_hours", "n_seeds")
    return [
        alt.Tooltip(f"{c}:{'Q' if c != 'policy' else 'N'}", **({"format": shares[c]} if c in shares else {}))
        for c in columns
        if c in main
    ]


def _metric(rows: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """One metric in long form, with its interval where the table has one."""
    low, high = (rows[bound] if bound in rows else None for bound in (f"{column}_low", f"{column}_high"))
    frame = pd.DataFrame({"K": rows["K"], "series": name, "value": rows[column], "low": low, "high": high})
    known = frame["low"].notna() & frame["high"].notna()
    shown = [f"{a:.3f} to {b:.3f}" if k else "" for a, b, k in zip(frame["low"], frame["high"], known, strict=True)]
    return frame.assign(interval=shown)


def _finished(*layers: Any, height: Any = HEIGHT) -> Spec:
    chart = alt.layer(*layers) if len(layers) > 1 else layers[0]
    spec: Spec = chart.properties(width="container", height=height).to_dict()
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["config"] = THEME
    return spec
