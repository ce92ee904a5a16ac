"""The page of several runs: `g2d compare ... --page`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import yaml
from markupsafe import Markup

from g2d.report.browsers import browse_runs
from g2d.report.charts import SHARES
from g2d.report.page import Entry, Section, rendered
from g2d.report.provenance import without_folders
from g2d.report.runs import about, differing_in, sentences
from g2d.report.styles import OKABE_ITO, SHAPES, names
from g2d.report.tables import cells_of
from g2d.report.vega import Spec, finished, named_scale, tips
from g2d.tables.results import Results

RUN_HEIGHT = 16  # pixels of a policy's row, for every run
CAPTION = Markup(
    "Every policy that has been evaluated. Difference: this run minus {first}, in accuracy, paired by question and "
    "seed; its interval holds for all differences of this table at once, and so does p holm."
)


def runs_page(runs: Mapping[str, Results], table: pd.DataFrame, benchmarks: Sequence[str] = ()) -> str:
    specs: dict[str, Spec] = {}
    first = next(iter(runs))
    sections = []
    for number, ((model, benchmark), rows) in enumerate(table.groupby(["model", "benchmark"], sort=False)):
        title, name = f"{model}, {benchmark}", f"policies-{number}"
        specs[name] = accuracy_by_run(rows)
        shown = rows.drop(columns=["model", "benchmark"])
        caption = CAPTION.format(first=first)
        entry = Entry(name, f"Accuracy and cost: {title}", cells_of(shown), caption, charts={name: ""})
        text = tuple(f"{sentence}." for sentence in sentences(rows, first))
        sections.append(Section(f"section-{number}", title, (entry,), True, text))
    for kind, changed in differing_in(runs, without_folders).items():
        text = () if changed else ("The same in all runs.",)
        rows = pd.DataFrame(
            [{"key": key} | {name: _value(by_run[name]) for name in runs} for key, by_run in changed.items()]
        )
        entries = (Entry(kind, f"{kind.capitalize()} that differs", cells_of(rows)),) if changed else ()
        sections.append(Section(f"other-{kind}", kind.capitalize(), entries, True, text))
    facts = pd.DataFrame(
        [{"run": name} | run_facts | {"folder": _shown(runs[name])} for name, run_facts in about(runs).items()]
    )
    return rendered(
        "runs.html",
        specs,
        title="Runs side by side",
        begins="runs",
        demonstrations=dict.fromkeys(run.config.demonstration for run in runs.values() if run.config.demonstration),
        about=Entry("about", "Progress and version", cells_of(facts)),
        sections=sections,
        answered=browse_runs(runs, benchmarks),
        whose_answers="each run's first seed",
    )


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).removesuffix("...\n").strip()


def _shown(run: Results) -> str:
    """Return the folder as given; only the last part of an absolute path, since the rest names people and machines."""
    return run.folder.name if run.folder.is_absolute() else str(Path(run.folder))


def accuracy_by_run(rows: pd.DataFrame) -> Spec:
    drawn = rows.assign(name=names(rows))[["name", "run", "accuracy", "ci_low", "ci_high", "seeds"]]
    runs = list(dict.fromkeys(rows["run"]))
    y = alt.Y("name:N", title=None, sort=list(dict.fromkeys(drawn["name"])), axis=alt.Axis(labelLimit=260, grid=True))
    encoded = {
        "y": y,
        "yOffset": alt.YOffset("run:N", sort=runs),
        "color": alt.Color("run:N", title="run", scale=named_scale(runs, OKABE_ITO[1:])),
        "tooltip": tips({"name": None, "run": None, "seeds": None, **SHARES}),
    }
    axis = alt.Axis(format="~%", tickCount=6)
    x = alt.X("ci_low:Q", title="accuracy, 95 % interval", axis=axis, scale=alt.Scale(zero=False))
    bars = alt.Chart(drawn).mark_rule(strokeWidth=2).encode(x=x, x2="ci_high:Q", **encoded)
    shape = alt.Shape("run:N", title="run", scale=named_scale(runs, SHAPES))
    points = alt.Chart(drawn).mark_point(filled=True, size=70, opacity=1)
    points = points.encode(x=alt.X("accuracy:Q"), shape=shape, **encoded)
    return finished(bars, points, height=RUN_HEIGHT * len(runs) * drawn["name"].nunique())
