"""The page: one HTML file that opens from a disk without a network.

Its content security policy admits only our scripts, by digest, so markup that was not escaped by mistake does nothing.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import pandas as pd
import vl_convert
import yaml
from markupsafe import Markup

from g2d.grid.grid import Grid
from g2d.grid.policy import online_run
from g2d.plain import plain
from g2d.report import charts, summary, training_curves
from g2d.report.browsers import (
    PROBLEMS_PER_CONTROL,
    PROBLEMS_PER_SERIES,
    QUESTIONS_PER_BENCHMARK,
    Answered,
    Series,
    Story,
)
from g2d.report.cells import PageTable, cells_of
from g2d.report.markup import coded
from g2d.report.provenance import without_folders
from g2d.report.styles import Styles, series_styles
from g2d.report.vega import Spec
from g2d.report.win_rate_sentences import win_rate_sentences
from g2d.tables import all_tables
from g2d.tables.results import read_by_name

TEMPLATES = Path(__file__).parent / "templates"
FIRST_ROWS = 12  # rows of a long table before it is unfolded
VEGA_NOTICE = "/* Vega, Vega-Lite, Vega-Embed: (c) University of Washington Interactive Data Lab, BSD-3-Clause. */\n"


@dataclass(frozen=True)
class TableBlock:
    name: str
    title: str
    table: PageTable
    caption: Markup
    definitions: Mapping[str, Markup]  # columns and values
    href: str  # the CSV
    charts: Mapping[str, str]  # names of specifications, with titles
    more_charts: Mapping[str, str]  # shown on a click


OF_POLICIES = ("policies", "effect_left", "lost_losses", "untrained")  # parts of the provenance that grow with the grid


@dataclass(frozen=True)
class PageSection:
    name: str
    title: str
    entries: tuple[TableBlock, ...]
    stands_open: bool  # otherwise a click or a link opens it
    text: tuple[str, ...]  # sentences before the tables


@dataclass(frozen=True)
class EmbeddedFigure:
    name: str
    data: str  # URL
    href: str  # the SVG
    title: str
    caption: Markup


@dataclass(frozen=True)
class Harvests:
    """A series of the pair browser."""

    label: str
    reward: str | None  # another one than the verifier's
    shown: tuple[Story, ...]


def build(
    tables: Mapping[str, str | Path],
    figures: Mapping[str, str | Path],
    captions: Mapping[str, Mapping[str, Any]],
    grid: Grid,
    series: Sequence[Series],
    answered: Sequence[Answered],
    provenance: Mapping[str, Any],
    folder: str | Path,
    plan: str = "",
) -> str:
    """Return the page as HTML.

    Args:
        tables: CSV files by name, in order.
        captions: by name of the table or figure, from `g2d.tables.captions`.
        folder: folder of the page; links are relative to it.
        plan: `g2d.tables.dated_plan.plan_words`.
    """
    config = grid.config
    benchmarks = config.tested_benchmarks
    specs: dict[str, Spec] = {}
    styles = series_styles(grid)
    frames = {name: read_by_name(path) for name, path in tables.items()}
    caveats = {model: summary.model_caveats(model, config, provenance, frames) for model in config.models}
    panels = summary.panels(frames, grid, specs, styles, caveats)
    answered_benchmarks = {panel.answer.benchmark for panel in panels}
    entries = []
    for name, path in tables.items():
        definitions = {term: coded(text) for term, text in captions[name]["definitions"].items()}
        entries.append(
            TableBlock(
                name=name,
                title=all_tables.table(name).title,
                caption=coded(captions[name]["caption"]),
                definitions=definitions,
                href=_relative(path, folder),
                table=cells_of(frames[name]),
                charts=_charts_of(name, frames[name], specs, styles, _CHARTS.get(name)),
                more_charts=_charts_of(f"{name}/more", frames[name], specs, styles, _MORE_CHARTS.get(name)),
            )
        )
    scripts = [Markup(VEGA_NOTICE + vega_bundle()), Markup((TEMPLATES / "page.js").read_text(encoding="utf-8"))]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, finalize=_visible
    )
    return environment.get_template("page.html").render(
        policy=content_security_policy(scripts),
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        scripts=scripts,
        specs=Markup(json.dumps(specs, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")),
        first_rows=FIRST_ROWS,
        benchmarks=[name for name in benchmarks if name in answered_benchmarks],
        panels=panels,
        axes=summary.buttons(panels),
        several_models=len(config.models) > 1,
        config=config,
        sections=[_section(title, entries, frames) for title in all_tables.SECTIONS],
        figures=[_figure(name, path, captions[name]["caption"], folder) for name, path in figures.items()],
        series=[_harvests(entry, grid) for entry in series],
        answered=answered,
        questions_per_benchmark=QUESTIONS_PER_BENCHMARK,
        problems_per_series=PROBLEMS_PER_SERIES,
        problems_per_control=PROBLEMS_PER_CONTROL,
        plan=plan,
        trained_on=grid.any_runs["grpo"].other_reward,
        provenance=provenance,
        provenance_facts={key: value for key, value in provenance.items() if key not in OF_POLICIES},
        configuration=yaml.safe_dump(without_folders(config.identity), sort_keys=False),
    )


@functools.cache
def vega_bundle() -> str:
    major_minor = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return vl_convert.javascript_bundle(vl_version=major_minor).replace("</script", r"<\/script")  # type: ignore[call-arg]


def content_security_policy(scripts: Sequence[str]) -> str:
    """Allow these scripts, inline styles, because Vega writes style attributes, and no loading."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


