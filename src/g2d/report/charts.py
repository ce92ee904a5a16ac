"""Charts as Vega-Lite specifications, for one model and benchmark.

Series differ by colour and also by shape, dash or lightness, for grey prints. A chart of a table of the page
(`g2d.tables.all_tables`) takes rows and the styles of policies.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from g2d.grid.runs import POLICY_NAMES
from g2d.grid.versions import GPU_STAGES
from g2d.report.sentences import time_unit
from g2d.report.styles import COLORS, OKABE_ITO, Styles, drawn, legend, line_styles, names, numbered_style, styles_of
from g2d.report.vega import Spec, dashed_line, finished, named_scale, outlined, series_channels, tips
from g2d.tables.families import PRIMARY

NARROW = 600  # pixels of a chart with its axes, below which names are short and marks have no labels
ROW_HEIGHT = 26  # pixels, of a bar
CURVE_HEIGHT = 200  # pixels, of one of several training curves
NAME_LIMIT = alt.ExprRef("min(220, 0.4 * width)")  # pixels of a policy's name on an axis
ACCURACY = "accuracy (pass@1)"
POINT: dict[str, Any] = {"filled": True, "size": 95, "opacity": 1, "stroke": "#1b1f23", "strokeWidth": 0.6}

# A training has the colour of its policies.
STAGE_COLORS = {f"train_{method}": color for method, color in COLORS.items()} | {
    "train_grpo_auto": COLORS["grpo"],
    "calibrate": "#000000",
    "harvest_rollouts": "#999999",
    "evaluate": "#DDDDDD",
    "sample_answers": "#44AA99",
    "sample_replies": "#DDCC77",
}
SHARES = dict.fromkeys(("accuracy", "ci_low", "ci_high"), ".1%")  # formats


def without_ablations(main: pd.DataFrame) -> pd.DataFrame:
    return main[main["change"].isna()].drop(columns="change")


def accuracy_by_k(main: pd.DataFrame, styles: Styles) -> Spec:
    """Draw accuracy against K; policies whose K does not count GRPO warm-up steps are right of the others."""
    rows = drawn(main, styles)
    base = rows[rows["policy"] == "base"]
    trained = rows[rows["policy"] != "base"]
    of_warmup = pd.Series([style.of_warmup for style in styles_of(trained, styles)], trained.index, bool)
    ks = sorted(trained.loc[of_warmup, "K"].unique().tolist()) or [0]
    reach = ks[-1] - ks[0] or 1
    trained = trained.assign(at=_places_at_k(trained, of_warmup, ks[-1], reach))
    end = max([ks[-1], *trained["at"]]) + 0.05 * reach
    axis = alt.Axis(values=ks, grid=False, labelOverlap="greedy")
    scale = alt.Scale(domain=[ks[0] - 0.05 * reach, end], nice=False, zero=False)
    x = alt.X("at:Q", title="GRPO warm-up steps K", axis=axis, scale=scale)
    y = _accuracy_axis(main)
    interval = _interval(main)
    channels = series_channels(legend(trained, styles))
    points = alt.Chart(trained).encode(x=x, y=y, tooltip=_tooltip(trained), **channels)
    curves = alt.Chart(_curves(trained[of_warmup], base.assign(at=0.0))).mark_line(strokeWidth=1.8, clip=True)
    lines = curves.encode(x=x, y=y, order="K:Q", **channels)
    bars = alt.Chart(trained).mark_rule(strokeWidth=1.5).encode(x=x, color=channels["color"], **interval)
    layers: list[alt.Chart] = []
    if len(base):
        layers += [
            alt.Chart(base).mark_rect(opacity=0.1, color="#444").encode(**interval),
            alt.Chart(base).mark_rule(strokeDash=[5, 3], color="#333").encode(y=y, tooltip=_tooltip(base)),
            *outlined(alt.Chart(base).encode(x=alt.value(0), y=y, text="name:N"), align="left", dx=4),
        ]
    if not of_warmup.all():
        edge = alt.Chart(pd.DataFrame({"at": [ks[-1] + 0.09 * reach], "text": ["K of other trainings"]}))
        layers += [
            edge.mark_rule(color="#999").encode(x=x),
            edge.mark_text(align="right", fontSize=11).encode(x=alt.value("width"), y=alt.value(-8), text="text:N"),
        ]
    return finished(*layers, lines, bars, points.mark_point(**POINT))


def _places_at_k(trained: pd.DataFrame, of_warmup: pd.Series, last_k: int, reach: int) -> pd.Series:
    """Return the horizontal place of each mark: side by side at one K; right of the last K if K is not of a warm-up."""
    series = list(dict.fromkeys(trained.loc[of_warmup, "series"]))
    middle = (len(series) - 1) / 2
    offsets = {name: 0.007 * (i - middle) for i, name in enumerate(series)}
    at_k = trained["K"] + trained["series"].map(offsets) * reach
    others = list(dict.fromkeys(trained.loc[~of_warmup, "policy"]))
    step = min(0.11, 0.8 / max(1, len(others)))
    places = {policy: last_k + (0.16 + step * i) * reach for i, policy in enumerate(others)}
    right_of_warmup = trained["policy"].map(places) + trained.groupby("policy").cumcount() * 0.02 * reach
    return at_k.where(of_warmup, right_of_warmup)


def accuracy_by_hours(main: pd.DataFrame, styles: Styles) -> Spec:
    rows = drawn(main.dropna(subset=["device_hours"]), styles)
    unit, factor = time_unit(rows["device_hours"].max())
    rows = rows.assign(cost=rows["device_hours"] * factor)
    base = rows["policy"] == "base"
    joined = _curves(rows[~base], rows[base])
    span = 1.15 * float(rows["cost"].max()) or 1  # room for the last label
    low, high = _range(rows)
    rows = side_by_side(rows, span, high - low)
    axis = alt.Axis(grid=False, tickCount=5, format="~s")
    scale = alt.Scale(domain=[0, span], nice=False)
    x = alt.X("at:Q", title=f"device-{unit} per seed", axis=axis, scale=scale)
    y = _accuracy_axis(rows)
    channels = series_channels(legend(rows, styles), dash=False)
    lines = alt.Chart(joined.assign(at=joined["cost"])).mark_line(strokeWidth=1.3)
    labels = rows["name"].where(rows["policy"] == "base", "K=" + rows["K"].astype(str))
    texts = alt.Chart(rows.assign(label=labels)).encode(x=x, y=y, text="label:N")
    bars = alt.Chart(rows).mark_rule(strokeWidth=1.5)
    points = alt.Chart(rows).mark_point(**POINT)
    return finished(
        lines.encode(x=x, y=y, color=channels["color"], order="K:Q"),
        *outlined(texts, align="left", dx=8, opacity=alt.ExprRef(f"width < {NARROW} ? 0 : 1")),
        bars.encode(x=x, color=channels["color"], **_interval(rows)),
        points.encode(x=x, y=y, tooltip=_tooltip(rows), **channels),
    )


def side_by_side(rows: pd.DataFrame, span: float, height: float) -> pd.DataFrame:
    occupied: list[tuple[float, float]] = []
    for cost, accuracy in zip(rows["cost"], rows["accuracy"], strict=True):
        at = float(cost)
        while any(abs(at - x) < 0.012 * span and abs(accuracy - y) < 0.03 * height for x, y in occupied):
            at += 0.006 * span
        occupied.append((at, accuracy))
    return rows.assign(at=[at for at, _ in occupied])


def informativeness_by_k(harvest: pd.DataFrame, _: Styles | None = None) -> Spec:
    first_size = harvest["group_size"].dropna().min()
    rows_of_size = harvest[harvest["group_size"].isna() | (harvest["group_size"] == first_size)]
    metrics = {"pairability": "pairability ρ", "entropy": "entropy H (bits)", "mid_band": "middle band μ"}
    by_metric = {name: numbered_style(i, name, OKABE_ITO[i]) for i, name in enumerate(metrics.values(), start=1)}
    parts = []
    for column, name in metrics.items():
        part = rows_of_size.reindex(columns=["K", column, f"{column}_low", f"{column}_high"])
        parts.append(part.set_axis(["K", "value", "low", "high"], axis=1).assign(series=name))
    rows = pd.concat(parts).dropna(subset=["value"])
    rows["interval"] = _between(rows["low"], rows["high"])
    ks = sorted(rows_of_size["K"].unique().tolist())
    margin = 0.04 * (ks[-1] - ks[0]) or 1
    around = alt.Scale(domain=[ks[0] - margin, ks[-1] + margin], nice=False, zero=False)
    title = "GRPO warm-up steps K"
    if harvest["group_size"].nunique() > 1:
        title += f" (G={first_size:g})"
    x = alt.X("K:Q", title=title, axis=alt.Axis(values=ks, grid=False), scale=around)
    scale = alt.Scale(domain=[0, 1])
    y = alt.Y("value:Q", title="share (ρ, μ) or bits (H)", scale=scale)
    tooltip = tips({"series": None, "K": "", "value": ".3f", "interval": None}, series="metric")
    channels = series_channels(by_metric)
    base = alt.Chart(rows).encode(x=x, y=y, tooltip=tooltip, **channels)
    layers = [base.mark_line(), base.mark_point(filled=True, size=80, opacity=1)]
    bounded = rows.dropna(subset=["low", "high"])
    if len(bounded):
        bars = alt.Chart(bounded).mark_rule(strokeWidth=1.5)
        ends = {"y": alt.Y("low:Q", scale=scale), "y2": "high:Q"}
        layers.insert(0, bars.encode(x=x, color=channels["color"], **ends))
    return finished(*layers)


def difficulty_by_level(calibration: pd.DataFrame, _: Styles | None = None) -> Spec:
    kinds = {"all_wrong_share": "never right", "pairable_share": "pairable", "all_correct_share": "always right"}
    rows = calibration.melt(id_vars=["levels", "selected", "n", "pass_at_1"], value_vars=list(kinds), var_name="kind")
    rows = rows.assign(prompts=rows["kind"].map(kinds), order=rows["kind"].map(list(kinds).index))
    shown = {"levels": None, "prompts": None, "value": ".1%", "pass_at_1": ".1%", "n": "", "selected": None}
    chart = _stacked(rows).encode(
        y=alt.Y("levels:N", title="level", sort=list(calibration["levels"])),
        x=alt.X("value:Q", title="share of prompts", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        color=alt.Color("prompts:N", title=None, scale=named_scale(kinds.values(), ["#1f4b7d", "#7f9fc6", "#e3e9f1"])),
        tooltip=tips(shown, value="share", pass_at_1="pass@1"),
    )
    return finished(chart, height=ROW_HEIGHT * len(calibration))


def cost_by_stage(cost: pd.DataFrame, _: Styles | None = None) -> Spec:
    rows = cost.assign(name=names(cost))
    seeds = rows.groupby("name", sort=False)["seed"].nunique().clip(lower=1)
    hours = rows.groupby(["name", "stage"], sort=False)["device_hours"].sum().reset_index()
    hours["device_hours"] /= hours["name"].map(seeds)
    unit, factor = time_unit(hours.groupby("name")["device_hours"].sum().max())
    present = set(hours["stage"])
    stages = [stage for stage in dict.fromkeys([*GPU_STAGES, *hours["stage"]]) if stage in present]
    colors = [STAGE_COLORS.get(stage, "#bbbbbb") for stage in stages]
    hours = hours.assign(time=hours["device_hours"] * factor, order=hours["stage"].map(stages.index))
    chart = _stacked(hours).encode(
        y=alt.Y("name:N", title=None, sort=list(seeds.index), axis=alt.Axis(labelLimit=NAME_LIMIT)),
        x=alt.X("time:Q", title=f"device-{unit} per seed"),
        color=alt.Color("stage:N", title=None, scale=alt.Scale(domain=stages, range=colors)),
        tooltip=tips({"name": None, "stage": None, "time": ".3g"}, time=unit),
    )
    return finished(chart, height=ROW_HEIGHT * len(seeds))


def differences_of_k(comparisons: pd.DataFrame, _: Styles | None = None) -> Spec | None:
    """Draw the primary comparisons: DPO at each K against K=0."""
    return differences(comparisons[comparisons["family"] == PRIMARY])


def other_differences(comparisons: pd.DataFrame, _: Styles | None = None) -> Spec | None:
    return differences(comparisons[comparisons["family"] != PRIMARY])


def differences(comparisons: pd.DataFrame) -> Spec | None:
    if comparisons.empty:
        return None
    reference = comparisons[["reference", "reference_K", "reference_group_size"]]
    reference.columns = pd.Index(["policy", "K", "group_size"])
    rows = comparisons.rename(columns={"ci_low": "low", "ci_high": "high", "p_value": "p"})
    pairs = zip(names(rows), names(reference), strict=True)
    rows = rows.assign(name=[f"{policy} \N{MINUS SIGN} {other}" for policy, other in pairs])
    two_lines = r"split(replace(datum.label, ' − ', '\n− '), '\n')"
    axis = alt.Axis(
        labelLimit=320,
        labelExpr=f"width < {NARROW} ? {two_lines} : datum.label",
        labelLineHeight=12,
        labelOffset=alt.ExprRef(f"width < {NARROW} ? -6 : 0"),
    )
    rows = rows[["name", "family", "difference", "low", "high", "p"]]
    shown = {"name": None, "family": None, **dict.fromkeys(("difference", "low", "high"), "+.1%"), "p": ".2g"}
    chart = alt.Chart(rows).encode(
        y=alt.Y("name:N", title=None, sort=None, axis=axis),
        x=alt.X("low:Q", title="difference in accuracy", axis=alt.Axis(format="+.0%", tickCount=4)),
        tooltip=tips(shown),
    )
    return finished(
        dashed_line("x"),
        chart.mark_rule(strokeWidth=2).encode(x2="high:Q"),
        chart.mark_point(filled=True, size=80, opacity=1, color="black").encode(x="difference:Q"),
        height=ROW_HEIGHT * max(len(rows), 2),
    )


def gains(decomposition: pd.DataFrame, _: Styles | None = None) -> Spec | None:
    """Draw a waterfall per policy from M0's accuracy by finishing, format and reasoning; None without a gain.

    A black line is the policy's accuracy, a dashed line M0's.
    """
    rows = decomposition.dropna(subset=["gain"])
    if rows.empty:
        return None
    rows = rows.assign(name=names(rows), base=rows["accuracy"] - rows["gain"])
    long = []
    start = rows["base"]
    for column in map(str, rows):
        if f"{column}_low" not in rows:
            continue
        end = start + rows[column]
        part = rows[["name", "gain"]].assign(factor=column.removeprefix("from_"), points=rows[column])
        bounds = {"low": start + rows[f"{column}_low"], "high": start + rows[f"{column}_high"]}
        long.append(part.assign(start=start, end=end, **bounds))
        start = end
    bars = pd.concat(long)
    factors = list(dict.fromkeys(bars["factor"]))
    policies = list(dict.fromkeys(rows["name"]))
    y = alt.Y(
        "name:N", title=None, sort=policies, axis=alt.Axis(labelLimit=NAME_LIMIT), scale=alt.Scale(paddingInner=0.25)
    )
    within = alt.YOffset("factor:N", sort=factors)
    reach = bars[["start", "end", "low", "high"]].to_numpy(dtype=float)
    margin = 0.03 * (reach.max() - reach.min()) or 0.01
    domain = [float(reach.min() - margin), float(reach.max() + margin)]
    scale = alt.Scale(domain=domain, zero=False, nice=False)

    def x(column: str) -> alt.X:
        return alt.X(f"{column}:Q", title=ACCURACY, axis=alt.Axis(format=".1~%", tickCount=6), scale=scale)

    color = alt.Color("factor:N", title=None, sort=factors, scale=named_scale(factors, OKABE_ITO[1:]))
    shown = tips({"name": None, "factor": None, "points": "+.1%", "gain": "+.1%"})
    chart = alt.Chart(bars).encode(y=y, yOffset=within)
    steps = chart.mark_bar(stroke="#1b1f23", strokeWidth=0.6)
    base = alt.Chart(rows.head(1)).mark_rule(strokeDash=[5, 3], color="#333").encode(x=x("base"))
    reached = alt.Chart(rows).mark_tick(color="black", thickness=2.5, height=ROW_HEIGHT)
    return finished(
        steps.encode(x=x("start"), x2="end:Q", color=color, tooltip=shown),
        chart.mark_rule(strokeWidth=1).encode(x=x("low"), x2="high:Q"),
        reached.encode(y=y, x=x("accuracy"), tooltip=tips({"name": None, "accuracy": ".1%"})),
        base,
        height=(ROW_HEIGHT + 6) * max(1, len(policies)),
    )


def pass_at_k(samples: pd.DataFrame, styles: Styles) -> Spec:
    rows = samples[(samples["measure"] == "pass") & samples["policy"].isin(POLICY_NAMES)]
    by_line = line_styles(rows, styles)
    rows = rows.assign(series=names(rows), interval=_between(rows["ci_low"], rows["ci_high"]))
    ks = sorted(rows["k"].unique().tolist())
    x = alt.X(
        "k:Q", title="number of samples k", axis=alt.Axis(values=ks, grid=False), scale=alt.Scale(type="log", base=2)
    )
    y = alt.Y("share:Q", title="pass@k", scale=alt.Scale(zero=False))
    shown = {"series": None, "k": "", "share": ".3f", "interval": None}
    tooltip = tips(shown, series="policy", share="pass@k", interval="95 %")
    lines = alt.Chart(rows).encode(x=x, y=y, tooltip=tooltip, **series_channels(by_line))
    return finished(lines.mark_line(), lines.mark_point(filled=True, size=60, opacity=1))


def course(training: pd.DataFrame, styles: Styles) -> Spec:
    rows = training.assign(series=[style.series for style in styles_of(training, styles)])
    measure = str(training["measure"].iloc[0])
    axis = alt.Axis(format="~s", grid=False, tickCount=5)
    x = alt.X("tokens:Q", title="tokens read in training", axis=axis)
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    seen = {"series": None, "step": "", "tokens": "~s", "value": ".3g", "value_low": ".3g", "value_high": ".3g"}
    tooltip = tips(seen, series="training", value=measure, value_low="lowest seed", value_high="highest seed")
    channels = series_channels(legend(training, styles))
    del channels["shape"]
    chart = alt.Chart(rows)
    seeds = chart.mark_area(opacity=0.18).encode(x=x, y="value_low:Q", y2="value_high:Q", color=channels["color"])
    mean = chart.mark_line().encode(x=x, y=y, tooltip=tooltip, **channels)
    return finished(seeds, mean, height=CURVE_HEIGHT)


def _stacked(rows: pd.DataFrame) -> alt.Chart:
    return alt.Chart(rows).mark_bar(stroke="white").encode(order="order:Q")


def _curves(trained: pd.DataFrame, base: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each curve: GRPO with several K starts at M0, G2D at DPO (K=0)."""
    curves = []
    for name, runs in trained[trained["policy"] == "grpo"].groupby("series"):
        if len(runs) > 1:
            curves.append(base.assign(series=name))
    at_zero = trained[trained["policy"] == "dpo"]
    begun = set(at_zero["series"])
    for name in dict.fromkeys(trained.loc[trained["policy"] == "g2d", "series"]):
        if name not in begun:
            curves.append(at_zero.assign(series=name))
    return pd.concat([*curves, trained])


