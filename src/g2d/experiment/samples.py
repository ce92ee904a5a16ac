"""Where several answers of a policy to every problem lie: what pass@k and maj@n are computed from."""

from __future__ import annotations

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.keys import PolicyKey


def sample_files(config: Config) -> dict[tuple[PolicyKey, str], str]:
    """By policy and benchmark, the file of samples: drawn beside the greedy answers, or the evaluation itself where
    that samples."""
    places = drawn_beside(config) | _places(config, beside=False)
    return {at: f"results/{place}.parquet" for at, place in places.items()}


def drawn_beside(config: Config) -> dict[tuple[PolicyKey, str], str]:
    """By policy and benchmark, where a job of its own leaves samples and their bill: below the results folder, without
    an ending."""
    return _places(config, beside=True)


def _places(config: Config, beside: bool) -> dict[tuple[PolicyKey, str], str]:
    folder = "samples" if beside else "eval"
    return {
        (key, benchmark): f"{key.folder}/{folder}/{benchmark}"
        for key in grid.policies(config)
        if (sampled := config.for_model(key.model).evaluation.sampled) is not None
        and sampled.n > 1
        and sampled.beside_greedy == beside
        for benchmark in config.benchmarks
    }
