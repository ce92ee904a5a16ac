"""A machine whose GPU cannot be used is refused, by stand-ins for nvidia-smi and torch."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from g2d.checks import machine
from g2d.settings import ConfigError

WORKS = 'print("torch 9.9, CUDA 13.0")'
FAILS = f"{WORKS}; raise RuntimeError('The NVIDIA driver on your system is too old')"


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU by nvidia-smi, with its driver; gcc and Python's headers."""
    tools = tmp_path / "bin"
    tools.mkdir()
    headers = tmp_path / "include"
    headers.mkdir()
    (headers / "Python.h").touch()
    for name, answer in (("nvidia-smi", "550.54"), ("gcc", "")):
        (tools / name).write_text(f"#!/bin/sh\necho {answer}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    for variable in ("CC", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(machine, "DRIVER", tmp_path / "none")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(headers)})
    monkeypatch.setattr(machine, "PROBE", WORKS)


def test_a_gpu_that_torch_can_use_is_accepted(card: None) -> None:
    machine.require_gpu()


def test_a_driver_that_is_too_old_is_named_with_torchs_cuda(card: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PROBE", FAILS)
    with pytest.raises(ConfigError, match=r"driver 550\.54.* torch 9\.9, CUDA 13\.0 cannot use .*driver on"):
        machine.require_gpu()


def test_a_gpu_that_torch_cannot_use_is_accepted_if_the_cpu_is_asked_for(
    card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PROBE", FAILS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    machine.require_gpu()


def test_a_machine_without_a_gpu_is_accepted(card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PROBE", FAILS)
    (tmp_path / "bin/nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    machine.require_gpu()
    (tmp_path / "bin/nvidia-smi").unlink()
    machine.require_gpu()


def test_what_triton_lacks_is_named(card: None, tmp_path: Path) -> None:
    (tmp_path / "bin/gcc").unlink()
    with pytest.raises(ConfigError, match="lacks a C compiler: install"):
        machine.require_gpu()
    (tmp_path / "include/Python.h").unlink()
    with pytest.raises(ConfigError, match=r"lacks a C compiler and Python\.h: install"):
        machine.require_gpu()
