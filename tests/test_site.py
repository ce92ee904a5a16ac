"""The documentation as a site: no link leads nowhere, and every table and command is in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from g2d.cli import COMMANDS
from g2d.tables.all_tables import TABLES
from tests.report.browser import chromium, opened

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pages() -> Path:
    """The site, built strictly."""
    pytest.importorskip("mkdocs", reason="MkDocs is not installed (make docs)")
    subprocess.run([sys.executable, "docs/site.py"], cwd=REPOSITORY, check=True)
    return REPOSITORY / ".site/html"


def test_links_and_images_are_in_the_site(pages: Path) -> None:
    assert 'href="config/index.html"' in (pages / "index.html").read_text()
    assert (pages / "docs/open.html").read_text().count("<img") == 3


def test_every_table_is_described(pages: Path) -> None:
    tables = (pages / "docs/tables.html").read_text()
    for table in TABLES:
        assert f'id="{table.name}csv"' in tables


def test_every_command_is_described(pages: Path) -> None:
    commands = (pages / "docs/commands.html").read_text()
    for command in [*COMMANDS, "config-check"]:
        assert f'id="g2d-{command}"' in commands


def test_the_site_is_searched_in_its_folder(pages: Path) -> None:
    with chromium() as browser, opened(browser, pages / "index.html") as (tab, complaints):
        box = tab.locator("input.md-search__input")
        box.click()
        tab.locator(".md-search-result__meta", has_text="Type to start searching").wait_for()  # the index is loaded
        box.press_sequentially("Agresti")
        tab.locator(".md-search-result__link", has_text="Statistics").first.wait_for()
        assert not complaints.console
        for url in complaints.requests:
            assert url.startswith(pages.as_uri())  # nothing comes from elsewhere
