"""PyTorch's CPU kernels: AVX2 for the embedded model and the tests, because AVX-512 kernels compute other bits.

MKL reads its variable only on Intel CPUs; `MKL_CBWR=COMPATIBLE` also works on AMD, but M0 then trains 50 % slower.
"""

from __future__ import annotations

import os
from pathlib import Path

from g2d.jobs.planned import model_of
from g2d.jobs.script import Snakemake

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


def pin_kernels() -> None:
    """Request AVX2 kernels if the CPU has them; call it before torch is imported."""
    if _has_avx2():
        for name, value in AVX2.items():
            os.environ.setdefault(name, value)


def pin_embedded(snakemake: Snakemake) -> None:
    """Pin the kernels for a job of the embedded model, or of no model if all are embedded."""
    models = snakemake.config["models"]
    name = model_of(snakemake.wildcards)
    sources = [models[name]] if name else models.values()
    if all(source["source"] == "embedded" for source in sources):
        pin_kernels()


def kernels() -> dict[str, str | None]:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return {"cpu_capability": capability, **{name: os.environ.get(name) for name in AVX2}}


def _has_avx2() -> bool:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        if line.startswith("flags"):
            flags = line.split(":", 1)[1].split()
            return "avx2" in flags and "fma" in flags
    return False
