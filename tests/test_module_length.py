"""The check that no module is over so many lines, which `make lint` runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
problems = runpy.run_path(str(REPOSITORY / ".ci/module_length.py"))["problems"]


def project(root: Path, exceptions: dict[str, str]) -> Path:
    (root / "src").mkdir()
    (root / "src/long.py").write_text("pass\n" * 4)
    (root / "src/short.py").write_text("pass\n" * 3)
    lines = "".join(f'"{name}" = "{reason}"\n' for name, reason in exceptions.items())
    table = "tool.g2d.module-length"
    (root / "pyproject.toml").write_text(f'[{table}]\nlimit = 3\nfolders = ["src"]\n[{table}.exceptions]\n{lines}')
    return root


@pytest.mark.parametrize(
    ("exceptions", "expected"),
    [
        ({}, ["src/long.py: 4 lines, over 3: split it"]),
        ({"src/long.py": "one table of cases"}, []),
        ({"src/long.py": " "}, ["src/long.py: an exception without a reason"]),
        ({"src/long.py": "a table", "src/short.py": "was long"}, ["src/short.py: no longer too long"]),
        ({"src/long.py": "a table", "src/gone.py": "was long"}, ["src/gone.py: no longer too long"]),
    ],
)
def test_a_long_module_needs_a_reason_and_a_reason_a_long_module(
    tmp_path: Path, exceptions: dict[str, str], expected: list[str]
) -> None:
    found = problems(project(tmp_path, exceptions))
    assert len(found) == len(expected)
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True))


def test_this_repository_keeps_it() -> None:
    assert problems(REPOSITORY) == []
