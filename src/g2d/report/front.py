"""What the page begins with: the answer for every model and benchmark, its caveats and its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from g2d.report import charts, frontier, training
from g2d.report.answer import answers
from g2d.report.contamination import memory_warnings
from g2d.report.marks import Marks
from g2d.report.vega import Spec
from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.contamination import CONTAMINATION_COLUMNS
from g2d.tables.controls import CONTROL_COLUMNS
from g2d.tables.dynamics import COLLAPSE_COLUMNS
from g2d.tables.families import COMPARISON_COLUMNS
from g2d.tables.frames import read_table
from g2d.tables.frontier import FRONTIER_COLUMNS
from g2d.tables.margins import MARGIN_COLUMNS


def panels(
    tables: Mapping[str, str | Path], benchmarks: Sequence[str], specs: dict[str, Spec], known: Marks
) -> list[dict[str, Any]]:
    """The answer of every model and benchmark with its figures; what the frontier's tests say, where they were made."""
    main = read_table(tables["main"], MAIN_COLUMNS)
    comparisons = read_table(tables["comparisons"], COMPARISON_COLUMNS) if "comparisons" in tables else None
    standings = read_table(tables["frontier"], FRONTIER_COLUMNS) if "frontier" in tables else None
    controls = read_table(tables["controls"], CONTROL_COLUMNS) if "controls" in tables else None
    margins = read_table(tables["margins"], MARGIN_COLUMNS) if "margins" in tables else None
    continued = read_table(tables["contamination"], CONTAMINATION_COLUMNS) if "contamination" in tables else None
    collapses = read_table(tables["collapses"], COLLAPSE_COLUMNS) if "collapses" in tables else None
    found: list[dict[str, Any]] = []
    said_of = (answers(main, benchmark, comparisons, controls, margins) for benchmark in benchmarks)
    for entry in (entry for of_benchmark in said_of for entry in of_benchmark):
        rows = main[(main["model"] == entry.model) & (main["benchmark"] == entry.benchmark)]
        names = {"steps": f"{entry.model}/{entry.benchmark}/steps"}
        specs[names["steps"]] = charts.accuracy_by_k(rows, known)
        if rows["device_hours"].notna().any():
            names["hours"] = f"{entry.model}/{entry.benchmark}/hours"
            specs[names["hours"]] = charts.accuracy_by_hours(rows, known)
        said: tuple[str, ...] = ()
        if standings is not None:
            at = standings[(standings["model"] == entry.model) & (standings["benchmark"] == entry.benchmark)]
            for axis, of_axis in ((str(axis), part) for axis, part in at.groupby("axis", sort=False)):
                if axis in frontier.BUTTONS and len(of_axis) > 1:
                    names[axis] = f"{entry.model}/{entry.benchmark}/{axis}"
                    specs[names[axis]] = frontier.picture(of_axis, known)
            said = frontier.sentences(at) if len(at) else ()
        if collapses is not None:
            fallen = training.collapse_caveats(collapses, entry.model)
            entry = replace(entry, caveats=(*entry.caveats, *fallen))  # noqa: PLW2901
        if continued is not None:
            warnings = memory_warnings(continued, entry.model, entry.benchmark)
            entry = replace(entry, caveats=(*warnings, *entry.caveats))  # noqa: PLW2901
        found.append({"answer": entry, "charts": names, "frontier": said})
    return found


def buttons(panels: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The axes of cost that some panel has a picture of, and what the switch calls them."""
    return {axis: words for axis, words in frontier.BUTTONS.items() if any(axis in own["charts"] for own in panels)}
