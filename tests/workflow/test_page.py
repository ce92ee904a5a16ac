"""results/report/index.html of the real micro grid, in a real browser."""

from __future__ import annotations

import json

import pandas as pd

from tests.report.browser import chromium, draw_all, open_sections, opened
from tests.shared import folder_of
from tests.workflow.conftest import Project


def test_the_page_shows_the_grid(micro_grid: Project) -> None:
    page = micro_grid.results / "report/index.html"
    with chromium() as browser, opened(browser, page) as (tab, complaints):
        assert tab.locator(".demonstration:visible").inner_text() == "Micro grid of the tests."
        assert tab.locator(".sentences:visible p").count() >= 3
        assert tab.locator(".headline:visible").count() == 1
        open_sections(tab)
        assert draw_all(tab)
        for csv in sorted((micro_grid.results / "tables").glob("*.csv")):
            block = tab.locator(f"#table-{csv.stem}")
            assert (page.parent / block.locator(".table-tools a").get_attribute("href")).samefile(csv)
            if n := len(pd.read_csv(csv)):
                assert block.locator("output").inner_text() == f"{n} rows"
        images = tab.locator("#figures img")
        assert images.count() == len(list((micro_grid.results / "figures").glob("*.svg")))
        assert all(image.evaluate("image => image.naturalWidth") for image in images.all())
        ks = [text.split()[0] for text in tab.locator("#pair-stage .ks button").all_inner_texts()]
        assert ks == ["K=0", "K=2", "K=4"]
        assert not complaints, complaints


def test_provenance_describes_the_run(micro_grid: Project) -> None:
    record = json.loads((micro_grid.results / "provenance.json").read_text())
    adapters = {
        path.parent.relative_to(micro_grid.results).as_posix(): json.loads(path.read_text())["weights_sha256"]
        for path in micro_grid.results.glob("*/seed*/*/*/*/policy.json")
    }
    assert record["policies"].items() <= adapters.items()
    assert record["workflow"]["commit"] is None  # the copy that the tests run is not under version control
    assert record["devices"]
    page = (micro_grid.results / "report/index.html").read_text()
    for root in (micro_grid.root, folder_of("micro")):  # the folder that made it
        assert str(root) not in page + json.dumps(record)
