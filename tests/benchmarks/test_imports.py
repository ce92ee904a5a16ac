"""Benchmarks are run by hand, seldom: what they import of the package is there."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest


@pytest.mark.parametrize("file", sorted(Path("benchmarks").glob("*.py")), ids=lambda file: file.stem)
def test_benchmarks_import_existing_names(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "g2d":
            module = import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or import_module(f"{node.module}.{name.name}"), name.name
