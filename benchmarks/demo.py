"""Cost of the demonstration's grid, wall and CPU: with and without shared imports, or in two versions.

    python benchmarks/demo.py                          # `share_imports` on and off, in turns
    python benchmarks/demo.py --before CHECKOUT        # this checkout and another one, in turns

Every run is the whole grid of `make demo` in a copy of the checkout, two jobs at a time. CPU seconds include all
its descendants, even if they outlive the job that started them.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import yaml

from g2d.jobs.attempts import read_attempt

REPOSITORY = Path(__file__).parents[1]
PARTS = ["Snakefile", "workflow", "profiles", "config", "envs", "src"]
ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER, prctl(2)


def run(checkout: Path, folder: Path, change: dict[str, object], config: str) -> tuple[float, float]:
    """Make the grid in a folder; return wall and CPU seconds."""
    for part in PARTS:
        copy = shutil.copytree if (checkout / part).is_dir() else shutil.copy2
        copy(checkout / part, folder / part)
    file = folder / config
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | change))
    begun, before = time.perf_counter(), _cpu()
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "2", "--quiet", "all", "--configfile", config],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "src")},
        check=False,
    )
    wall = time.perf_counter() - begun
    if done.returncode != 0:
        sys.exit(f"the grid failed, see {folder}")
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return wall, _cpu() - before


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def by_stage(folder: Path) -> dict[str, tuple[int, float]]:
    """Jobs and CPU seconds by stage, from the records of attempts; without start-up."""
    cpu_seconds: dict[str, list[float]] = defaultdict(list)
    for attempt in map(read_attempt, (folder / "results/attempts").rglob("*.json")):
        cpu_seconds[attempt.cost.stage].append(attempt.cost.cpu_s)
    return {stage: (len(seconds), sum(seconds)) for stage, seconds in cpu_seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="compare with this checkout as it is")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--config", default="config/config.yaml", help="in both checkouts")
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    variants: dict[str, tuple[Path, dict[str, object]]] = {"as it is": (REPOSITORY, {})}
    if arguments.before:
        variants["before"] = (arguments.before, {})
    else:
        variants["imports of their own"] = (REPOSITORY, {"share_imports": False})
    measured: dict[str, list[tuple[float, float]]] = defaultdict(list)
    stages = {}
    for _ in range(arguments.rounds):
        for name, (checkout, change) in variants.items():
            with tempfile.TemporaryDirectory(prefix="g2d-demo-") as folder:
                measured[name].append(run(checkout.resolve(), Path(folder), change, arguments.config))
                stages[name] = by_stage(Path(folder))
    print(f"{'seconds, best of the rounds':30} {'wall':>8} {'CPU':>8}")
    for name, rounds in measured.items():
        print(f"{name:30} {min(wall for wall, _ in rounds):>8.0f} {min(cpu for _, cpu in rounds):>8.0f}")
    print(f"\n{'CPU seconds of the stages':30} " + " ".join(f"{name:>22}" for name in stages))
    for stage in sorted(set().union(*stages.values())):
        cells = [stages[name].get(stage, (0, 0.0)) for name in stages]
        print(f"{stage:30} " + " ".join(f"{jobs:>12} x {cpu / max(jobs, 1):7.1f}" for jobs, cpu in cells))


if __name__ == "__main__":
    main()
