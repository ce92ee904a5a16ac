"""The report in a real browser: it draws itself from one file, without a network and without errors."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.workflow.conftest import Project

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    *["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"],
    *["--disable-background-networking", "--disable-component-update"],
    *["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"],
]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def rendered(page: Path, profile: Path) -> tuple[str, str]:
    """What a reader sees of a page after its scripts have run, and what the browser's console says."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    text = re.sub(r"<(script|style)\b.*?</\1>", "", done.stdout, flags=re.S)
    return re.sub(r"<[^>]+>", " ", text), "\n".join(re.findall(r"CONSOLE.*", done.stderr))


def test_the_report_draws_itself_and_says_what_it_is(micro_grid: Project, tmp_path: Path) -> None:
    done = micro_grid.snakemake("--report", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stdout
    text, console = rendered(tmp_path / "report.html", tmp_path / "profile")
    for heading in ("Page", "Tables", "Figures"):
        assert f"{heading} (synthetic demonstration)" in text
    assert "Micro grid of the tests." in text
    assert "Error" not in console, console
