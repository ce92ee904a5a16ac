"""Do the intervals cover, and what does the correction for eight rollouts correct? Simulations with known truth.

Prints the tables of docs/analysis.md. Accuracy: answers are drawn with P(correct) = 0.6 + seed effect + difficulty;
difference: such a policy minus an M0 without seeds, on the same questions. Harvest: 8 rollouts of 300 prompts whose p
is drawn from a known distribution. Advice: probes of harvests of 1500 prompts at four K, which differ by much, by
little or by chance alone.

    python benchmarks/coverage.py
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
import pandas as pd

from g2d.advice.probe import step_advice
from g2d.grid import HarvestKey
from g2d.informativeness import binary_entropy
from g2d.mixing import corrected
from g2d.statistics import hierarchical_bootstrap

TRUTH, GAIN = 0.6, 0.1
PRIORS = {
    "Beta(0.5, 0.8)": lambda rng, n: rng.beta(0.5, 0.8, n),
    "Beta(2, 2)": lambda rng, n: rng.beta(2, 2, n),
    "two kinds: Beta(8, 40), Beta(40, 8)": lambda rng, n: np.where(
        rng.random(n) < 0.5, rng.beta(8, 40, n), rng.beta(40, 8, n)
    ),
    "20 % never, 20 % always, else Beta(2, 2)": lambda rng, n: np.where(
        rng.random(n) < 0.4, rng.integers(0, 2, n).astype(float), rng.beta(2, 2, n)
    ),
}


def answers(rng: np.random.Generator, n_seeds: int, n_questions: int, effect: float, paired: bool) -> np.ndarray:
    """Answers (n_seeds, n_questions), or their differences from M0's."""
    difficulty = rng.uniform(-0.25, 0.25, (1, n_questions))
    seeds = rng.normal(0, effect, (n_seeds, 1))
    policy = (rng.random((n_seeds, n_questions)) < TRUTH + difficulty + seeds).astype(float)
    return policy - (rng.random((1, n_questions)) < TRUTH - GAIN + difficulty) if paired else policy


def coverage(runs: int) -> None:
    print("| seeds | questions | sd of seeds | accuracy: coverage | half width | difference: coverage | half width |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for n_seeds, n_questions, effect in [
        *((1, n, 0.0) for n in (100, 500)),
        *((s, n, effect) for s in (2, 5) for n in (100, 500) for effect in (0.0, 0.01, 0.03)),
    ]:
        cells = []
        for paired, truth in ((False, TRUTH), (True, GAIN)):
            rng = np.random.default_rng(0)
            ends = np.array(
                [
                    hierarchical_bootstrap(
                        answers(rng, n_seeds, n_questions, effect, paired), resamples=500, seed=i % 5
                    )
                    for i in range(runs)
                ]
            )
            covered = ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()
            cells.append(f"{covered:.1%} | ±{100 * np.diff(ends).mean() / 2:.1f} points")
        print(f"| {n_seeds} | {n_questions} | {100 * effect:.0f} points | {' | '.join(cells)} |", flush=True)


def correction(runs: int, n_prompts: int = 300, n: int = 8) -> None:
    print("| p(x) over prompts | H true | plug-in | corrected | mu true | plug-in | corrected |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, prior in PRIORS.items():
        rng = np.random.default_rng(0)
        p = prior(rng, 1_000_000)
        p = p[(p > 0) & (p < 1)]
        weights = 1 - p**n - (1 - p) ** n
        truth = [np.average(value, weights=weights) for value in (binary_entropy(p), (p >= 3 / 8) & (p <= 5 / 8))]
        plain, fixed = [], []
        for _ in range(runs):
            table = pd.DataFrame({"n": n, "correct": rng.binomial(n, prior(rng, n_prompts))})
            share = table["correct"][table["correct"].between(1, n - 1)] / n
            plain.append((binary_entropy(share.to_numpy()).mean(), share.between(3 / 8, 5 / 8).mean()))
            fixed.append(corrected(table))
        cells = []
        for i in range(2):
            found = [f"{np.mean(values, axis=0)[i]:.3f} ± {np.std(values, axis=0)[i]:.3f}" for values in (plain, fixed)]
            cells += [f"{truth[i]:.3f}", *found]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


SHIFTS = {  # of the log-odds of a right answer, by K; the nearer to 0, the higher is H
    "by much": (2.0, 1.0, 0.0, 2.5),
    "by little": (1.2, 0.8, 0.5, 1.0),
    "by chance": (0.5, 0.5, 0.5, 0.5),
}


def advice(runs: int, n_prompts: int = 1500, n: int = 8) -> None:
    print("| K differ | prompts probed | pairs: coverage | H | mu | advised K has the highest H | chance given |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for (name, shifts), n_probed in itertools.product(SHIFTS.items(), (20, 50, 200)):
        rng = np.random.default_rng(0)
        inside, right, chance = [], [], []
        for _ in range(runs):
            difficulty = rng.normal(size=n_prompts)
            harvests = {}
            for k, shift in enumerate(shifts):
                correct = rng.binomial(n, 1 / (1 + np.exp(-difficulty - shift)))
                harvests[HarvestKey("m", 2 if k else 0, k, 0)] = pd.DataFrame(
                    {"problem_id": np.arange(n_prompts), "n": n, "correct": correct, "p_hat": correct / n}
                )
            found = step_advice({key: frame.head(n_probed) for key, frame in harvests.items()}, n_prompts)
            truth = step_advice(harvests, n_prompts)
            inside.append(
                [
                    ((found[f"{name}_low"] <= truth[name]) & (truth[name] <= found[f"{name}_high"])).mean()
                    for name in ("n_pairs", "entropy", "mid_band")
                ]
            )
            right.append(bool(truth["entropy"][found["advised"].argmax()] == truth["entropy"].max()))
            chance.append(found["p_best_entropy"][found["advised"].argmax()])
        covered = " | ".join(f"{share:.1%}" for share in np.mean(inside, axis=0))
        print(f"| {name} | {n_probed} | {covered} | {np.mean(right):.0%} | {np.mean(chance):.0%} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="simulated experiments per row")
    arguments = parser.parse_args()
    coverage(arguments.runs)
    print()
    correction(arguments.runs)
    print()
    advice(arguments.runs)
