"""docs/open.ipynb, in a folder with finished results."""

from __future__ import annotations

import ast
import json
from typing import Any

import altair as alt
import pytest

from tests.workflow.conftest import REPOSITORY, Project

CELLS = [cell for cell in json.loads((REPOSITORY / "docs/open.ipynb").read_text())["cells"] if "outputs" in cell]


def shown(cell: dict[str, Any], names: dict[str, Any]) -> Any:
    """Return the value of a cell, its last line."""
    body = ast.parse("".join(cell["source"])).body
    last = body.pop()
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(body, []), "open.ipynb", "exec"), names)
    return eval(compile(ast.Expression(last.value), "open.ipynb", "eval"), names)


def test_the_notebook_runs_on_any_results(micro_grid: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(micro_grid.root)
    names: dict[str, Any] = {}
    with alt.renderers.enable("default"):
        table, *charts = [shown(cell, names) for cell in CELLS]
    assert len(table)
    assert len(charts) == 3
    for chart in charts:
        assert "/vega-lite/" in chart.to_dict()["$schema"]


def test_the_notebook_shows_what_it_drew() -> None:
    table, *charts = [cell["outputs"][0]["data"] for cell in CELLS]
    assert "image/svg+xml" not in table
    for chart in charts:
        assert "image/svg+xml" in chart
