"""Accuracy against cost over all regimes: the chart, and the tests of `frontier.csv` in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from g2d.analysis.frontier import BEATEN, CHEAPEST, ON, OPEN
from g2d.report.charts import SHARES, against_cost
from g2d.report.marks import Marks, drawn, names
from g2d.report.phrases import at_most, listed, points_of, these_weights
from g2d.report.vega import Spec, tips
from g2d.tables.frontier import AXES

BUTTONS = {  # names of the axes on the page's switch
    "tokens_generated": "tokens",
    "updates": "gradient steps",
    "paper_hours": "paper's rates",
    "critical_path_hours": "critical path",
    "gpu_energy_kwh": "energy",
    "money": "money",
}
TITLES = {
    "tokens_generated": "tokens generated per seed",
    "updates": "gradient steps per seed, online and offline",
    "device_hours": "device-hours per seed",
    "paper_hours": "device-hours at the paper's rates (7-8B model, one A100)",
    "critical_path_hours": "hours with as many devices as can be used",
    "gpu_energy_kwh": "kWh of the GPUs per seed",
}
MOST = 3  # policies named in one sentence
_DRAWN = ["policy", "K", "group_size", "cost", "accuracy", "ci_low", "ci_high", "status", "chance", "cheapest_enough"]


def picture(rows: pd.DataFrame, known: Marks) -> Spec:
    """Every policy at its cost and accuracy, faint where it is dominated; dashed, the highest accuracy so far.

    Args:
        rows: of `frontier.csv`, one model, benchmark and axis.
    """
    policies = drawn(rows[_DRAWN], known)
    shown = {"name": None, "status": None, "cost": ".3~s", **SHARES, "chance": ".0%"}
    tooltip = tips(shown, name="policy", cost=_title(rows), chance="chance to be on the frontier")
    faint = alt.condition(f"datum.status == '{BEATEN}'", alt.value(0.35), alt.value(1.0))
    ranked = policies.sort_values(["cost", "accuracy"])
    so_far = ranked.assign(at=ranked["cost"], accuracy=ranked["accuracy"].cummax())
    line = alt.Chart(so_far).mark_line(interpolate="step-after", strokeDash=[5, 3], color="#777", strokeWidth=1.5)
    return against_cost(
        policies,
        _title(rows),
        known,
        tooltip,
        named=policies["status"].isin([ON, CHEAPEST]) | policies["cheapest_enough"],
        under=[line],
        opacity=faint,
    )


def sentences(rows: pd.DataFrame) -> tuple[str, ...]:
    """The frontier of the first axis, the cheapest policy that is good enough, and where other axes disagree.

    Args:
        rows: of `frontier.csv`, one model and benchmark.
    """
    axes = list(dict.fromkeys(rows["axis"]))
    first = rows[rows["axis"] == axes[0]].assign(name=names).sort_values("cost", kind="stable")
    weights = these_weights(int(first["n_seeds"].max()))
    return (_on_frontier(first, weights), _good_enough(first, weights), *_other_axes(rows, axes, weights))


def _on_frontier(rows: pd.DataFrame, weights: str) -> str:
    by_status = {status: list(rows.loc[rows["status"] == status, "name"]) for status in (ON, BEATEN, OPEN, CHEAPEST)}
    tested = by_status[ON] + by_status[BEATEN] + by_status[OPEN]
    if not tested:
        return f"There is nothing to compare by {_cost(rows)}: no policy cost as much as another or less."
    on = by_status[ON]
    said = (
        f"By {_cost(rows)}, {listed(on)} {_are(len(on))} on the frontier{weights}: better than each policy that is not "
        "shown to cost more"
        if on
        else f"By {_cost(rows)}, no policy is shown to be better than each that is not shown to cost more{weights}"
    )
    said += f" ({by_status[CHEAPEST][0]}, the cheapest, has no cheaper one beside it)." if by_status[CHEAPEST] else "."
    beaten = rows[rows["status"] == BEATEN].sort_values("beaten", kind="stable")
    called = dict(zip(_keys(rows), rows["name"], strict=True))
    by = _keys(beaten, "beaten_by", "beaten_by_K", "beaten_by_group_size")
    lost = [
        f"{row['name']} by {called[key]}, {points_of(row, 'beaten')}"
        for row, key in zip(beaten.to_dict("records")[:MOST], by, strict=False)
    ]
    more = f"; and {len(beaten) - MOST} more" if len(beaten) > MOST else ""
    which = f": {'; '.join(lost)}{more} (two-sided 95 %, all at once)" if lost else ""
    n_open = len(by_status[OPEN])
    undecided = f"; {n_open} {_are(n_open)} open (neither is shown)" if n_open else ""
    return (
        f"{said} {len(beaten)} of {len(tested)} policies {_are(len(beaten))} shown to be beaten by one that cost as "
        f"much or less{which}{undecided}."
    )


def _good_enough(rows: pd.DataFrame, weights: str) -> str:
    margin = f"{100 * float(rows['margin'].iloc[0]):g} points"
    cheapest = rows[rows["cheapest_enough"]]
    if cheapest.empty:
        nearest = rows.sort_values("margin_shown").to_dict("records")[0]
        return (
            f"No policy is shown to be less than {margin} worse than the best{weights}; {nearest['name']} comes "
            f"nearest, at most {at_most(nearest['margin_shown'])} points worse (one-sided 95 %, all at once)."
        )
    shown = [
        f"{row['name']}, {100 * row['accuracy']:.1f} % for {_amount(row['cost'])}{_cost_interval(row)} {_cost(rows)}, "
        f"at most {at_most(row['margin_shown'])} points worse"
        for row in cheapest.to_dict("records")
    ]
    what = f"that is shown to be less than {margin} worse than any other{weights}, whatever that cost,"
    end = "(one-sided 95 %, all at once)."
    if len(shown) == 1:
        return f"The cheapest policy {what} is {shown[0]} {end}"
    what = what.replace("that is", "that are")
    return f"The cheapest policies {what} are {'; '.join(shown)}; their costs are not shown to differ {end}"


def _other_axes(rows: pd.DataFrame, axes: Sequence[str], weights: str) -> tuple[str, ...]:
    """Whether axes that have the same policies agree on the frontier and on the cheapest policy that is good enough."""
    by_axis = {axis: rows[rows["axis"] == axis].assign(name=names) for axis in axes}
    known = {axis: own for axis, own in by_axis.items() if set(own["name"]) == set(by_axis[axes[0]]["name"])}
    if len(known) == 1:
        return ()
    on = {axis: listed(list(own.loc[own["status"] == ON, "name"])) or "none" for axis, own in known.items()}
    enough = {axis: listed(list(own.loc[own["cheapest_enough"], "name"])) or "none" for axis, own in known.items()}
    said = [
        f"{words} {_by_axis(found)}"
        for words, found in (("on the frontier", on), ("the cheapest good enough", enough))
        if len(set(found.values())) > 1
    ]
    if not said:
        return (f"All costs agree on both{weights}: {listed([AXES[axis] for axis in known])}.",)
    return (f"The costs disagree{weights}: {'; '.join(said)}.",)


def _by_axis(found: Mapping[str, str]) -> str:
    """Equal findings with the axes that have them."""
    said: dict[str, list[str]] = {}
    for axis, words in found.items():
        said.setdefault(words, []).append(AXES[axis])
    return ", ".join(f"by {listed(axes)} {words}" for words, axes in said.items())


def _keys(rows: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """(policy, K, group size) of every row, by default of its own policy."""
    known = rows[list(columns or ("policy", "K", "group_size"))]
    return [tuple(0 if pd.isna(value) else value for value in row) for row in known.to_dict("split")["data"]]


def _cost(rows: pd.DataFrame) -> str:
    return _title(rows).split(",")[0]


def _title(rows: pd.DataFrame) -> str:
    """What the axis of some rows counts."""
    first = rows.iloc[0]
    return f"{first['currency']} per seed" if first["axis"] == "money" else TITLES[str(first["axis"])]


def _cost_interval(row: Mapping[Any, Any]) -> str:
    return "" if pd.isna(row["cost_low"]) else f" [{_amount(row['cost_low'])}, {_amount(row['cost_high'])}]"


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
