"""The interactive figures, as Vega-Lite specifications that draw themselves in the page.

They say what the printed figures of `figures` say, with values under the pointer. What differs by colour differs by
shape, dash or lightness too, so a grey print can be read. Each specification carries its own rows and is as wide as its
place in the page.
"""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from g2d.experiment.stages import RUNNING_ORDER
from g2d.report.panels import learning_curves, reference_lines
from g2d.report.vega import Spec, finished, named_scale, outlined, padded, series_channels, series_color

ROW_HEIGHT = 26  # pixels, of a bar
STEPS = ["#e3e9f1", "#b5c7de", "#7f9fc6", "#4a76a8", "#1f4b7d", "#0a2748"]  # light to dark


def accuracy_by_k(main: pd.DataFrame) -> Spec:
    """Accuracy against K with intervals; M0 and GRPO as labelled bands.

    Args:
        main: rows of Table 1 of one model and benchmark.
    """
    curves = [own.assign(series=f"GRPO alone, G={g}") for g, own in learning_curves(main).items()]
    trained = pd.concat([_trained(main), *curves])
    baselines = _baselines(main)
    y = _accuracy_axis(main)
    ks = sorted(int(k) for k in trained["K"].unique())
    x = alt.X("K:Q", title="GRPO warm-up steps K", axis=alt.Axis(values=ks, grid=False), scale=padded(ks))
    series = list(dict.fromkeys(trained["series"]))
    points = alt.Chart(trained).encode(x=x, y=y, tooltip=_tooltip(main), **series_channels(series))
    interval = {"y": _accuracy_axis(main, "ci_low"), "y2": "ci_high:Q"}
    bars = alt.Chart(trained).mark_rule(strokeWidth=1.5).encode(x=x, color=series_color(series), **interval)
    band = alt.Chart(baselines).mark_rect(opacity=0.13, color="#444").encode(**interval)
    line = alt.Chart(baselines).mark_rule(strokeDash=[5, 3], color="#333").encode(y=y, tooltip=_tooltip(baselines))
    names = outlined(
        alt.Chart(baselines).encode(x=alt.value("width"), y=_accuracy_axis(main, "label_at"), text="name:N"),
        align="right",
        dx=-3,
    )
    return finished(band, line, bars, points.mark_line(), points.mark_point(filled=True, size=90, opacity=1), *names)


def accuracy_by_hours(main: pd.DataFrame) -> Spec:
    """Accuracy against device-hours: one point per policy, DPO policies joined in the order of K.

    Args:
        main: rows of Table 1 of one model and benchmark.
    """
    known = main.dropna(subset=["device_hours"])
    baselines = known[known["policy"].isin(["base", "grpo"])]
    baselines = baselines.assign(series=baselines["policy"].map(_KINDS), name=_names(baselines))
    trained = _trained(known)
    called = trained["policy"].map({"dpo": "", "g2d": "", "g2d-auto": "auto, "}).fillna(trained["policy"] + ", ")
    rows = pd.concat([trained.assign(name=called + "K=" + trained["K"].astype(str)), baselines])
    unit, factor = _time_unit(rows["device_hours"].max())
    rows = rows.assign(time=rows["device_hours"] * factor)
    series = list(dict.fromkeys(rows["series"]))
    room = alt.Scale(domain=[0, 1.15 * float(rows["time"].max()) or 1], nice=False)  # for the last name
    x = alt.X("time:Q", title=f"device-{unit} per seed", axis=alt.Axis(grid=False, tickCount=5), scale=room)
    y = _accuracy_axis(main)
    color = series_color(series)
    joined = [rows[~rows["policy"].isin(["base", "grpo"])].assign(group="")]
    joined += [own.assign(series=_KINDS["grpo"], group=str(g)) for g, own in learning_curves(rows).items()]
    lines = alt.Chart(pd.concat(joined)).mark_line(strokeWidth=1.5)
    lines = lines.encode(x=x, y=y, color=color, detail="group:N", order="K:Q")
    bars = (
        alt.Chart(rows)
        .mark_rule(strokeWidth=1.5)
        .encode(x=x, y=_accuracy_axis(main, "ci_low"), y2="ci_high:Q", color=color)
    )
    points = alt.Chart(rows).mark_point(filled=True, size=90, opacity=1)
    channels = {"x": x, "y": y, "tooltip": _tooltip(rows), **series_channels(series, dash=False)}
    names = outlined(alt.Chart(rows).encode(x=x, y=y, text="name:N"), align="left", dx=8, dy=-6)
    return finished(lines, bars, points.encode(**channels), *names)


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
    x = alt.X("K:Q", title="GRPO warm-up steps K", axis=alt.Axis(values=ks, grid=False), scale=padded(ks))
    scale = alt.Scale(domain=[0, 1])
    y = alt.Y("value:Q", title="share, or bits for H", scale=scale)
    tooltip = [
        alt.Tooltip("series:N", title="metric"),
        alt.Tooltip("K:Q"),
        alt.Tooltip("value:Q", format=".3f"),
        alt.Tooltip("interval:N"),
    ]
    base = alt.Chart(rows).encode(x=x, y=y, **(series_channels(names) | {"tooltip": tooltip}))
    layers = [base.mark_line(), base.mark_point(filled=True, size=80, opacity=1)]
    bounded = rows.dropna(subset=["low", "high"])
    if len(bounded):
        bars = alt.Chart(bounded).mark_rule(strokeWidth=1.5)
        color = series_color(names)
        layers.insert(0, bars.encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=color))
    return finished(*layers)


