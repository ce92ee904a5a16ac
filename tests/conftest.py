"""Fixtures that several folders of tests share, and which tests run side by side."""

import gc
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from g2d.jobs.environment import pin_kernels
from tests import shared

# Before any test imports torch: what the tests' models answer depends on it. Values that are set are kept.
pin_kernels()
# No deadline, because a busy machine is no error.
settings.register_profile("g2d", deadline=None)
settings.load_profile("g2d")
# Hundreds of short processes import the package, so it is compiled once.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Several processes share the cores, and a second thread does not make tiny models faster.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Files that take minutes, longest first, so that no process is left with one at the end. A machine can have one Slurm.
# The second makes the micro grid; the next one does not need it.
LONGEST = (
    *("workflow/slurm", "workflow/test_grid", "workflow/test_vllm"),
    *("workflow/test_regimes", "workflow/test_rewards", "workflow/test_confounders"),
    *("workflow/test_faults", "workflow/test_open_ended"),
    *("workflow/test_stale", "workflow/test_reruns", "workflow/test_additions"),
    *("workflow/test_content", "workflow/test_offline", "jobs/test_shared_imports"),
    *("workflow/test_shared_imports", "workflow/test_ecosystem"),
    *("regimes/test_auto_stop", "regimes/test_resume"),
    *("regimes/test_tokens", "policies/test_embedded"),
)
# Begun after those and before the many short ones.
LONG = (
    *("workflow/test_dry_run", "workflow/test_owner"),
    *("benchmarks/test_gpu", "verifier/test_hostile", "memory/test_passes"),
)
# Tests with a grid, a trainer, vLLM or a browser; `make test-fast` runs the others.
SLOW = (*LONGEST, "workflow/", "regimes/", "policies/", "report/test_page")
SLOW += ("rollouts/test_vllm_engine", "rollouts/test_weights_check")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file in one process, so that it makes its fixtures once; also all tests on Slurm.

    xdist 3.8's `loadgroup` does not work with pytest 9.2.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "slurm" if "/slurm/" in file else file

    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _place(item).startswith(SLOW):
            item.add_marker("slow")
    if "PYTEST_XDIST_WORKER" in os.environ:
        first = {name: n for n, name in enumerate((*LONGEST, *LONG))}
        items.sort(key=lambda item: first.get(_place(item), len(first)))


def _place(item: pytest.Item) -> str:
    """A test's file below `tests`, without its suffix; those on Slurm have one name."""
    place = item.path.relative_to(Path(__file__).parent).with_suffix("").as_posix()
    return "workflow/slurm" if place.startswith("workflow/slurm") else place


gc.disable()  # until all tests are collected: a quarter of the time of imports


def pytest_collection_finish() -> None:
    gc.enable()


_imported = [0]  # modules, when last looked
_freeze = gc.freeze
_unfreeze = gc.unfreeze


def pytest_configure() -> None:
    gc.freeze = gc.unfreeze = lambda: None  # vLLM does both, with every engine


def pytest_runtest_setup() -> None:
    """Exclude imported modules from the garbage collections of trainers and engines.

    Each would take a third of a second after imports of torch, transformers and TRL, and half a second with vLLM.
    """
    if len(sys.modules) > _imported[0] + 100:
        gc.collect()
        _freeze()
        _imported[0] = len(sys.modules)
        _keep_what_is_installed()


def _keep_what_is_installed() -> None:
    """Cache package metadata: accelerate reads it twice per step to check for PEFT models."""
    imports = sys.modules.get("accelerate.utils.imports")
    if imports is not None and not hasattr(imports._is_package_available, "cache_info"):
        imports._is_package_available = cache(imports._is_package_available)  # type: ignore[attr-defined]


def pytest_unconfigure() -> None:
    _unfreeze()  # libraries check for leaks at exit


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
