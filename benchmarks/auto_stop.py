"""Influence of chance on an early-stopping warm-up: its rule on simulated probes with known truth.

    python benchmarks/auto_stop.py

There are twenty probes of 8 rollouts per prompt. The log-odds of solving a prompt are normal over prompts with standard
deviation 1.5. Their mean stays 0 in "flat" (no decline) and rises from -2 to 2 in "peak" (H and mu are highest between
probes 10 and 11). Successive probes draw independently, the worst case: the engine gives a prompt
the same random numbers every time, so a policy that has hardly moved gets nearly the same samples.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from g2d.analysis.informativeness import binary_entropy
from g2d.regimes.grpo.auto_stop import Probe, best, has_declined

RUNS, PROBES, ROLLOUTS = 500, 20, 8


def probe(step: int, p: np.ndarray, random: np.random.Generator) -> Probe:
    """A probe of prompts that are solved with probabilities p, shape (prompts,)."""
    shares = random.binomial(ROLLOUTS, p) / ROLLOUTS
    pairable = shares[(shares > 0) & (shares < 1)]
    entropy = float(binary_entropy(pairable).mean()) if len(pairable) else None
    middle = float(np.mean((pairable >= 3 / 8) & (pairable <= 5 / 8))) if len(pairable) else None
    rho = len(pairable) / len(p)
    return Probe(step, 0, len(p), float(shares.mean()), rho, rho, rho, entropy, None, None, middle, None, None)


def run(prompts: int, patience: int, means: np.ndarray, random: np.random.Generator) -> tuple[int, int]:
    """Return the probe at which the warm-up stops, and the probe it chooses."""
    difficulty, history = random.normal(0, 1.5, prompts), []
    for i, mean in enumerate(means):
        history.append(probe(i + 1, expit(mean + difficulty), random))
        if has_declined(history, patience):
            break
    return history[-1].step, best(history).step


def main() -> None:
    random = np.random.default_rng(0)
    print("| prompts | patience | flat: stops at | peak: stops at | peak: chooses |\n|---:|---:|---:|---:|---:|")
    for prompts in (200, 1500):
        for patience in (2, 3, 4):
            cells = []
            for name, means in (("flat", np.zeros(PROBES)), ("peak", np.linspace(-2, 2, PROBES))):
                stops_and_choices = np.array([run(prompts, patience, means, random) for _ in range(RUNS)])
                stops, chosen = (f"{column.mean():.1f} ± {column.std():.1f}" for column in stops_and_choices.T)
                cells += [stops] if name == "flat" else [stops, chosen]
            print(f"| {prompts} | {patience} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
