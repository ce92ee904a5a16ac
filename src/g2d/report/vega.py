"""Vega-Lite: theme, scales and series of all charts; and figures, the charts of the page as SVG with text as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from g2d.jobs.files import write_text
from g2d.report.styles import Style, Styles

Spec = dict[str, Any]  # a Vega-Lite specification, or a part of one

Channels = dict[str, alt.Color | alt.Shape | alt.StrokeDash]

HEIGHT = 320  # pixels

THEME: Spec = {
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


def named_scale(names: Iterable[str], values: Sequence[str]) -> alt.Scale:
    names = list(names)
    return alt.Scale(domain=names, range=[values[i % len(values)] for i in range(len(names))])


def series_channels(styles: Mapping[str, Style], dash: bool = True) -> Channels:
    """Return colour, shape and dash of each series, with one legend for all three."""
    order = list(styles)

    def scale(values: Sequence[object]) -> alt.Scale:
        return alt.Scale(domain=order, range=values)

    looks = styles.values()
    channels = {
        "color": alt.Color("series:N", title=None, sort=order, scale=scale([style.color for style in looks])),
        "shape": alt.Shape("series:N", title=None, sort=order, scale=scale([style.shape for style in looks])),
    }
    if dash:
        dashes = scale([list(style.dash) for style in looks])
        channels["strokeDash"] = alt.StrokeDash("series:N", title=None, sort=order, scale=dashes)
    return channels


def tips(columns: Mapping[str, str | None], **titles: str) -> list[alt.Tooltip]:
    """Return tooltips with the number formats of columns: None for texts, "" for unformatted numbers.

    `titles` has the titles of columns that differ from their names.
    """
    tooltips = []
    for name, digits in columns.items():
        kind = "N" if digits is None else "Q"
        title = titles.get(name, alt.Undefined)
        tooltips.append(alt.Tooltip(f"{name}:{kind}", format=digits or alt.Undefined, title=title))
    return tooltips


def dashed_line(axis: str) -> alt.Chart:
    line = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(strokeDash=[4, 4], color="#777")
    return line.encode(**{axis: "at:Q"})


def outlined(chart: alt.Chart, **placed: object) -> list[alt.Chart]:
    placed = {"baseline": "bottom", "dy": -3, "fontSize": 12} | placed
    outline = chart.mark_text(stroke="white", strokeWidth=4, strokeJoin="round", **placed)
    return [outline, chart.mark_text(**placed)]


def finished(*layers: alt.Chart, height: int = HEIGHT) -> Spec:
    chart = alt.layer(*layers) if len(layers) > 1 else layers[0]
    spec: Spec = chart.properties(width="container", height=height).to_dict()
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["config"] = THEME
    return spec


# ---------------------------------------------------------------------------------------------- figures as SVG

PANEL_WIDTH = 460  # pixels
OWN_LEGENDS = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")}
Panels = Mapping[str, Sequence[Spec]]  # model: panels from top to bottom


def panels(draw: Callable[..., Spec | None], table: pd.DataFrame, *more: Styles) -> Panels:
    specs: dict[str, list[Spec]] = {}
    for model, rows in table.groupby("model", sort=False):
        spec = draw(rows, *more)
        if spec is not None:
            specs[str(model)] = [spec]
    return specs


def below_each_other(upper: Panels, lower: Panels) -> Panels:
    return {model: [*upper.get(model, ()), *lower.get(model, ())] for model in {**upper, **lower}}


def save_figure(path: str | Path, panels: Panels, note: str | None, nothing: str) -> None:
    """Write a figure as SVG, with a note below its panels, or with `nothing` if it has no panel; bytes are
    reproducible."""
    blank: Spec = {"data": {"values": [{}]}, "mark": {"type": "text", "text": nothing}, "width": PANEL_WIDTH}
    columns = [_column(model, specs) for model, specs in panels.items()]
    datasets: dict[str, object] = {}
    for spec in chain.from_iterable(panels.values()):
        datasets.update(spec["datasets"])
    figure: Spec = {
        "hconcat": columns or [blank],
        "resolve": OWN_LEGENDS,
        "config": THEME | {"legend": THEME["legend"] | {"columns": 2}},
        "datasets": datasets,
    }
    if note:
        figure["title"] = {"text": note, "orient": "bottom", "anchor": "start", "fontSize": 10, "fontWeight": "normal"}
    write_text(path, vl_convert.vegalite_to_svg(figure))


def _column(model: str, specs: Sequence[Spec]) -> Spec:
    parts = ("layer", "mark", "encoding", "data", "height")
    panels = []
    for spec in specs:
        panel = {key: spec[key] for key in parts if key in spec}
        panel["width"] = PANEL_WIDTH
        panels.append(panel)
    return {"title": model, "vconcat": panels, "resolve": OWN_LEGENDS}
