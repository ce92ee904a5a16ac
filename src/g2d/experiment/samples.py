"""Where several answers of a policy to every problem lie: what pass@k and maj@n are computed from."""

from __future__ import annotations

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.keys import PolicyKey


def sample_files(config: Config) -> dict[tuple[PolicyKey, str], str]:
    """By policy and benchmark, the file of samples: drawn beside the greedy answers, or the evaluation itself where
    that samples."""
    found: dict[tuple[PolicyKey, str], str] = {}
    for key in grid.policies(config):
        evaluation = config.for_model(key.model).evaluation
        if evaluation.sampled is not None and evaluation.sampled.n > 1:
            folder = "eval" if evaluation.samples is None else "samples"
            found |= {(key, name): f"results/{key.folder}/{folder}/{name}.parquet" for name in config.benchmarks}
    return found


def drawn_beside(config: Config) -> dict[tuple[PolicyKey, str], str]:
    """The samples that a job of their own draws, beside the greedy answers."""
    return {at: file for at, file in sample_files(config).items() if "/samples/" in file}
