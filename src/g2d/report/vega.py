"""Parts of all Vega-Lite figures: theme, scales, and series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from g2d.report.styles import Style

HEIGHT = 320  # pixels

THEME: dict[str, Any] = {
    "font": "system-ui, sans-serif",
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "gridColor": "#e6e6e6"},
    "legend": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "orient": "bottom",
        "symbolSize": 90,
        "labelLimit": 260,
        "columns": {"expr": "max(1, floor(width / 210))"},
    },
    "view": {"stroke": None},
}

Spec = dict[str, Any]


def named_scale(names: Iterable[str], values: Sequence[Any]) -> alt.Scale:
    names = list(names)
    return alt.Scale(domain=names, range=[values[i % len(values)] for i in range(len(names))])


def series_channels(styles: Mapping[str, Style], dash: bool = True) -> dict[str, Any]:
    """Return colour, shape and dash of each series, with one legend for all three."""
    ranges: dict[str, tuple[Any, list[Any]]] = {
        "color": (alt.Color, [style.color for style in styles.values()]),
        "shape": (alt.Shape, [style.shape for style in styles.values()]),
        **({"strokeDash": (alt.StrokeDash, [list(style.dash) for style in styles.values()])} if dash else {}),
    }
    order = list(styles)
    return {
        name: channel("series:N", title=None, sort=order, scale=alt.Scale(domain=order, range=values))
        for name, (channel, values) in ranges.items()
    }


def tips(columns: Mapping[str, str | None], **titles: str) -> list[alt.Tooltip]:
    """Return tooltips: columns with number formats (None for texts, "" for unformatted numbers), and differing
    titles."""
    types = {name: "N" if digits is None else "Q" for name, digits in columns.items()}
    return [
        alt.Tooltip(f"{name}:{types[name]}", format=digits or alt.Undefined, title=titles.get(name, alt.Undefined))
        for name, digits in columns.items()
    ]


def dashed_line(axis: str) -> alt.Chart:
    line = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(strokeDash=[4, 4], color="#777")
    return line.encode(**{axis: "at:Q"})


def outlined(chart: alt.Chart, **placed: Any) -> list[alt.Chart]:
    placed = {"baseline": "bottom", "dy": -3, "fontSize": 12} | placed
    return [chart.mark_text(stroke="white", strokeWidth=4, strokeJoin="round", **placed), chart.mark_text(**placed)]


def finished(*layers: Any, height: int = HEIGHT) -> Spec:
    chart = alt.layer(*layers) if len(layers) > 1 else layers[0]
    spec: Spec = chart.properties(width="container", height=height).to_dict()
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["config"] = THEME
    return spec
