"""The page: one HTML file that opens from a disk without a network.

Its content security policy admits only our scripts, by digest, so markup that was not escaped by mistake does nothing.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import altair as alt
import jinja2
import pandas as pd
import vl_convert
import yaml
from markupsafe import Markup

from g2d.grid.grid import Grid
from g2d.grid.runs import online_run
from g2d.plain import visible, without_folders
from g2d.report import summary
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
from g2d.report.provenance import Provenance
from g2d.report.sentences import exploratory_tests, win_rate_sentences
from g2d.report.styles import Styles, series_styles
from g2d.report.vega import Spec
from g2d.tables.all_tables import OPEN_ENDED, OTHERS, SECTIONS, figure, table
from g2d.tables.captions import Caption
from g2d.tables.results import read_by_name

TEMPLATES = Path(__file__).parent / "templates"
FIRST_ROWS = 12  # rows of a long table before it is unfolded
VEGA_NOTICE = "/* Vega, Vega-Lite, Vega-Embed: (c) University of Washington Interactive Data Lab, BSD-3-Clause. */\n"
OF_POLICIES = ("policies", "effect_left", "lost_losses", "untrained")  # parts of the provenance that grow with the grid


@dataclass(frozen=True)
class TableBlock:
    """A table with its charts and caption."""

    name: str
    title: str
    table: PageTable | None  # None if the page only links the CSV
    caption: Markup
    definitions: Mapping[str, Markup]  # columns and values
    href: str  # the CSV
    charts: Mapping[str, str]  # titles by name of the specification
    folded_charts: Mapping[str, str]  # shown on a click


@dataclass(frozen=True)
class PageSection:
    name: str
    title: str
    tables: tuple[TableBlock, ...]
    stands_open: bool  # otherwise a click or a link opens it
    sentences: tuple[str, ...]  # before the tables


@dataclass(frozen=True)
class EmbeddedFigure:
    name: str
    data: str  # URL
    href: str  # the SVG
    title: str
    caption: Markup


@dataclass(frozen=True)
class HarvestSeries:
    """A series of the pair browser."""

    label: str
    reward: str | None  # another one than the verifier's
    shown: tuple[Story, ...]


def build(
    tables: Mapping[str, str | Path],
    figures: Mapping[str, str | Path],
    captions: Mapping[str, Caption],
    grid: Grid,
    series: Sequence[Series],
    answered: Sequence[Answered],
    provenance: Provenance,
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
    styles = series_styles(grid)
    frames = {name: read_by_name(path) for name, path in tables.items()}
    specs: dict[str, Spec] = {}

    caveats = {model: summary.model_caveats(model, config, provenance, frames) for model in config.models}
    panels = summary.panels(frames, grid, specs, styles, caveats)
    answered_benchmarks = {panel.answer.benchmark for panel in panels}

    blocks = []
    for name, path in tables.items():
        if frames[name].empty:
            continue
        block = _table_block(name, frames[name], captions[name], _relative(path, folder), specs, styles)
        blocks.append(block)

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, finalize=visible
    )
    scripts = [Markup(VEGA_NOTICE + vega_bundle()), Markup((TEMPLATES / "page.js").read_text(encoding="utf-8"))]
    return environment.get_template("page.html").render(
        policy=content_security_policy(scripts),
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        config=config,
        # The answer, and the experiment below it.
        benchmarks=[name for name in config.tested_benchmarks if name in answered_benchmarks],
        several_models=len(config.models) > 1,
        panels=panels,
        axes=summary.buttons(panels),
        plan=plan,
        trained_on=grid.reward_words,
        # Tables and figures.
        sections=[_section(title, blocks, frames) for title in SECTIONS],
        first_rows=FIRST_ROWS,
        figures=[_figure(name, path, captions[name]["caption"], folder) for name, path in figures.items()],
        # Browsers.
        answered=answered,
        questions_per_benchmark=QUESTIONS_PER_BENCHMARK,
        series=[_harvest_series(one, grid) for one in series],
        problems_per_series=PROBLEMS_PER_SERIES,
        problems_per_control=PROBLEMS_PER_CONTROL,
        # Provenance.
        provenance=provenance,
        provenance_facts={key: value for key, value in provenance.items() if key not in OF_POLICIES},
        configuration=yaml.safe_dump(without_folders(config.identity), sort_keys=False),
        # Code and data of the charts.
        specs=Markup(json.dumps(specs, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")),
        scripts=scripts,
    )


@functools.cache
def vega_bundle() -> str:
    major_minor = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return vl_convert.javascript_bundle(vl_version=major_minor).replace("</script", r"<\/script")  # type: ignore[call-arg]


def content_security_policy(scripts: Sequence[str]) -> str:
    """Allow these scripts, inline styles, because Vega writes style attributes, and no loading."""
    allowed = []
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        allowed.append(f"'sha256-{digest}'")
    return (
        f"default-src 'none'; script-src {' '.join(allowed)}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _table_block(
    name: str, frame: pd.DataFrame, caption: Caption, href: str, specs: dict[str, Spec], styles: Styles
) -> TableBlock:
    """Return a table of the page; specifications of its charts are added to `specs`."""
    words = caption["caption"]
    if name == "comparisons":
        words += f" {exploratory_tests(frame)}"
    charts: dict[str, str] = {}
    folded_charts: dict[str, str] = {}
    for chart in table(name).charts:
        module, function = chart.function.split(":")
        draw = getattr(import_module(f"g2d.report.{module}"), function)
        titles = folded_charts if chart.folded else charts
        for group, rows in frame.groupby(chart.by.split(), sort=False):
            spec = draw(rows, styles)
            if spec is not None:
                title = ", ".join(map(str, group))
                spec_name = f"{name}/{function}/{title}"
                specs[spec_name] = spec
                titles[spec_name] = title
    return TableBlock(
        name=name,
        title=table(name).title,
        table=cells_of(frame) if table(name).printed else None,
        caption=coded(words),
        definitions={term: coded(text) for term, text in caption["definitions"].items()},
        href=href,
        charts=charts,
        folded_charts=folded_charts,
    )


def _section(title: str, blocks: Sequence[TableBlock], frames: Mapping[str, pd.DataFrame]) -> PageSection:
    sentences: list[str] = []
    if title == OPEN_ENDED and "win_rates" in frames:
        sentences = win_rate_sentences(frames["win_rates"])
    return PageSection(
        name=title.lower().replace(" ", "-"),
        title=title,
        tables=tuple(block for block in blocks if table(block.name).section == title),
        stands_open=title == OTHERS,
        sentences=tuple(sentences),
    )


def _figure(name: str, path: str | Path, caption: str, folder: str | Path) -> EmbeddedFigure:
    encoded = base64.b64encode(Path(path).read_bytes()).decode()
    return EmbeddedFigure(
        name=name,
        data=f"data:image/svg+xml;base64,{encoded}",
        href=_relative(path, folder),
        title=figure(name).title,
        caption=coded(caption),
    )


def _harvest_series(series: Series, grid: Grid) -> HarvestSeries:
    label = f"{series.model}, seed {series.seed}"
    if series.group_size is not None:
        label += f", G={series.group_size}"
    reward = grid.runs[series.model][online_run(series.variant)].other_reward
    if reward:
        label += f", {series.variant}: {reward}"
    return HarvestSeries(label, reward, series.shown)


def _relative(path: str | Path, folder: str | Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
