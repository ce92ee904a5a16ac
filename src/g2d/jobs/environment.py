"""Environment of a job before torch is imported: CPU kernels, locks on GPUs, and variables of launchers."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from itertools import takewhile
from pathlib import Path

from g2d.jobs.run_process import own_folder
from g2d.jobs.snakemake_jobs import Snakemake, model_of
from g2d.plain import say

# The embedded model and the tests use AVX2, because AVX-512 kernels compute other bits. MKL reads its variable only on
# Intel CPUs; `MKL_CBWR=COMPATIBLE` also works on AMD, but M0 then trains 50 % slower.
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}

VISIBLE = "CUDA_VISIBLE_DEVICES"
DRIVER = Path("/proc/driver/nvidia/gpus")
DEVICES = Path("/dev")
POLL_S = 1.0

# Variables of torchrun and accelerate.
OF_LAUNCHERS = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "ROLE_NAME"),
}
LAUNCHER_PREFIXES = ("TORCHELASTIC_", "ACCELERATE_", "FSDP_")


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


_held: list[ExitStack] = []  # held until this process and its forked workers end


def visible_gpus() -> list[str]:
    given = os.environ.get(VISIBLE)
    if given is not None:
        names = [name.strip() for name in given.split(",")]
        return list(takewhile(lambda name: not name.startswith("-"), filter(None, names)))  # as CUDA: -1 ends the list
    counts = [len(list(DRIVER.glob("*"))), len(list(DEVICES.glob("nvidia[0-9]*")))]
    # The driver may list all of the host's in a container, and neither lists any in WSL2.
    n = min(filter(None, counts), default=0) or len(nvidia_smi("uuid"))
    return [str(number) for number in range(n)]


def nvidia_smi(field: str) -> list[str]:
    """Return a field of each GPU; none if nvidia-smi is missing or fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return [] if done.returncode else done.stdout.splitlines()


def take_gpus(wanted: int) -> list[str]:
    """Wait for and lock this many GPUs, or all that the process sees if they are fewer.

    Hides the others before torch is imported.
    """
    # Otherwise `is_available` initialises CUDA, and forks cannot use it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    given = visible_gpus()
    wanted = min(wanted, len(given))
    if wanted == 0:
        return []
    # Triton's default is in the home folder, which many jobs on a network file system would lock.
    os.environ.setdefault("TRITON_CACHE_DIR", str(own_folder(lasting=True) / "triton"))
    free = _locked_gpus(given, wanted)
    if not free:
        say(f"waiting for {wanted} of the GPUs {', '.join(given)}: other jobs have them", file=sys.stderr)
    while not free:
        time.sleep(POLL_S)
        free = _locked_gpus(given, wanted)
    os.environ[VISIBLE] = ",".join(free)
    return free


def require_one_gpu() -> None:
    """Raise a RuntimeError if torch sees several GPUs: transformers' trainer would use all of them."""
    import torch

    n = torch.cuda.device_count()
    if n > 1:
        raise RuntimeError(
            f"this training sees {n} GPUs and uses one: neither {DRIVER} nor nvidia-smi lists them, so no GPU was "
            f"chosen: set {VISIBLE} to one of them where Snakemake runs"
        )


def _locked_gpus(given: list[str], wanted: int) -> list[str]:
    """Lock the first free GPUs, or none if too few are free: two jobs never deadlock."""
    folder = own_folder(lasting=True)
    free = []
    with ExitStack() as files:
        for name in given:
            # Slurm numbers the GPUs of every allocation from 0.
            identity = f"{os.environ.get('SLURM_JOB_ID', 'here')}-{name}".replace("/", "-")
            lock = files.enter_context(open(folder / f"gpu-{identity}.lock", "w"))
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free.append(name)
            if len(free) == wanted:
                _held.append(files.pop_all())
                return free
    return []


def forget_launcher() -> None:
    """Delete variables of torchrun and accelerate, with which a training would wait for other processes."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        say(f"WORLD_SIZE={os.environ['WORLD_SIZE']} is ignored: a training is one process")
    for name in list(os.environ):
        if name in OF_LAUNCHERS or name.startswith(LAUNCHER_PREFIXES):
            del os.environ[name]
