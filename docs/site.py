"""Build the documentation as a site: `make docs`, then open .site/html/index.html.

The pages are the files of the repository at their places, so that links are the same. Three are made here: the tables
from their catalogue, the commands from their own help, and the notebook.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from g2d.cli import COMMANDS
from g2d.tables.all_tables import SECTIONS, TABLES, Table

REPOSITORY = Path(__file__).parents[1]
SITE = REPOSITORY / ".site"
# The pages, and what they link to.
PARTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "config", "envs", "profiles"]


def main() -> None:
    """Collect the pages and build the site; a broken link is an error."""
    shutil.rmtree(SITE, ignore_errors=True)
    write_pages(SITE / "pages")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    subprocess.run(command, cwd=REPOSITORY, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    print("Open .site/html/index.html in a browser.")


def write_pages(to: Path) -> None:
    """Copy the pages of the repository and write the generated ones."""
    for part in PARTS:
        copy = shutil.copytree if (REPOSITORY / part).is_dir() else shutil.copy2
        (to / part).parent.mkdir(parents=True, exist_ok=True)
        copy(REPOSITORY / part, to / part)
    (to / "docs/tables.md").write_text("\n\n".join(["# Tables", *tables()]) + "\n", encoding="utf-8")
    (to / "docs/commands.md").write_text("\n\n".join(["# Commands", *commands()]) + "\n", encoding="utf-8")
    notebook = json.loads((to / "docs/open.ipynb").read_text(encoding="utf-8"))
    (to / "docs/open.md").write_text("\n\n".join(cells(notebook, to / "docs/images")) + "\n", encoding="utf-8")


def tables() -> Iterator[str]:
    """Yield the tables by section of the page, each with the docstring of its function."""
    yield "Files of `results/tables/`, as frames in [`g2d.open`](open.md). [analysis.md](analysis.md) explains them."
    for section in SECTIONS:
        yield f"## {section}"
        for table in (table for table in TABLES if table.section == section):
            yield f"### {table.name}.csv"
            yield f"{table.title}."
            yield from _described(table)


def _described(table: Table) -> Iterator[str]:
    """Yield the docstring of a table's function, without arguments and errors, and the table's columns."""
    text = re.split(r"\n\n(?:Args|Raises):\n", inspect.getdoc(table.build) or "")[0]
    yield from map(_prose, text.split("\n\n"))
    yield "Columns: " + ", ".join(f"`{column}`" for column in table.columns)


def _prose(text: str) -> str:
    """Convert a docstring to Markdown: names with underscores become code."""
    return re.sub(r"(?<![`\w.])(\w+_\w+)(?![`\w(.])", r"`\1`", " ".join(text.split()))


def commands(*command: str) -> Iterator[str]:
    """Yield the output of `--help` of g2d and, recursively, of its commands."""
    help_command = [sys.executable, "-m", "g2d.cli", *command, "--help"]
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    text = subprocess.run(help_command, env=environment, capture_output=True, text=True, check=True).stdout.rstrip()
    yield f"## {' '.join(['g2d', *command])}"
    yield f"```\n{text}\n```"
    choices = re.search(r"^  \{(.+)\}$", text, re.M)
    for name in COMMANDS if not command else choices[1].split(",") if choices else []:
        yield from commands(*command, name)


def cells(notebook: dict[str, Any], images: Path) -> Iterator[str]:
    """Yield the cells of an executed notebook in Markdown; its drawings become files."""
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        for output in cell.get("outputs", []):
            shown = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
            if "image/svg+xml" in shown:
                (images / f"open-{number}.svg").write_text(shown["image/svg+xml"], encoding="utf-8")
                yield f"![What the cell draws](images/open-{number}.svg)"
            elif "text/plain" in shown:
                yield f"```\n{shown['text/plain']}\n```"


if __name__ == "__main__":
    main()
