"""No module over so many lines: what is longer does more than one thing, or says in `pyproject.toml` why not.

    python .ci/module_length.py

reads `[tool.g2d.module-length]`: the limit, the folders, and the exceptions with a reason each. An exception that is no
longer needed fails as well.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def problems(root: Path) -> list[str]:
    """What is too long below a folder with a pyproject.toml, or excused without need; a line each."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["g2d"]["module-length"]
    limit, excused = settings["limit"], settings.get("exceptions", {})
    files = [file for folder in settings["folders"] for file in sorted((root / folder).rglob("*.py"))]
    lengths = {file.relative_to(root).as_posix(): file.read_bytes().count(b"\n") for file in files}
    long = {name: n for name, n in lengths.items() if n > limit}
    found = [
        f"{name}: {n} lines, over {limit}: split it by what a reader looks for, or say in pyproject.toml why not"
        for name, n in long.items()
        if name not in excused
    ]
    found += [f"{name}: no longer too long, so no exception: drop it" for name in excused if name not in long]
    return found + [f"{name}: an exception without a reason" for name, reason in excused.items() if not reason.strip()]


if __name__ == "__main__":
    sys.exit("\n".join(problems(Path(__file__).parents[1])) or 0)
