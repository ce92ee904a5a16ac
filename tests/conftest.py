"""Fixtures that several folders of tests share, and which tests run side by side."""

import os
from pathlib import Path

import pytest

from g2d.kernels import pin_kernels
from tests import shared

# Before any test imports torch: what the tests' models answer depends on it. Values that are set are kept.
pin_kernels()
# Several processes share the cores, and two threads of one make tiny models no faster.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Files of tests that take minutes, longest first: begun last, they would run alone. A machine can have one Slurm.
LONGEST = ("slurm", "test_grid", "test_vllm", "test_confounders", "test_faults", "test_reruns", "test_engine_host")


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`, a file's tests stay in one process, which makes its fixtures once."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    ranks = {name: rank for rank, name in enumerate(LONGEST)}

    def group(item: pytest.Item) -> str:
        return "slurm" if item.path.parent.name == "slurm" else item.path.stem

    for item in items:
        item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}-{group(item)}"))
    items.sort(key=lambda item: ranks.get(group(item), len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def _shared(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.getbasetemp()
    shared.use((root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "shared")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder with MATH, MATH-500 and GSM8K as JSONL; they are not part of the repository."""
    folder = Path(os.environ.get("G2D_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real benchmark data at {folder}: set G2D_DATA to its folder")
    return folder
