"""Fixtures that several folders of tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder with MATH, MATH-500 and GSM8K as JSONL; they are not part of the repository."""
    folder = Path(os.environ.get("G2D_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real benchmark data at {folder}: set G2D_DATA to its folder")
    return folder
