"""Time saved by a shared engine: evaluations of a grid with vLLM, with an engine per job and with `keep_alive`.

    python benchmarks/evaluation.py [--adapters lora merge] [--rounds 1] [--cores 1]

The real workflow runs in a temporary copy: the micro model of the tests, M0 and two DPO policies on two benchmarks.
Earlier stages are built once. Then only the evaluations are deleted and built again, in turn without and with a shared
engine. Seconds are for the whole Snakemake call; `start` is a call with nothing to do, so a job costs
(seconds - start) / jobs. Needs vLLM.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.shared import use  # noqa: E402 -- the repository is no package
from tests.workflow.conftest import Project  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--adapters", nargs="+", default=["lora", "merge"], help="how vLLM holds adapters")
    parser.add_argument("--rounds", type=int, default=1, help="the best of each counts")
    parser.add_argument("--cores", type=int, default=1, help="jobs at once")
    arguments = parser.parse_args()
    config = yaml.safe_load((ROOT / "tests/workflow/micro.yaml").read_text())
    config["models"]["micro"]["heads"] = 2  # no head narrower than 32 in vLLM's CPU kernels
    config |= {"ablations": {}, "warmup": config["warmup"] | {"steps": [0]}, "engine": {"name": "vllm"}}
    config["seeds"] = [0, 1]
    folder = Path(mkdtemp(prefix="g2d-benchmark-"))
    use(folder / "shared")
    project = Project.create(folder / "g2d", config)
    places = ["micro/base", "micro/seed0/dpo/g0/k0", "micro/seed1/dpo/g0/k0"]
    targets = [f"results/{place}/eval/{name}.parquet" for place in places for name in config["benchmarks"]]
    build(project, arguments.cores, targets)
    print(f"{len(targets)} evaluations, {arguments.cores} at a time\n")
    print("| adapters | start, s | an engine a job, s | shared engine, s | a job, s | shared, s | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for adapters in arguments.adapters:
        best = {}
        start = build(project, arguments.cores, targets)
        for _ in range(arguments.rounds):
            for keep_alive in (0, 600):
                engine = {"name": "vllm", "adapters": adapters, "keep_alive": keep_alive}
                project.configure(config | {"engine": engine})
                for target in targets:
                    (project.root / target).unlink()
                took = build(project, arguments.cores, targets)
                best[keep_alive] = min(took, best.get(keep_alive, took))
        new, shared = ((best[keep_alive] - start) / len(targets) for keep_alive in (0, 600))
        seconds = " | ".join(f"{value:.1f}" for value in (start, best[0], best[600], new, shared))
        print(f"| {adapters} | {seconds} | {new / shared:.1f} |", flush=True)


def build(project: Project, cores: int, targets: list[str]) -> float:
    """Call Snakemake; return its seconds."""
    began = time.perf_counter()
    done = project.snakemake("--cores", str(cores), "--quiet", "all", "--", *targets, anew=True)
    if done.returncode:
        sys.exit(done.stdout)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
