"""First run on a GPU in one command: what needs a card is measured part by part, and a table is written.

    python benchmarks/gpu.py --out /tmp/g2d-gpu [--wheels FOLDER] [--minutes 8] [--parts NAME ...] [--smollm2 FOLDER]
    python benchmarks/gpu.py --out /tmp/g2d-gpu --device cpu --tiny     # test of the script

The machine needs CUDA, torch and transformers, and vLLM for the parts that begin with `vllm`; it may have no network
and a read-only checkout. Missing packages come from `--wheels` (`benchmarks/wheelhouse.py` collects them) and are
installed below `--out`, the folder of all output.
This script makes the environment; `gpu_parts.py` measures in it, and has the other arguments.
"""

from __future__ import annotations

import argparse
import os
import site
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder that can be written")
    parser.add_argument("--wheels", type=Path, help="from benchmarks/wheelhouse.py, to install from")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    arguments, others = parser.parse_known_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    python = interpreter(out)
    if arguments.wheels:
        install(arguments.wheels.resolve(), python)
    command = [python, HERE / "gpu_parts.py", "--out", out, "--device", arguments.device, *others]
    os.execve(python, list(map(str, command)), surroundings(out, arguments.device))


def interpreter(out: Path) -> Path:
    """Create a Python below OUT that sees this checkout and this Python's packages; installed wheels come first.

    PYTHONPATH does not work, because Snakemake removes it from its jobs.
    """
    venv.create(out / "venv", system_site_packages=True, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(out / "venv"), "platbase": str(out / "venv")})
    lines = [str(HERE.parent / "src"), *(f"import site; site.addsitedir({p!r})" for p in site.getsitepackages())]
    Path(packages, "g2d.pth").write_text("\n".join(lines) + "\n")
    return out / "venv/bin/python"


def surroundings(out: Path, device: str) -> dict[str, str]:
    """Return the environment of every part: one card, nothing is fetched, caches are below OUT."""
    # TRL's trainers refuse to start if they see several GPUs.
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    variables = {
        "CUDA_VISIBLE_DEVICES": card if device == "cuda" else "",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(out / "hub"),
        "XDG_CACHE_HOME": str(out / "cache"),
        "TRITON_CACHE_DIR": str(out / "cache/triton"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    return os.environ | variables


def install(wheels: Path, python: Path) -> None:
    """Unpack the wheels into OUT's Python; nothing is downloaded."""
    begun = time.monotonic()
    files = sorted(map(str, wheels.glob("*.whl")))
    if not files:
        sys.exit(f"{wheels}: no wheels in it; benchmarks/wheelhouse.py collects them")
    # Uses this Python's pip, because OUT has none. What is imported compiles itself once.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    target = next(python.parents[1].glob("lib/python*/site-packages"))
    subprocess.run([*command, "--no-cache-dir", "--upgrade", "--target", str(target), *files], check=True)
    print(f"installed {len(files)} wheels in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
