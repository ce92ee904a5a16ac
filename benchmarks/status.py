"""Seconds of `g2d status` on a grid of 10,000 jobs: nine in ten have finished and some have failed.

    python benchmarks/status.py [--jobs 10000] [--rounds 5]

The folder is made by the package's writers, with empty results. It times the whole command, including the start of
Python and imports, and the second look of `--watch`, for new files only.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from g2d.experiment.config import Config, load
from g2d.graph.build import grid_jobs
from g2d.graph.job import Job
from g2d.jobs.attempts import Attempt, Process
from g2d.jobs.cost import Cost, Progress
from g2d.jobs.files import write_json
from g2d.status.screen import screen
from g2d.status.snapshot import Grid


def config_of(n_jobs: int) -> Config:
    """A grid of at least so many jobs: the paper's, with as many seeds as it takes."""
    problems = {"source": "synthetic", "family": "arithmetic", "n": 100}
    values = {
        "models": {"big": {"source": "hub", "id": "a/big", "revision": "0" * 40}},
        "pool": {**problems, "split": "train", "n": 2000},
        "benchmarks": {name: {**problems, "split": "test", "seed": seed} for seed, name in enumerate(("one", "two"))},
        "ablations": {"ipo": {"steps": "all", "dpo": {"loss": "ipo"}}},
        "baselines": {"grpo_group_sizes": [2, 4]},
    }
    config, seeds = load(values), 1
    while len(grid_jobs(config)) < n_jobs:
        seeds += max(1, seeds // 4)
        config = load(values | {"seeds": list(range(seeds))})
    return config


def make(results: Path, jobs: list[Job]) -> None:
    """Nine jobs in ten have finished, one in a hundred has failed, eight run on another machine."""
    now, running = time.time(), 8
    for number, job in enumerate(jobs):
        ended = number % 10 != 9
        failed = number % 100 == 99
        if not ended and not failed and running == 0:
            continue
        running -= not ended and not failed
        status = "ok" if ended else "failed" if failed else "running"
        cost = Cost(job.name, job.stage, 100.0, 100.0, 1, "A100", 100.0, 10_000, 10**9)
        progress = Progress(10, 150, 0) if job.stage.startswith("train") else None
        record = Attempt(status, cost, "node7", now - 200, now, 5.0, None, progress, Process(1, "elsewhere", "4711"))
        stem = (
            f"{job.stage}/{job.name.removeprefix('results/').removesuffix('cost').replace('/eval/', '/').rstrip('./')}"
        )
        write_json(results / f"attempts/{stem}.20260101T000000-node7-{number}.json", asdict(record))
        log = results / f"logs/{stem}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("a step\n" * 200 + "OutOfMemoryError: CUDA out of memory\n")
        for output in job.done if ended else ():
            file = results / output.removeprefix("results/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results")
        config = config_of(arguments.jobs)
        config.save(results / "config.yaml")
        jobs = grid_jobs(config)
        make(results, jobs)
        gc.set_threshold(1_000_000)  # same as the command
        seconds: dict[str, list[float]] = {"the command": [], "of which start and imports": [], "first look": []}
        seconds["second look"] = []
        for _ in range(arguments.rounds):
            seconds["the command"].append(timed([sys.executable, "-m", "g2d.cli", "status", str(results)]))
            seconds["of which start and imports"].append(timed([sys.executable, "-c", "import g2d.status.command"]))
            began = time.process_time()
            grid = Grid(results)
            screen(grid.look(), 120, 40)
            seconds["first look"].append(time.process_time() - began)
            began = time.process_time()
            text = screen(grid.look(), 120, 40)
            seconds["second look"].append(time.process_time() - began)
        print(f"{text}\n\n{len(jobs)} jobs, best and median of {arguments.rounds} rounds, CPU seconds")
        for what, took in seconds.items():
            print(f"{what:30}{min(took):8.2f}{sorted(took)[len(took) // 2]:8.2f}")


def timed(command: list[str]) -> float:
    """CPU seconds of a process, hardly affected by other load."""
    began = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    ended = os.times()
    return ended.children_user + ended.children_system - began.children_user - began.children_system


if __name__ == "__main__":
    main()