def difficulty_by_level(calibration: pd.DataFrame) -> Spec:
    """Prompts of every level that M0 never, sometimes and always solves (Table 4).

    Args:
        calibration: rows of Table 4 of one model.
    """
    kinds = {"all_wrong_share": "never right", "pairable_share": "pairable", "all_correct_share": "always right"}
    rows = calibration.melt(id_vars=["levels", "selected", "n", "pass_at_1"], value_vars=list(kinds), var_name="kind")
    rows = rows.assign(prompts=rows["kind"].map(kinds), order=rows["kind"].map(list(kinds).index))
    chart = (
        alt.Chart(rows)
        .mark_bar(stroke="white")
        .encode(
            y=alt.Y("levels:N", title="level", sort=list(calibration["levels"])),
            x=alt.X("value:Q", title="share of prompts", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            color=alt.Color(
                "prompts:N", title=None, scale=named_scale(list(kinds.values()), [STEPS[4], STEPS[2], STEPS[0]])
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
    return finished(chart, height=ROW_HEIGHT * len(calibration))


def bill(cost: pd.DataFrame) -> Spec:
    """Device-hours of every policy by stage, mean over seeds.

    Args:
        cost: rows of the bill of one model.
    """
    rows = cost.assign(name=_names(cost))
    seeds = rows.groupby("name", sort=False)["seed"].nunique().clip(lower=1)
    hours = rows.groupby(["name", "stage"], sort=False)["device_hours"].sum().reset_index()
    hours["device_hours"] /= hours["name"].map(seeds)
    unit, factor = _time_unit(hours.groupby("name")["device_hours"].sum().max())
    order = RUNNING_ORDER
    stages = sorted(hours["stage"].unique(), key=lambda stage: order.index(stage) if stage in order else len(order))
    hours = hours.assign(time=hours["device_hours"] * factor, order=hours["stage"].map(stages.index))
    chart = (
        alt.Chart(hours)
        .mark_bar(stroke="white")
        .encode(
            y=alt.Y("name:N", title=None, sort=list(seeds.index), axis=alt.Axis(labelLimit=220)),
            x=alt.X("time:Q", title=f"device-{unit} per seed"),
            color=alt.Color("stage:N", title=None, scale=named_scale(stages, STEPS)),
            order="order:Q",
            tooltip=["name:N", "stage:N", alt.Tooltip("time:Q", title=unit, format=".3g")],
        )
    )
    return finished(chart, height=ROW_HEIGHT * len(seeds))


def gains(decomposition: pd.DataFrame) -> Spec:
    """Each policy's gain over M0, split into finishing, format and reasoning; a diamond marks the whole gain.

    Args:
        decomposition: rows of the decomposition of one model and benchmark.
    """
    rows = decomposition.dropna(subset=["gain"])
    rows = rows.assign(name=_names(rows))
    parts = [column for column in rows if f"{column}_low" in rows]
    long = rows.melt(id_vars=["name", "gain"], value_vars=parts, var_name="part", value_name="points")
    long = long.assign(factor=long["part"].str.removeprefix("from_"), order=long["part"].map(parts.index))
    shades = [STEPS[5], STEPS[3], STEPS[1]]
    names = list(dict.fromkeys(rows["name"]))
    y = alt.Y("name:N", title=None, sort=names, axis=alt.Axis(labelLimit=220))
    x = alt.X("points:Q", title="gain over M0 (diamond: all three together)", axis=alt.Axis(format=".1~%", tickCount=6))
    bars = (
        alt.Chart(long)
        .mark_bar(stroke="white")
        .encode(
            y=y,
            x=x,
            color=alt.Color("factor:N", title=None, scale=named_scale(dict.fromkeys(long["factor"]), shades)),
            order="order:Q",
            tooltip=[
                "name:N",
                "factor:N",
                alt.Tooltip("points:Q", format="+.1%"),
                alt.Tooltip("gain:Q", format="+.1%"),
            ],
        )
    )
    whole = (
        alt.Chart(rows)
        .mark_point(shape="diamond", size=70, filled=True, fill="white", stroke="black", strokeWidth=1.5, opacity=1)
        .encode(y=y, x=alt.X("gain:Q"), tooltip=["name:N", alt.Tooltip("gain:Q", format="+.1%")])
    )
    return finished(bars, whole, height=ROW_HEIGHT * max(1, len(names)))


# ------------------------------------------------------------------------------------------------------------- parts

CALLED = {"base": "M0", "dpo": "DPO", "g2d": "G2D", "g2d-auto": "G2D auto", "grpo": "GRPO"}
_KINDS = {"base": "M0", "grpo": "GRPO alone"}
METRICS = {"pairability": "pairability ρ", "entropy": "entropy H (bits)", "mid_band": "middle band μ"}


def _trained(main: pd.DataFrame) -> pd.DataFrame:
    """DPO and G2D by group size; K=0, which has none, starts every curve. A warm-up that stopped by itself is a series
    of one point, an entry of `regimes` a series by its name."""
    rows, auto = main[main["policy"].isin(["dpo", "g2d"])], main[main["policy"] == "g2d-auto"]
    sizes = sorted({int(size) for size in rows["group_size"].dropna()})
    curves = [rows[rows["group_size"].isna() | (rows["group_size"] == g)].assign(series=f"G2D, G={g}") for g in sizes]
    points = auto.assign(series=[f"G2D auto, G={g}" for g in auto["group_size"]])
    others = main[~main["policy"].isin(["base", "grpo", *rows["policy"], *auto["policy"]])]
    names = [
        policy if pd.isna(g) or len(sizes) < 2 else f"{policy}, G={g:.0f}" for policy, g in _policy_and_size(others)
    ]
    return pd.concat([*(curves or [rows.assign(series="DPO")]), points, others.assign(series=names)])


def _policy_and_size(rows: pd.DataFrame) -> Iterator[tuple[str, float]]:
    return zip(rows["policy"], rows["group_size"], strict=True)


def _baselines(main: pd.DataFrame, gap: float = 0.06) -> pd.DataFrame:
    """M0 and GRPO at its last K with the heights of their names, moved apart where two would overlap. Equal ones share
    a line."""
    rows = reference_lines(main)
    rows = (
        rows.assign(name=_names(rows))
        .groupby(["accuracy", "ci_low", "ci_high"], as_index=False)
        .agg({"name": "; ".join, "n_seeds": "first"})
    )
    low, high = _range(main)
    at, heights = float("-inf"), []
    for accuracy in rows["accuracy"]:
        at = max(accuracy, at + gap * (high - low))
        heights.append(at)
    return rows.assign(label_at=heights)


def _names(rows: pd.DataFrame) -> list[str]:
    """Policies as a reader calls them; G only where there are several."""
    several = rows["group_size"].nunique() > 1
    names = []
    for policy, k, size in zip(rows["policy"], rows["K"], rows["group_size"], strict=True):
        kind = CALLED.get(policy, policy)
        group = f", G={int(size)}" if several and not pd.isna(size) else ""
        names.append(kind if policy == "base" else f"{kind}, K={k}{group}")
    return names


def _time_unit(hours: float) -> tuple[str, int]:
    """The unit that suits a time, and how many of it make an hour."""
    return ("hours", 1) if hours >= 1 else ("minutes", 60) if hours >= 1 / 60 else ("seconds", 3600)


def _range(main: pd.DataFrame) -> tuple[float, float]:
    """The accuracies that the axis spans, a little more than the intervals."""
    low, high = float(main["ci_low"].min()), float(main["ci_high"].max())
    margin = 0.06 * (high - low) or 0.02
    return max(0.0, low - margin), min(1.0, high + margin)


def _accuracy_axis(main: pd.DataFrame, column: str = "accuracy") -> alt.Y:
    scale = alt.Scale(domain=list(_range(main)), zero=False, nice=False)
    return alt.Y(f"{column}:Q", title="accuracy (pass@1)", scale=scale, axis=alt.Axis(format=".1~%", tickCount=6))


def _tooltip(rows: pd.DataFrame) -> list[alt.Tooltip]:
    shares = {"accuracy": ".1%", "ci_low": ".1%", "ci_high": ".1%", "device_hours": ".3g"}
    columns = ("name", "policy", "K", "group_size", "accuracy", "ci_low", "ci_high", "device_hours", "n_seeds")
    return [
        alt.Tooltip(f"{c}:{'N' if c in ('name', 'policy') else 'Q'}", **({"format": shares[c]} if c in shares else {}))
        for c in columns
        if c in rows
    ]


def _metric(rows: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """One metric in long form, with its interval where the table has one."""
    missing = pd.Series(float("nan"), rows.index)
    low, high = (rows.get(f"{column}_{side}", missing) for side in ("low", "high"))
    frame = pd.DataFrame({"K": rows["K"], "series": name, "value": rows[column], "low": low, "high": high})
    known = frame["low"].notna() & frame["high"].notna()
    shown = [f"{a:.3f} to {b:.3f}" if k else "" for a, b, k in zip(frame["low"], frame["high"], known, strict=True)]
    return frame.assign(interval=shown)
