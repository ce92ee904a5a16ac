"""Figures as files: the charts of the page, a panel per model, as SVG with text as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import pandas as pd
import vl_convert

from g2d.jobs.files import write_text
from g2d.report.styles import Styles
from g2d.report.vega import THEME, Spec

WIDTH = 460  # pixels, of a panel
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
    blank: Spec = {"data": {"values": [{}]}, "mark": {"type": "text", "text": nothing}, "width": WIDTH}
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
        panel["width"] = WIDTH
        panels.append(panel)
    return {"title": model, "vconcat": panels, "resolve": OWN_LEGENDS}
