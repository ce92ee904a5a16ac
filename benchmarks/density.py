"""How densely code is written: counts per 1,000 lines of each package of g2d, or of any folder of packages.

Comprehensions, conditional expressions, tuple assignments (`a, b = x, y`), walrus operators, and the number of `Any`
outside imports; then the median length of a function in lines, and names that several modules or classes share.

    python benchmarks/density.py [src/g2d]
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HEADINGS = ("lines", "comprehensions", "conditional", "tuple", "walrus", "Any", "median function")
NOT_NAMES = {"__init__", "__main__"}


def kind_of(node: ast.AST) -> str | None:
    if isinstance(node, COMPREHENSIONS):
        return "comprehensions"
    if isinstance(node, ast.IfExp):
        return "conditional"
    if isinstance(node, ast.NamedExpr):
        return "walrus"
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
        return "tuple"
    if isinstance(node, ast.Name) and node.id == "Any":
        return "Any"
    return None


def row(name: str, files: list[Path]) -> str:
    """Return one line of the table."""
    found: Counter[str] = Counter()
    lengths = []
    lines = 0
    for file in files:
        text = file.read_text()
        lines += len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            kind = kind_of(node)
            if kind:
                found[kind] += 1
            if isinstance(node, FUNCTIONS) and node.end_lineno:
                lengths.append(node.end_lineno - node.lineno + 1)
    cells = [f"{lines:6}"]
    cells += [f"{1000 * found[kind] / max(lines, 1):8.1f}" for kind in HEADINGS[1:5]]
    cells += [f"{found['Any']:5}", f"{statistics.median(lengths or [0]):5g}"]
    return f"{name:12}" + "".join(cells)


def shared_names(root: Path, files: list[Path]) -> list[str]:
    """Return names of modules and classes that several files have, with these files."""
    places = defaultdict(set)
    for file in files:
        place = str(file.relative_to(root))
        if file.stem not in NOT_NAMES:
            places[f"module {file.stem}"].add(place)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                places[f"class {node.name}"].add(place)
    return [f"{name}: {', '.join(sorted(where))}" for name, where in sorted(places.items()) if len(where) > 1]


def main(folder: str = "src/g2d") -> None:
    root = Path(folder)
    print("; ".join(HEADINGS), "(comprehensions to walrus per 1,000 lines)")
    for package in sorted(root.iterdir()):
        files = sorted(package.rglob("*.py")) if package.is_dir() else []
        if files:
            print(row(package.name, files))
    every = sorted(root.rglob("*.py"))
    print(row("all", every))
    print("\nnames that several files have")
    print("\n".join(shared_names(root, every)))


if __name__ == "__main__":
    main(*sys.argv[1:])