def _range(main: pd.DataFrame) -> tuple[float, float]:
    low = float(main["ci_low"].min())
    high = float(main["ci_high"].max())
    margin = 0.06 * (high - low) or 0.02
    return max(0.0, low - margin), min(1.0, high + margin)


def _accuracy_axis(main: pd.DataFrame, column: str = "accuracy") -> alt.Y:
    scale = alt.Scale(domain=list(_range(main)), zero=False, nice=False)
    return alt.Y(f"{column}:Q", title=ACCURACY, scale=scale, axis=alt.Axis(format=".1~%", tickCount=6))


def _interval(main: pd.DataFrame) -> dict[str, alt.Y | str]:
    return {"y": _accuracy_axis(main, "ci_low"), "y2": "ci_high:Q"}


def _tooltip(rows: pd.DataFrame) -> list[alt.Tooltip]:
    columns = {"name": None, "policy": None, "K": "", "group_size": "", **SHARES, "device_hours": ".3g", "n_seeds": ""}
    return tips({name: digits for name, digits in columns.items() if name in rows})


def _between(low: pd.Series, high: pd.Series) -> list[str]:
    words = []
    for a, b in zip(low, high, strict=True):
        is_bounded = pd.notna(a) and pd.notna(b)
        words.append(f"{a:.3f} to {b:.3f}" if is_bounded else "")
    return words
