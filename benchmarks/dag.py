"""Seconds that Snakemake takes to build and dry-run the paper's grid at three sizes.

    python benchmarks/dag.py                       # about 1,000, 5,000 and 12,000 jobs
    python benchmarks/dag.py --models 10 --seeds 20

Each size runs the real Snakefile in an empty folder and a separate process. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[1]
SIZES = [(1, 17), (5, 17), (10, 20)]  # models, seeds; at 10 values of K


def configuration(models: int, seeds: int) -> dict[str, object]:
    """The paper's grid with other numbers of models and seeds, and ten values of K."""
    values = yaml.safe_load((REPOSITORY / "config/paper.yaml").read_text())
    model = next(iter(values["models"].values()))
    steps = [0, *range(100, 901, 100)]
    return values | {
        "seeds": list(range(seeds)),
        "models": {f"model-{number}": model | {"id": f"some/model-{number}"} for number in range(models)},
        "warmup": values["warmup"] | {"steps": steps, "horizon": 1000},
        "ablations": {},
    }


def dry_run(folder: Path, models: int, seeds: int) -> tuple[int, float]:
    """Number of jobs and seconds of one dry-run."""
    config = folder / f"{models}x{seeds}.yaml"
    config.write_text(yaml.safe_dump(configuration(models, seeds)))
    command = [sys.executable, "-m", "snakemake", "-n", "--quiet", "rules"]
    command += ["--snakefile", str(REPOSITORY / "Snakefile"), "--configfile", str(config)]
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    total = re.search(r"^total +(\d+)", done.stdout, re.MULTILINE)
    if total is None:
        raise SystemExit(f"no table of jobs in what Snakemake said:\n{done.stdout[-2000:]}")
    return int(total[1]), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    sizes = [(arguments.models, arguments.seeds)] if arguments.models else SIZES
    print(f"{'grid':>32} {'jobs':>7} {'seconds':>8} {'ms per job':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for models, seeds in sizes:
            jobs, seconds = dry_run(Path(folder), models, seeds)
            grid = f"{models} models x {seeds} seeds x 10 K"
            print(f"{grid:>32} {jobs:>7} {seconds:>8.1f} {1000 * seconds / jobs:>11.2f}", flush=True)
    print(f"largest memory of any: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
