"""results/report/index.html of the real micro grid, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Page

from g2d.jobs.files import read_json
from g2d.tables.all_tables import table
from tests.report.browser import chromium, draw_all, open_sections, opened
from tests.shared import folder_of
from tests.workflow.conftest import Project


@pytest.fixture(scope="module")
def tab(micro_grid: Project) -> Iterator[Page]:
    """The page with all sections open."""
    with chromium() as browser, opened(browser, micro_grid.results / "report/index.html") as (tab, complaints):
        open_sections(tab)
        yield tab
        assert not complaints, complaints


def test_the_page_begins_with_the_answer(tab: Page) -> None:
    assert tab.locator(".demonstration:visible").inner_text() == "Micro grid of the tests."
    assert tab.locator(".headline:visible").count() == 1
    assert tab.locator(".sentences:visible p").count() >= 3


def test_the_charts_are_drawn(tab: Page) -> None:
    assert draw_all(tab)


def test_every_table_with_rows_is_on_the_page_and_linked(micro_grid: Project, tab: Page) -> None:
    files = sorted((micro_grid.results / "tables").glob("*.csv"))
    assert files
    for file in files:
        block = tab.locator(f"#table-{file.stem}")
        n = len(pd.read_csv(file))
        if n == 0:
            assert block.count() == 0
            continue
        link = block.locator(".table-tools a").get_attribute("href")
        assert (micro_grid.results / "report" / link).samefile(file)
        counts = block.locator("output").all_inner_texts()
        assert counts == ([f"{n} rows"] if table(file.stem).printed else [])


def test_every_figure_is_on_the_page(micro_grid: Project, tab: Page) -> None:
    images = tab.locator("#figures img")
    assert images.count() == len(list((micro_grid.results / "figures").glob("*.svg")))
    assert all(image.evaluate("image => image.naturalWidth") for image in images.all())


def test_the_pair_browser_has_every_harvest(tab: Page) -> None:
    labels = tab.locator("#pair-stage .ks button").all_inner_texts()
    assert [label.split()[0] for label in labels] == ["K=0", "K=2", "K=4"]


@pytest.fixture
def provenance(micro_grid: Project) -> dict[str, Any]:
    record: dict[str, Any] = read_json(micro_grid.results / "provenance.json")
    return record


def test_provenance_has_the_weights_of_policies(micro_grid: Project, provenance: dict[str, Any]) -> None:
    recorded = {}
    for path in micro_grid.results.glob("*/seed*/*/*/*/policy.json"):
        folder = path.parent.relative_to(micro_grid.results).as_posix()
        recorded[folder] = read_json(path)["weights_sha256"]
    assert provenance["policies"].items() <= recorded.items()


def test_provenance_has_devices_and_no_commit_if_there_is_none(provenance: dict[str, Any]) -> None:
    assert provenance["devices"]
    assert provenance["workflow"]["commit"] is None  # the copy that the tests run is not under version control


def test_page_and_provenance_name_no_folder_of_this_machine(micro_grid: Project) -> None:
    for name in ("report/index.html", "provenance.json"):
        text = (micro_grid.results / name).read_text()
        for root in (micro_grid.root, folder_of("micro")):  # the folder that made it
            assert str(root) not in text
