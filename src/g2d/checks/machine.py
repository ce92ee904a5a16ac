"""Check before the first job that torch can use this machine's GPU, and that Triton can compile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from g2d.jobs.environment import DRIVER, VISIBLE, nvidia_smi
from g2d.settings import ConfigError

VERSION = Path("/proc/driver/nvidia/version")
COMPILERS = ("gcc", "clang")  # that Triton looks for, after CC
PROBE = """
import torch
print(f"torch {torch.__version__}, CUDA {torch.version.cuda}")
torch.zeros(1, device="cuda")
"""


def require_gpu() -> None:
    """Raise a ConfigError if a machine with an NVIDIA GPU cannot train on it: jobs would compute on the CPU.

    CUDA_VISIBLE_DEVICES="" asks for the CPU.
    """
    if os.environ.get(VISIBLE) == "" or not shows_gpu():
        return
    # Its own process: CUDA is not initialised here, and not asked by NVML, which also lists GPUs of an old driver.
    environment = {name: value for name, value in os.environ.items() if name != "PYTORCH_NVML_BASED_CUDA_CHECK"}
    done = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(
            f"this machine has an NVIDIA GPU (driver {driver_version()}) that {done.stdout.strip() or 'torch'} cannot "
            f"use ({reason}): install a driver for it (580 or newer for CUDA 13), or PyPI's torch if it has none; "
            f'or set {VISIBLE}="" to compute on the CPU'
        )
    if lacking := lacks_for_triton():
        raise ConfigError(
            f"Triton compiles for the GPU and lacks {' and '.join(lacking)}: install gcc and Python's headers "
            f'(python3-dev), or set {VISIBLE}="" to compute on the CPU'
        )


def shows_gpu() -> bool:
    return any(DRIVER.glob("*")) or bool(nvidia_smi("uuid"))


def driver_version() -> str:
    """Return the version of the driver, or `unknown`."""
    if versions := nvidia_smi("driver_version"):
        return versions[0]
    if VERSION.is_file():
        return next((word for word in VERSION.read_text().split() if word[0].isdigit() and "." in word), "unknown")
    return "unknown"


def lacks_for_triton() -> list[str]:
    lacking = []
    if not (os.environ.get("CC") or any(map(shutil.which, COMPILERS))):
        lacking.append("a C compiler")
    if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        lacking.append("Python.h")
    return lacking
