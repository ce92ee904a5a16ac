"""Seconds per job outside the work of its stage, from the attempts of a finished grid.

    snakemake --cores 1 && python benchmarks/overhead.py results/attempts

Start-up is the time before the stage: the interpreter, Snakemake's preamble and the imports at the top of the script.
Imports inside a stage (torch, transformers, TRL) are part of its work; `--imports` measures only these.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from g2d.jobs.attempts import read_attempts

IMPORTS = {
    "python": "pass",
    "pandas, pyarrow (frames of rollouts)": "import pandas, pyarrow.parquet",
    "torch": "import torch",
    "torch, transformers' Llama (generates)": "from transformers import LlamaForCausalLM",
    "the same, peft (generates with an adapter)": "from transformers import LlamaForCausalLM; import peft",
    "TRL's DPO trainer": "from trl import DPOConfig, DPOTrainer",
    "TRL's GRPO trainer": "from trl import GRPOConfig, GRPOTrainer",
}


def imports(rounds: int) -> None:
    """Print the best of several rounds for each import; rounds alternate between imports."""
    seconds: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(rounds):
        for name, code in IMPORTS.items():
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - begun)
    for name, measured in seconds.items():
        print(f"{name:45} {min(measured):6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("attempts", nargs="?", default="results/attempts")
    parser.add_argument("--imports", type=int, metavar="ROUNDS", help="measure the imports instead")
    arguments = parser.parse_args()
    if arguments.imports:
        imports(arguments.imports)
        return
    attempts = [attempt for attempt in read_attempts(arguments.attempts) if attempt.status == "ok"]
    print(f"{'seconds per job (median)':25} {'jobs':>5} {'start-up':>9} {'stage':>7} {'share':>6}")
    for stage in dict.fromkeys(attempt.cost.stage for attempt in sorted(attempts, key=lambda a: a.started)):
        of_stage = [attempt for attempt in attempts if attempt.cost.stage == stage]
        start_up = statistics.median(attempt.start_up_s for attempt in of_stage)
        wall = statistics.median(attempt.cost.wall_s for attempt in of_stage)
        print(f"{stage:25} {len(of_stage):>5} {start_up:>9.2f} {wall:>7.2f} {start_up / (start_up + wall):>6.0%}")


if __name__ == "__main__":
    main()
