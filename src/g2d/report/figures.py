"""The figures as files: the charts of the page, a panel per model, as SVG whose text stays text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import vl_convert

from g2d.jobs.files import write_text
from g2d.report import charts
from g2d.report.marks import Marks
from g2d.report.vega import THEME, Spec

WIDTH = 460  # pixels, of a panel
OWN_LEGENDS = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")}
Panels = Mapping[str, Sequence[Spec]]  # by model, from top to bottom


def accuracy_figure(main: pd.DataFrame, benchmark: str, known: Marks) -> Panels:
    """Figure 2: accuracy against warm-up steps K; see `charts.accuracy_by_k`.

    Raises:
        ValueError: the table has rows, but none for this benchmark.
    """
    return {model: [charts.accuracy_by_k(rows, known)] for model, rows in _models(_of_benchmark(main, benchmark))}


def informativeness_figure(main: pd.DataFrame, harvest: pd.DataFrame, benchmark: str, known: Marks) -> Panels:
    """Figure 3: accuracy above the harvest's H, mu and rho, against K.

    Raises:
        ValueError: the table has rows, but none for this benchmark.
    """
    answered = dict(_models(_of_benchmark(main, benchmark)))
    harvested = {model: [charts.informativeness_by_k(rows)] for model, rows in _models(harvest)}
    accuracy = {model: [charts.accuracy_by_k(rows, known)] for model, rows in answered.items()}
    return {
        model: accuracy.get(model, []) + harvested.get(model, []) for model in dict.fromkeys([*accuracy, *harvested])
    }


def gain_figure(decomposition: pd.DataFrame, benchmark: str) -> Panels:
    """Where each policy's gain over M0 comes from; see `charts.gains`.

    Raises:
        ValueError: the table has rows, but none for this benchmark.
    """
    rows = _of_benchmark(decomposition, benchmark)
    return {model: [charts.gains(own)] for model, own in _models(rows) if own["gain"].notna().any()}


def budget_figure(budgets: pd.DataFrame, benchmark: str, known: Marks) -> Panels:
    """Accuracy against the token budget; see `charts.budgets`.

    Raises:
        ValueError: the table has rows, but none for this benchmark.
    """
    return {model: [charts.budgets(own, known)] for model, own in _models(_of_benchmark(budgets, benchmark))}


def save_figure(path: str | Path, panels: Panels, note: str | None, nothing: str) -> None:
    """Write a figure as SVG; the same tables give the same bytes.

    Args:
        note: printed small below the panels.
        nothing: what the figure says without panels.
    """
    blank: Spec = {"data": {"values": [{}]}, "mark": {"type": "text", "text": nothing}, "width": WIDTH}
    columns = [_column(model, specs) for model, specs in panels.items()] or [blank]
    figure: Spec = {
        "hconcat": columns,
        "resolve": OWN_LEGENDS,
        "config": THEME | {"legend": THEME["legend"] | {"columns": 2}},
    }
    figure["datasets"] = {name: rows for specs in panels.values() for spec in specs for name, rows in _data(spec)}
    if note:
        figure["title"] = {"text": note, "orient": "bottom", "anchor": "start", "fontSize": 10, "fontWeight": "normal"}
    write_text(path, vl_convert.vegalite_to_svg(figure))


def _column(model: str, specs: Sequence[Spec]) -> Spec:
    parts = ("layer", "mark", "encoding", "data", "height")
    panels = [{key: spec[key] for key in parts if key in spec} | {"width": WIDTH} for spec in specs]
    return {"title": model, "vconcat": panels, "resolve": OWN_LEGENDS}


def _data(spec: Spec) -> Iterable[tuple[str, Any]]:
    return spec.get("datasets", {}).items()


def _models(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for model, own in rows.groupby("model", sort=False):
        yield str(model), own


def _of_benchmark(table: pd.DataFrame, benchmark: str) -> pd.DataFrame:
    """Rows of one benchmark; none if nothing was evaluated at all, as with recorded completions."""
    rows = table[table["benchmark"] == benchmark]
    if rows.empty and not table.empty:
        known = ", ".join(map(str, table["benchmark"].unique()))
        raise ValueError(f"the table has no rows for the benchmark {benchmark!r}: choose from {known}")
    return rows