Charts = tuple[list[str], Callable[[pd.DataFrame, Styles], Spec | None]]  # columns to group by; draws a group
_CHARTS: Mapping[str, Charts] = {  # by table
    "harvest": (["model"], lambda rows, _: charts.informativeness_by_k(rows)),
    "calibration": (["model"], lambda rows, _: charts.difficulty_by_level(rows)),
    "comparisons": (["model", "benchmark"], lambda rows, _: charts.differences_of_k(rows)),
    "decomposition": (["model", "benchmark"], lambda rows, _: charts.gains(rows)),
    "training": (["model", "measure"], training_curves.course),
    "samples": (["model", "benchmark"], charts.pass_at_k),
    "cost": (["model"], lambda rows, _: charts.cost_by_stage(rows)),
}
_MORE_CHARTS: Mapping[str, Charts] = {
    "comparisons": (["model", "benchmark"], lambda rows, _: charts.other_differences(rows)),
}


def _charts_of(
    prefix: str, table: pd.DataFrame, specs: dict[str, Spec], styles: Styles, drawn: Charts | None
) -> dict[str, str]:
    """Add the charts of a table to `specs`, and return their names with titles."""
    if drawn is None:
        return {}
    keys, draw = drawn
    names = {}
    for group, rows in table.groupby(keys, sort=False):
        title = ", ".join(map(str, group))
        spec = draw(rows, styles)
        if spec is not None:
            specs[f"{prefix}/{title}"] = spec
            names[f"{prefix}/{title}"] = title
    return names


def _section(title: str, entries: Sequence[TableBlock], frames: Mapping[str, pd.DataFrame]) -> PageSection:
    members = tuple(entry for entry in entries if all_tables.section_of(entry.name) == title)
    text: tuple[str, ...] = ()
    if title == all_tables.OPEN_ENDED and "win_rates" in frames:
        text = tuple(win_rate_sentences(frames["win_rates"]))
    return PageSection(title.lower().replace(" ", "-"), title, members, title == all_tables.OTHERS, text)


def _figure(name: str, path: str | Path, caption: str, folder: str | Path) -> EmbeddedFigure:
    encoded = base64.b64encode(Path(path).read_bytes()).decode()
    data = f"data:image/svg+xml;base64,{encoded}"
    return EmbeddedFigure(name, data, _relative(path, folder), all_tables.figure(name).title, coded(caption))


def _visible(value: Any) -> Any:
    return plain(value, lines=True) if type(value) is str else value


def _harvests(entry: Series, grid: Grid) -> Harvests:
    label = f"{entry.model}, seed {entry.seed}"
    if entry.group_size is not None:
        label += f", G={entry.group_size}"
    reward = grid.any_runs[online_run(entry.variant)].other_reward
    if reward:
        label += f", {entry.variant}: {reward}"
    return Harvests(label, reward, entry.shown)


def _relative(path: str | Path, folder: str | Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
