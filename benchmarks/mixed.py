"""Cost of an update on both kinds of prompts, beside updates on only one kind.

    python benchmarks/mixed.py [results] [--model demo] [--updates 10] [--rounds 3]

Needs a finished grid of config/overlays/mixed.yaml, for its M0, prompts, reward model and entries. The three trainings
run in turns in one process, on one thread. An update has 16 prompts, in a mix 8 of each kind, so the sum of its parts
is half an update of each kind. The aim is not to take longer.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

from g2d.experiment.config import Config, read
from g2d.jobs.cost import Meter
from g2d.policies.policy import read_policy
from g2d.problems import read_problems
from g2d.problems.settings import OPEN_ENDED
from g2d.regimes.on_policy.semi_online_dpo import train_semi_online_dpo
from g2d.regimes.run.job import TrainingJob
from g2d.rewards.catalogue import TRUTH, ByKind

ALONE, BOTH = ("verifiable", "open-ended"), "together"


def train(results: Path, config: Config, model: str, name: str, updates: int) -> tuple[float, float]:
    """CPU seconds and tokens of an update of one entry."""
    settings = config.for_model(model)
    entry = settings.regimes[name]
    files = [results / f"problems/{OPEN_ENDED}.jsonl"] if entry.asks_open_ended else []
    files += [results / model / "calibration/train.jsonl"] if entry.prompts != "open_ended" else []
    reward = settings.rewards[entry.reward] if entry.reward else TRUTH
    if entry.asks_open_ended and settings.open_ended:
        reward = ByKind(verifiable=reward, open_ended=settings.rewards[settings.open_ended.reward])
    meter = Meter(name, "benchmark")
    with tempfile.TemporaryDirectory() as work, redirect_stdout(StringIO()):  # the trainer's log
        began = time.process_time()
        train_semi_online_dpo(
            TrainingJob(
                read_policy(results / model / "base/policy.json"),
                [problem for file in files for problem in read_problems(file)],
                entry.model_copy(update={"steps": [updates], "keep_rollouts": "none"}),
                lora=settings.lora,
                prompt=settings.prompt,
                k=updates,
                seed=0,
                work=Path(work),
                reward=reward,
                engine=settings.engine,
                meter=meter,
            )
        )
        return (time.process_time() - began) / updates, meter.tokens_generated / updates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    parser.add_argument("--model", default="demo")
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    config = read(options.results / "config.yaml")
    train(options.results, config, options.model, BOTH, 1)  # imports, and what is kept for the process
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in (*ALONE, BOTH)}
    for _ in range(options.rounds):
        for name, took in measured.items():
            took.append(train(options.results, config, options.model, name, options.updates))
    seconds = {name: median(s for s, _ in rounds) for name, rounds in measured.items()}
    print(f"{'an update on':16}{'CPU seconds':>12}{'tokens':>8}")
    for name, rounds in measured.items():
        print(f"{name:16}{seconds[name]:12.2f}{rounds[0][1]:8.0f}")
    print(f"both beside the sum of their parts: {seconds[BOTH] / (sum(seconds[name] for name in ALONE) / 2):.2f}")


if __name__ == "__main__":
    main()
