"""Accuracy against cost over all regimes: the picture, and what the tests of `frontier.csv` say in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from g2d.analysis.frontier import BEATEN, ON, OPEN
from g2d.report.charts import CALLED
from g2d.report.vega import Spec, finished, outlined, series_channels, series_color

BUTTONS = {  # what the page's switch calls an axis
    "tokens_generated": "tokens",
    "updates": "gradient steps",
    "paper_hours": "paper's rates",
    "critical_path_hours": "critical path",
}
TITLES = {
    "tokens_generated": "tokens generated per seed",
    "updates": "gradient steps per seed, online and offline",
    "device_hours": "device-hours per seed",
    "paper_hours": "device-hours at the paper's rates (7-8B model, one A100)",
    "critical_path_hours": "hours with as many devices as can be used",
}
_DRAWN = ["policy", "K", "cost", "accuracy", "ci_low", "ci_high", "status", "chance", "cheapest_enough"]
_SERIES = {"base": "M0", "dpo": "DPO and G2D", "g2d": "DPO and G2D", "grpo": "GRPO alone"}


def picture(rows: pd.DataFrame) -> Spec:
    """Every policy at its cost and accuracy, faint where it is beaten; dashed, the highest accuracy so far.

    Args:
        rows: of `frontier.csv`, one model, benchmark and axis.
    """
    axis = str(rows["axis"].iloc[0])
    named = rows[_DRAWN].assign(series=rows["policy"].map(_SERIES).fillna(rows["policy"]), name=names(rows))
    series = list(dict.fromkeys(named["series"]))
    room = alt.Scale(domain=[0, 1.12 * float(named["cost"].max()) or 1], nice=False)  # for the last name
    x = alt.X("cost:Q", title=TITLES[axis], axis=alt.Axis(grid=False, tickCount=5, format="~s"), scale=room)
    low, high = float(named["ci_low"].min()), float(named["ci_high"].max())
    scale = alt.Scale(domain=[max(0.0, low - 0.02), min(1.0, high + 0.02)], zero=False, nice=False)

    def y(column: str) -> alt.Y:
        return alt.Y(f"{column}:Q", title="accuracy (pass@1)", scale=scale, axis=alt.Axis(format=".1~%", tickCount=6))

    tooltip = [
        alt.Tooltip("name:N", title="policy"),
        alt.Tooltip("status:N"),
        alt.Tooltip("cost:Q", title=TITLES[axis], format=".3~s"),
        *[alt.Tooltip(f"{column}:Q", format=".1%") for column in ("accuracy", "ci_low", "ci_high")],
        alt.Tooltip("chance:Q", title="chance to be on the frontier", format=".0%"),
    ]
    faint = alt.condition(f"datum.status == '{BEATEN}'", alt.value(0.35), alt.value(1.0))
    ranked = named.sort_values(["cost", "accuracy"])
    so_far = ranked.assign(best=ranked["accuracy"].cummax())
    line = alt.Chart(so_far).mark_line(interpolate="step-after", strokeDash=[5, 3], color="#777", strokeWidth=1.5)
    bars = alt.Chart(named).mark_rule(strokeWidth=1.5)
    points = alt.Chart(named).mark_point(filled=True, size=90)
    called = named[(named["status"] == ON) | named["cheapest_enough"]]
    return finished(
        line.encode(x=x, y=y("best")),
        bars.encode(x=x, y=y("ci_low"), y2="ci_high:Q", color=series_color(series), opacity=faint),
        points.encode(x=x, y=y("accuracy"), tooltip=tooltip, opacity=faint, **series_channels(series, dash=False)),
        *outlined(alt.Chart(called).encode(x=x, y=y("accuracy"), text="name:N"), align="left", dx=8, dy=-6),
    )


def names(rows: pd.DataFrame) -> list[str]:
    """Policies as a reader calls them; G only where a regime has several."""
    several = set(rows.groupby("policy")["group_size"].nunique().loc[lambda n: n > 1].index)
    found = []
    for policy, k, size in zip(rows["policy"], rows["K"], rows["group_size"], strict=True):
        kind = CALLED.get(policy, policy)
        group = f", G={int(size)}" if policy in several and not pd.isna(size) else ""
        found.append(kind if policy == "base" else f"{kind} (K={k}{group})")
    return found


def sentences(rows: pd.DataFrame) -> tuple[str, ...]:
    """What is shown about the frontier, and the cheapest policy that is good enough.

    Args:
        rows: of `frontier.csv`, one model, benchmark and axis, of which the sentences speak.
    """
    rows = rows.assign(name=names(rows)).sort_values("cost", kind="stable")
    cost = TITLES[str(rows["axis"].iloc[0])].split(",")[0]
    shown = [name for name, status in zip(rows["name"], rows["status"], strict=True) if status == ON]
    beaten, undecided = (int((rows["status"] == status).sum()) for status in (BEATEN, OPEN))
    frontier = (
        f"By {cost}, {_listed(shown)} {_are(len(shown))} on the frontier: better than all that cost as much or less. "
        f"Of the other {beaten + undecided} policies, {beaten} {_are(beaten)} shown to be beaten by one that cost as "
        f"much or less, and {undecided} {_are(undecided)} open."
    )
    points = f"{100 * float(rows['margin'].iloc[0]):g} points"
    cheapest = rows[rows["cheapest_enough"]]
    if cheapest.empty:
        return (
            frontier,
            f"No policy is shown to be less than {points} worse than the best: that takes more questions or seeds.",
        )
    best = cheapest.iloc[0]
    return frontier, (
        f"The cheapest policy that is less than {points} worse than any other, at whatever cost, is {best['name']}, "
        f"{100 * best['accuracy']:.1f} % for {_amount(float(best['cost']))} {cost} (non-inferiority, corrected p = "
        f"{max(float(best['p_enough']), 0.001):.2g}{' or less' if best['p_enough'] < 0.001 else ''})."
    )


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
