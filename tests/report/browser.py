"""Open pages in the system's Chromium by Playwright, and record errors and requests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DESKTOP = (1280, 900)
PHONE = (390, 844)


@dataclass
class Complaints:
    """Events that a page must not cause."""

    console: list[str] = field(default_factory=list)  # warnings and errors, uncaught exceptions
    dialogs: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)  # anything but the page itself and data in it
    blocked: list[str] = field(default_factory=list)  # requests that the content security policy stopped

    def __bool__(self) -> bool:
        return bool(self.console or self.dialogs or self.requests)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with one tab for all pages: another tab is a process and costs a second of CPU."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"], timeout=0
        )
        browser.new_page().set_default_timeout(0)  # a busy machine can exceed the default of 30 s
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, file: Path, size: tuple[int, int] = DESKTOP) -> Iterator[tuple[Page, Complaints]]:
    """Open a file in the browser's tab, and blank the tab afterwards."""
    complaints = Complaints()
    listeners = {
        "console": lambda m: m.type in ("warning", "error") and complaints.console.append(m.text),
        "pageerror": lambda error: complaints.console.append(str(error)),
        "dialog": lambda dialog: (complaints.dialogs.append(dialog.message), dialog.dismiss()),
        "request": lambda request: _is_outside(request.url, file) and complaints.requests.append(request.url),
        "requestfailed": lambda request: request.failure == "csp" and complaints.blocked.append(request.url),
    }
    page = browser.contexts[0].pages[0]
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(media="null", color_scheme="light")
    page.mouse.move(0, 0)
    for event, listener in listeners.items():
        page.on(event, listener)
    page.goto(file.as_uri())
    try:
        yield page, complaints
    finally:
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        page.goto("about:blank")


def _is_outside(url: str, file: Path) -> bool:
    return not url.startswith(("data:", "blob:", file.as_uri()))


def require_accessible(tab: Page) -> None:
    """Fail if axe finds a violation."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    violations = axe.run(tab).response["violations"]
    assert not [(hit["id"], [node["html"][:200] for node in hit["nodes"]]) for hit in violations]


def open_sections(tab: Page) -> None:
    """Open all collapsed sections."""
    for summary in tab.locator("details.section > summary").all():
        summary.click()


def draw_all(tab: Page) -> int:
    """Scroll to every visible figure, wait until it is drawn, and return their number."""
    figures = tab.locator("figure.chart:visible").all()
    for figure in figures:
        figure.scroll_into_view_if_needed()
        figure.locator("svg.marks").wait_for()
    return len(figures)
