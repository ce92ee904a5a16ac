"""Names of the package in text exist: imports in documents, rules and code that tests write, and names in quotes.

mypy checks the names in code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
MADE_BY_A_TEST = ("g2d.regimes.offline.simpo", "g2d.tables.toy")

FROM = re.compile(r"\bfrom (g2d\b[\w.]*) import (\([^)]*\)|[\w, ]+)")
QUOTED = re.compile(r"[\"'`](g2d\.\w+(?:\.\w+)+)[\"'`]")


def test_imported_names_exist() -> None:
    missing = []
    for file in _readers():
        for module, name in _imported(file.read_text(encoding="utf-8")):
            if module not in MADE_BY_A_TEST and not _has(module, name):
                missing.append(f"{file.relative_to(REPOSITORY)}: {module} has no {name}")
    assert missing == []


def test_quoted_names_exist() -> None:
    """Names that tests patch and documents mention."""
    missing = []
    for file in _readers():
        for path in QUOTED.findall(file.read_text(encoding="utf-8")):
            module, _, name = path.rpartition(".")
            if path not in MADE_BY_A_TEST and not _has(module, name):
                missing.append(f"{file.relative_to(REPOSITORY)}: {path}")
    assert missing == []


def _readers() -> Iterator[Path]:
    for folder in ("tests", "benchmarks", "workflow"):
        yield from (REPOSITORY / folder).rglob("*.py")
    yield from (REPOSITORY / "workflow").rglob("*.smk")
    for suffix in ("md", "py", "ipynb"):
        yield from (REPOSITORY / "docs").glob(f"*.{suffix}")
    yield REPOSITORY / "CONTRIBUTING.md"
    yield REPOSITORY / "README.md"


def _imported(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each `from module import name`."""
    for module, names in FROM.findall(text):
        for name in re.sub(r"#.*", "", names).strip("()").split(","):
            if name.strip():
                yield module, name.split()[0]


def _has(module: str, name: str) -> bool:
    """Return whether a module defines or imports a name, or is a package with this module."""
    return name in _names(module) or _file(f"{module}.{name}") is not None


@cache
def _file(module: str) -> Path | None:
    """Return the file of a module or the folder of a package, None if there is neither."""
    path = (REPOSITORY / "src").joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py", path):
        if file.exists():
            return file
    return None


@cache
def _names(module: str) -> set[str]:
    """Return the names that a module defines or imports, also inside `if`, `try` and `with`."""
    file = _file(module)
    if file is None or file.is_dir():
        return set()
    names = set()
    unread: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while unread:
        for node in ast.iter_child_nodes(unread.pop()):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.alias):
                names.add(node.asname or node.name)
            else:
                unread.append(node)
    return names
