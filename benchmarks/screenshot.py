"""Picture of README: the first screen of a finished demonstration's page, in a browser of 1280 x 800.

    make demo && python benchmarks/screenshot.py
    python benchmarks/screenshot.py results/report/index.html --out docs/images/report.png

Needs Chromium and Playwright (`pip install -e '.[test]'`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGE = Path(__file__).parents[1] / "docs/images/report.png"
SIZE = {"width": 1280, "height": 800}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, nargs="?", default=Path("results/report/index.html"))
    parser.add_argument("--out", type=Path, default=IMAGE)
    arguments = parser.parse_args()
    if not arguments.page.is_file():
        sys.exit(f"{arguments.page}: not there: run the demonstration first (make demo)")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport=SIZE, color_scheme="light")
        tab.goto(arguments.page.resolve().as_uri())
        tab.locator("svg, canvas").first.wait_for()  # the chart is drawn by a script
        tab.screenshot(path=arguments.out)
        browser.close()
    print(f"{arguments.out}: {arguments.out.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
