"""A race without trainings: its configuration, and answers as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from g2d.experiment import grid
from g2d.experiment.config import Config, load
from g2d.experiment.race import whole
from tests.frames import answers

N, NOISE = 100, 0.04  # questions, and the share of answers that is the other one
# Accuracies: K=4 is far ahead, K=2 a little ahead of K=0, GRPO far behind.
ACCURACIES = {"m/base": 0.3, "m/dpo/g0/k0": 0.6, "m/dpo/g2/k2": 0.63, "m/dpo/g2/k4": 0.9, "m/grpo/g2/k4": 0.3}


def race_config(**changes: Any) -> Config:
    """Return the configuration of a race on the smallest grid."""
    return load(race_values() | changes)


def race_values() -> dict[str, Any]:
    lengths = {"max_completion_length": 24}
    return {
        "seeds": {"looks": [2, 3]},
        "models": {"m": {"source": "embedded"}},
        "pool": {"source": "synthetic", "family": "arithmetic", "split": "train", "n": 2000},
        "benchmarks": {"arithmetic": {"source": "synthetic", "family": "arithmetic", "split": "test", "n": 40}},
        "warmup": {"steps": [0, 2, 4], "horizon": 6, "max_completion_length": 16},
        "baselines": {"grpo_group_sizes": [2]},
        "margin": 0.1,
        **dict.fromkeys(("calibration", "harvest", "evaluation"), lengths),
    }


def write_answers(config: Config, results: Path, seeds: int) -> None:
    """The answers of every policy to the first benchmark, up to a seed."""
    for key in grid.policies(whole(config)):
        if key.seed is None or key.seed <= seeds:
            rng = np.random.default_rng([key.seed or 0, key.k, len(key.regime)])
            easy = np.arange(N) < N * ACCURACIES[key.name]
            right = np.where(rng.random(N) < NOISE, ~easy, easy)
            file = results / key.folder / "eval/arithmetic.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            answers({f"q{i}": [float(one)] for i, one in enumerate(right)}).to_parquet(file)
