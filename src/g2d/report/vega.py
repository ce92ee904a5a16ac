"""What the interactive figures are put together from: one theme, and series that differ by colour, shape and dash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

HEIGHT = 320  # pixels
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#007F5F", "#8A4F7D"
COLORS = [BLUE, VERMILION, GREEN, PURPLE]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]]

THEME: dict[str, Any] = {
    "font": "system-ui, sans-serif",
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "gridColor": "#e6e6e6"},
    "legend": {"labelFontSize": 12, "titleFontSize": 12, "orient": "bottom", "symbolSize": 90, "columns": 2},
    "view": {"stroke": None},
}

Spec = dict[str, Any]


def padded(ks: Sequence[int]) -> alt.Scale:
    """An axis over the values of K, with some room at its ends."""
    margin = 0.04 * (ks[-1] - ks[0]) or 1 if ks else 1
    return alt.Scale(domain=[ks[0] - margin, ks[-1] + margin] if ks else [0, 1], nice=False, zero=False)


def named_scale(names: Iterable[str], values: Sequence[Any]) -> alt.Scale:
    """A scale that gives every name a value, in turn."""
    names = list(names)
    return alt.Scale(domain=names, range=[values[i % len(values)] for i in range(len(names))])


def series_color(names: Sequence[str]) -> alt.Color:
    """The colour of each series."""
    return alt.Color("series:N", title=None, scale=named_scale(names, COLORS))


def series_channels(names: Sequence[str], dash: bool = True) -> dict[str, Any]:
    """Colour, shape and dash for each series, with one legend for all three."""
    channels: dict[str, Any] = {
        "color": series_color(names),
        "shape": alt.Shape("series:N", title=None, scale=named_scale(names, SHAPES)),
    }
    if dash:
        # Moved on by one where colours begin again, so that no two of sixteen have both in common.
        dashes = [DASHES[(i + i // len(COLORS)) % len(DASHES)] for i in range(len(names))]
        channels["strokeDash"] = alt.StrokeDash("series:N", title=None, scale=named_scale(names, dashes))
    return channels


def outlined(chart: alt.Chart, **placed: Any) -> list[alt.Chart]:
    """Text on a white outline, so that it can be read on top of lines."""
    placed = {"baseline": "bottom", "dy": -3, "fontSize": 12} | placed
    return [chart.mark_text(stroke="white", strokeWidth=4, strokeJoin="round", **placed), chart.mark_text(**placed)]


def finished(*layers: Any, height: int = HEIGHT) -> Spec:
    """The specification of these layers, as wide as its place in the page."""
    chart = alt.layer(*layers) if len(layers) > 1 else layers[0]
    spec: Spec = chart.properties(width="container", height=height).to_dict()
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["config"] = THEME
    return spec
