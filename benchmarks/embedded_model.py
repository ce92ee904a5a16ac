"""Make the embedded model: train candidates that differ in their seed, and keep the one with the median accuracy.

    python -m benchmarks.embedded_model                     # writes src/g2d/policies/embedded/
    python -m benchmarks.embedded_model --work FOLDER       # keeps the candidates there, trains only missing ones

A candidate takes a CPU minute. Its accuracy is measured on greedy answers to 500 development problems. They share no
expression with training or test problems, so no test problem influences the choice. `recipe.json` beside the weights
has all numbers and the digests of the files. The weights are shipped because other kernels make other weights.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from g2d.jobs.environment import pin_kernels
from g2d.policies.embedded import FOLDER, RECIPE, digests

SEEDS = range(5)
SETTINGS = {"muon": "float32", "length_group": 16}
PROBLEMS = {"family": "arithmetic", "split": "development", "n": 500, "seed": 0}


def train(seed: int, folder: Path) -> None:
    """Train a candidate unless it exists."""
    from benchmarks.scratch import Recipe, train_scratch
    from g2d.jobs.files import atomic_folder

    if not folder.is_dir():
        with atomic_folder(folder) as draft:
            train_scratch(Recipe(seed=seed, **SETTINGS), draft)


def accuracy(folder: Path, verifier: Any) -> float:
    """Greedy accuracy of a candidate on the development problems."""
    from g2d.policies import PolicyRecord
    from g2d.problems.prompts import Prompt
    from g2d.problems.synthetic import generate
    from g2d.rollouts.engine import Decoding
    from g2d.rollouts.rollout_keys import EngineSettings
    from g2d.rollouts.sample import engine_for, sample_rollouts

    problems = generate(**PROBLEMS)
    policy = PolicyRecord("m/base", "m", "base", base=str(folder))
    rollouts = sample_rollouts(
        policy,
        problems,
        Prompt(),
        Decoding(1, 0.0, 1.0, 56, 512, 0),
        engine=engine_for(policy, EngineSettings()),
        verifier=verifier,
    )
    return sum(rollout.reward for rollout in rollouts) / len(rollouts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / f"g2d-embedded-{os.getpid()}")
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    pin_kernels()
    import torch
    import transformers

    from benchmarks.scratch import Recipe
    from g2d.jobs.environment import kernels
    from g2d.jobs.files import sha256, write_json
    from g2d.verifier import Verifier

    torch.set_num_threads(1)
    accuracies = {}
    with Verifier() as verifier:
        for seed in SEEDS:
            train(seed, arguments.work / f"seed{seed}")
            accuracies[seed] = accuracy(arguments.work / f"seed{seed}", verifier)
            print(f"seed {seed}: {accuracies[seed]:.3f}", flush=True)
    chosen = sorted(SEEDS, key=lambda seed: (accuracies[seed], seed))[len(SEEDS) // 2]
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in digests():
        shutil.copyfile(arguments.work / f"seed{chosen}" / name, arguments.out / name)
    recipe = asdict(Recipe(seed=chosen, **SETTINGS))
    write_json(
        arguments.out / RECIPE,
        {
            "recipe": recipe,
            "chosen": "the median of the candidates' greedy accuracies on development problems",
            "problems": PROBLEMS,
            "candidates": {f"seed {seed}": accuracies[seed] for seed in SEEDS},
            "made_with": {
                "python": sys.version.split()[0],
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                **kernels(),
            },
            "sha256": {name: sha256(arguments.out / name) for name in digests()},
        },
    )
    print(f"kept seed {chosen} in {arguments.out}")


if __name__ == "__main__":
    main()
