"""Coverage of intervals, error and power of tests, and bias of corrections, in simulations with known truth.

Prints tables of docs/simulations.md. Tests: equally good policies, each warmed-up one against K=0 and all against M0;
then one of them is better. Accuracy: P(correct) = 0.6 + seed effect + difficulty. Harvest: 8 rollouts of 300 prompts.

    python benchmarks/coverage.py [tests pooling unstable entries table margins accuracy clusters harvest]
        [--runs 500]
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import scipy

from g2d.analysis.comparisons import compare
from g2d.analysis.crossed import INFLATION, Error, SeedPool, error_of_difference, stable
from g2d.analysis.informativeness import binary_entropy, corrected
from g2d.analysis.margins import Differences, smallest_margins
from g2d.analysis.statistics import accuracy_interval
from g2d.experiment.arms import Arm
from g2d.experiment.keys import PolicyKey
from g2d.tables.families import comparison_table

TRUTH = 0.6
LEVEL = 0.05
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


def answers(rng: np.random.Generator, n_seeds: int, n_questions: int, effect: float) -> np.ndarray:
    """Answers, (n_seeds, n_questions)."""
    difficulty = rng.uniform(-0.25, 0.25, (1, n_questions))
    seeds = rng.normal(0, effect, (n_seeds, 1))
    return (rng.random((n_seeds, n_questions)) < TRUTH + difficulty + seeds).astype(float)


def coverage(runs: int) -> None:
    print("| seeds | questions | sd of seeds | coverage | half width |")
    print("|---:|---:|---:|---:|---:|")
    for n_seeds, n_questions, effect in [
        *((1, n, 0.0) for n in (100, 500)),
        *((s, 500, effect) for s in (2, 5) for effect in (0.01, 0.03)),
    ]:
        rng = np.random.default_rng(0)
        ends = np.array([accuracy_interval(answers(rng, n_seeds, n_questions, effect)) for _ in range(runs)])
        covered = ((ends[:, 0] <= TRUTH) & (ends[:, 1] >= TRUTH)).mean()
        width = f"±{100 * np.diff(ends).mean() / 2:.1f}"
        print(f"| {n_seeds} | {n_questions} | {100 * effect:.0f} | {covered:.1%} | {width} |", flush=True)


def of_clusters(rng: np.random.Generator, n_seeds: int, sizes: np.ndarray, shared: float) -> np.ndarray:
    """Answers of two equally good policies, (2, n_seeds, n_questions), to clusters of questions: the share `shared` of
    the variance of a latent ability is from clusters, half of it by policy, the rest from questions and answers."""
    n = len(sizes)

    def part(share: float, *shape: int) -> np.ndarray:
        return math.sqrt(share) * rng.normal(size=shape)

    common = np.repeat(part(shared / 2, n) + part(shared / 2, 2, n), sizes, axis=1)[:, None]
    separate = part((1 - shared) / 3, sizes.sum()) + part((1 - shared) / 3, 2, 1, sizes.sum())
    latent = common + separate + part((1 - shared) / 3, 2, n_seeds, sizes.sum())
    return (latent < scipy.special.ndtri(TRUTH)).astype(float)


def clusters(runs: int) -> None:
    """Questions of one to nine a cluster: intervals and tests over questions and over clusters."""
    print(
        "| clusters | shared | accuracy: coverage, over questions | over clusters | "
        "equal policies differ, over questions | over clusters |"
    )
    print("|---:" * 6 + "|")
    for n_clusters, shared in itertools.product((20, 100), (0.0, 0.8)):
        sizes = np.resize([1, 3, 5, 7, 9], n_clusters)
        names, rng, outcomes = np.repeat(np.arange(n_clusters), sizes), np.random.default_rng(0), []
        for _ in range(runs):
            policy, other = of_clusters(rng, 3, sizes, shared)
            ends = np.array([accuracy_interval(policy, ids) for ids in (None, names)])
            covered = (ends[:, 0] <= TRUTH) & (ends[:, 1] >= TRUTH)
            differ = [compare(policy, other, clusters=ids).p_value <= LEVEL for ids in (None, names)]
            outcomes.append((*covered, *differ))
        cells = [f"{share:.1%}" for share in np.mean(outcomes, axis=0)]
        print(f"| {n_clusters} | {shared:.0%} | {' | '.join(cells)} |", flush=True)


def grid(
    rng: np.random.Generator,
    n_seeds: int,
    spread: np.ndarray,
    accuracy: float,
    gain: float = 0.0,
    n_questions: int = 500,
    unstable: float = 0.08,
) -> tuple[np.ndarray, np.ndarray]:
    """Answers of policies, (n_policies, n_seeds, n_questions), and of M0, (1, n_questions); the second policy gains.

    Every training answers a share of the questions afresh. Its seed moves its accuracy by a normal draw with the
    policy's standard deviation (`spread`, in 0..1), bounded to 0..1.
    """
    shape = (len(spread), n_seeds, n_questions)
    settled = rng.random(n_questions) < accuracy

    def afresh(size: tuple[int, ...]) -> np.ndarray:
        return np.where(rng.random(size) < unstable, rng.random(size) < accuracy, settled)

    policies, bound = afresh(shape), min(accuracy, 1 - accuracy)
    shift = rng.normal(0, 1, shape[:2]) * spread[:, None]
    shift = shift.clip(-bound, bound)
    shift[1] = (shift[1] + gain).clip(-bound, bound)
    chance = np.where(shift > 0, shift / (1 - accuracy), -shift / accuracy)[..., None]
    moved = rng.random(shape) < chance
    policies = np.where(moved, shift[..., None] > 0, policies)
    return policies.astype(float), afresh((1, n_questions)).astype(float)


def pool_of(policies: np.ndarray, *compared: int) -> SeedPool:
    """Return the pool that g2d uses to compare two of these policies, (n_policies, n_seeds, n_questions)."""
    return SeedPool.without_unstable(policies.mean(axis=2), compared)


def differences_of(policies: np.ndarray) -> Differences:
    return Differences(list(policies), lambda i, j: pool_of(policies, i, j) if policies.shape[1] > 1 else None)


def rejected(difference: np.ndarray, pool: SeedPool, paired: bool, family: int) -> bool:
    """Whether `g2d.analysis.comparisons.compare` has p <= LEVEL / family."""
    return rejects(error_of_difference(difference, pool, paired), family)


def rejects(error: Error, family: int = 1) -> bool:
    return bool(abs(error.middle) >= error.reach(LEVEL / family))


def tests(runs: int, seeds: Sequence[int], n_questions: int, accuracy: float, n_k: int) -> None:
    print("| seeds | sd of seeds | errs: K against K=0 | policies against M0 | found | coverage |")
    print("|---:" * 6 + "|")
    for n_seeds, (name, spread) in itertools.product(seeds, {"0": 0.0, "1": 0.01, "3": 0.03, "3 : 1": None}.items()):
        if n_seeds > 1 and spread == 0:
            continue
        # Three to one: the reference and the first K scatter more in turn.
        patterns = [np.full(n_k + 1, spread)] if spread is not None else [unequal(n_k + 1, at) for at in (0, 1)]
        gain, outcomes = (0.05 if accuracy < 0.9 else 0.02), []
        rng = np.random.default_rng(0)
        for run in range(runs):
            pattern = patterns[run % len(patterns)]
            policies, m0 = grid(rng, n_seeds, pattern, accuracy, 0.0, n_questions)
            against_m0 = any(
                rejected(policy - m0, pool_of(policies, i), False, n_k + 1) for i, policy in enumerate(policies)
            )
            wrong = any(
                rejected(policies[i] - policies[0], pool_of(policies, 0, i), True, n_k) for i in range(1, n_k + 1)
            )
            policies, _ = grid(rng, n_seeds, pattern, accuracy, gain, n_questions)
            pool, delta = pool_of(policies, 0, 1), policies[1] - policies[0]
            error = error_of_difference(delta, pool, True)
            covered = abs(error.middle - gain) < error.reach(LEVEL)
            outcomes.append((wrong, against_m0, rejects(error, n_k), covered))
        errs, errs_m0, finds, covered = np.mean(outcomes, axis=0)
        print(f"| {n_seeds} | {name} | {errs:.1%} | {errs_m0:.1%} | {finds:.0%} | {covered:.1%} |", flush=True)


def pooling(runs: int, noise: Sequence[float] = (0.02, 0.4)) -> None:
    """Families of normal accuracies in points: the largest share with a false winner over which policies scatter more,
    and the power for 3 points if all scatter by 1 point. The variance between seeds is the pair's own, or the larger
    one of it and the pooled variance, counted once or twice. `g2d.analysis.crossed` counts twice below `ENOUGH_SEEDS`,
    and uses t on the pair's seeds from there on."""
    rng = np.random.default_rng(0)

    def rejects(spread: Sequence[float], n_seeds: int, noise: float, gain: float = 0.0) -> np.ndarray:
        """(3 variances, runs, K > 0) rejections at the corrected level; noise is the variance of an accuracy."""
        n, degrees = len(spread), (len(spread) - 1) * (n_seeds - 1)
        sizes = (20 * runs, n, n_seeds)
        seen = rng.normal(0, 1, sizes) * np.array(spread)[:, None] + rng.normal(0, noise**0.5, sizes)
        seen[:, 1] += gain
        deltas = seen[:, 1:] - seen[:, :1]
        of_pair = deltas.var(axis=2, ddof=1) / n_seeds
        residuals = seen - seen.mean(axis=1, keepdims=True) - seen.mean(axis=2, keepdims=True)
        residuals += seen.mean(axis=(1, 2), keepdims=True)
        answer_noise = 2 * noise / n_seeds
        pooled = np.maximum(2 * (residuals**2).sum(axis=(1, 2)) / degrees / n_seeds, answer_noise)[:, None]
        twice = answer_noise + min(INFLATION, n / 2) * (pooled - answer_noise)
        variances = np.stack([of_pair, np.maximum(pooled, of_pair), np.maximum(twice, of_pair)])
        t = scipy.stats.t.isf(LEVEL / (n - 1) / 2, np.array([n_seeds - 1, degrees, degrees]))
        return np.abs(deltas.mean(axis=2)) > t[:, None, None] * np.sqrt(variances)

    def errs(ratio: float, n_k: int, n_seeds: int) -> np.ndarray:
        ones = [1.0] * (n_k - 1)
        patterns = ([ratio, *ones, 1.0], [1.0, *ones, ratio], [ratio, ratio, *ones], [*ones, ratio, ratio])
        worst = [rejects(pattern, n_seeds, v).any(axis=2).mean(axis=1) for pattern in patterns for v in noise]
        return np.max(worst, axis=0)

    print(
        "| seeds | K > 0 | counted once errs at 3 : 1 | twice at 1 : 1 | 3 : 1 | 4 : 1 | 10 : 1 "
        "| pair's own finds 3 points | counted twice |"
    )
    print("|---:" * 9 + "|")
    for n_k, n_seeds in itertools.product((3, 7), (2, 3, 5, 7, 8)):
        shares = {ratio: errs(ratio, n_k, n_seeds) for ratio in (1.0, 3.0, 4.0, 10.0)}
        finds = rejects([1.0] * (n_k + 1), n_seeds, noise[-1], 3.0)[:, :, 0].mean(axis=1)
        cells = [f"{share:.1%}" for share in (shares[3.0][1], *(share[2] for share in shares.values()))]
        cells += [f"{share:.0%}" for share in finds[[0, 2]]]
        print(f"| {n_seeds} | {n_k} | {' | '.join(cells)} |", flush=True)


def unstable(runs: int, n_policies: int = 4) -> None:
    """One policy of four scatters by other standard deviations than .8 to 3 points: errors of pairs without and with
    it and of families, and coverage and power for a gain of a stable policy."""
    print(
        "| seeds | sd of the unstable policy | pool | errs: stable pair | pair with the unstable policy "
        "| stable pair: finds 5 points | 10 points |"
    )
    print("|---:|---:|---|" + "---:|" * 4)
    for n_seeds, sd in itertools.product((3, 5), (0.01, 0.15)):
        rng, rows = np.random.default_rng(0), []
        for _ in range(runs):
            spread = np.array([sd, *rng.uniform(0.008, 0.03, n_policies - 1)])
            equal, *gained = (grid(rng, n_seeds, spread, TRUTH, gain)[0] for gain in (0.0, 0.05, 0.1))
            for every in (True, False):

                def error(policies: np.ndarray, i: int, j: int, every: bool = every) -> Error:
                    pool = SeedPool(policies.mean(axis=2)) if every else pool_of(policies, i, j)
                    return error_of_difference(policies[i] - policies[j], pool, True)

                pairs = [(equal, 1, 2), (equal, 0, 1), *((policies, 1, 2) for policies in gained)]
                rows.append([rejects(error(*pair)) for pair in pairs])
        for pool, shares in (("all", np.mean(rows[::2], axis=0)), ("stable", np.mean(rows[1::2], axis=0))):
            cells = [f"{share:.1%}" for share in shares[:2]] + [f"{share:.0%}" for share in shares[2:]]
            print(f"| {n_seeds} | {100 * sd:g} | {pool} | {' | '.join(cells)} |", flush=True)


def entries(runs: int) -> None:
    """One comparison of an entry with DPO. Seeds of DPO scatter by 0.8 points, those of the entry by as much, three or
    eight times as much: the error, and the power for 5 points."""
    print("| seeds | errs: sd 0.8 | sd 2.4 | sd 6 | finds 5 points: sd 0.8 | sd 2.4 |")
    print("|---:" * 6 + "|")
    for n_seeds in (2, 3, 5):
        cells = []
        for spread, gain in ((0.008, 0.0), (0.024, 0.0), (0.06, 0.0), (0.008, 0.05), (0.024, 0.05)):
            rng, wrong = np.random.default_rng(0), 0
            for _ in range(runs):
                # `grid` gives the gain to the second policy.
                policies, _ = grid(rng, n_seeds, np.array([0.008, spread, 0.008, 0.008, 0.008]), 0.6, gain)
                means = np.delete(policies, 1, axis=0).mean(axis=2)
                pool = SeedPool(means[stable(means)], has_both=False)
                wrong += rejected(policies[1] - policies[0], pool, True, 1)
            cells.append(f"{wrong / runs:.1%}" if not gain else f"{wrong / runs:.0%}")
        print(f"| {n_seeds} | {' | '.join(cells)} |", flush=True)


def table(runs: int) -> None:
    """Whole tables of comparisons of policies that are all alike, M0 too: in how many is some p_holm at most 5 %?"""
    print("| seeds | sd of seeds | errs |")
    print("|---:|---:|---:|")
    keys = [PolicyKey("m", "dpo", 2 if k else 0, k, 0) for k in (0, 150, 300)] + [PolicyKey("m", "grpo", 2, 300, 0)]
    keys += [PolicyKey.of("m", Arm(f"regime{i}", "rft", "entry"), (0, 0), 0) for i in range(10)]
    m0 = PolicyKey("m", "base", 0, 0, None)
    for n_seeds, spread in ((1, 0.0), (3, 0.01), (8, 0.01)):
        rng, rejections = np.random.default_rng(0), []
        for _ in range(max(runs // 2, 1)):
            policies, base = grid(rng, n_seeds, np.full(len(keys), spread), 0.78, n_questions=200)
            rows = [(m0, base[0])]
            for key, answers_by_seed in zip(keys, policies, strict=True):
                rows += [(replace(key, seed=seed), right) for seed, right in enumerate(answers_by_seed)]
            evaluations = {
                (key, "b"): pd.DataFrame({"problem_id": np.arange(len(right)), "reward": right}) for key, right in rows
            }
            rejections.append((comparison_table(evaluations)["p_holm"] <= LEVEL).any())
        print(f"| {n_seeds} | {100 * spread:.0f} | {np.mean(rejections):.1%} |", flush=True)


def margins(runs: int, n_k: int = 3) -> None:
    """Bounds for every K against the best: their mean if all K are equal; and, if one K is 4 points better than all
    others, how often some bound is too small and how often two rules accept K=0."""
    print(
        "| seeds | sd of seeds | equal: margin_shown of K=0, mean | 4 points worse: some bound is too small "
        "| K=0 is not significantly different | K=0 is shown to be less than 4 points worse |"
    )
    print("|---:" * 6 + "|")
    for n_seeds in (1, 2, 3, 5, 8):
        effect = 0.01 if n_seeds > 1 else 0.0
        rng, spread, shown, errors = np.random.default_rng(0), np.full(n_k + 1, effect), [], []
        for _ in range(runs):
            for gain in (0.0, 0.04):
                policies, _ = grid(rng, n_seeds, spread, 0.78, gain)
                differences = differences_of(policies)
                bounds = smallest_margins(differences)
                if gain:
                    wrong = any(bound.margin_shown < gain for i, bound in enumerate(bounds) if i != 1)
                    named = not rejected(policies[1] - policies[0], pool_of(policies, 0, 1), True, n_k)
                    errors.append((wrong, named, bounds[0].margin_shown <= gain))
                else:
                    shown.append(bounds[0].margin_shown)
        cells = " | ".join(f"{share:.1%}" for share in np.mean(errors, axis=0))
        print(f"| {n_seeds} | {100 * effect:.0f} | {100 * np.mean(shown):.1f} | {cells} |", flush=True)


def unequal(n_policies: int, at: int) -> np.ndarray:
    """One policy whose seeds scatter by 3 points, the others by 1."""
    return np.where(np.arange(n_policies) == at, 0.03, 0.01)


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
            estimates = [
                f"{np.mean(values, axis=0)[i]:.3f} ± {np.std(values, axis=0)[i]:.3f}" for values in (plain, fixed)
            ]
            cells += [f"{truth[i]:.3f}", *estimates]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


SEEDS = (1, 2, 3, 5, 8)

if __name__ == "__main__":
    simple = {
        "pooling": pooling,
        "unstable": unstable,
        "entries": entries,
        "table": table,
        "margins": margins,
        "accuracy": coverage,
        "clusters": clusters,
        "harvest": correction,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help="which ones (default: all)")
    parser.add_argument("--runs", type=int, default=500, help="simulated experiments per row")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of the table of tests")
    parser.add_argument("--questions", type=int, default=500, help="of the table of tests")
    parser.add_argument("--accuracy", type=float, default=0.78, help="of the table of tests")
    parser.add_argument("--warmed", type=int, default=5, help="number of K > 0 of the table of tests")
    arguments = parser.parse_args()
    for name in arguments.tables or ("tests", *simple):
        if name == "tests":
            tests(arguments.runs, arguments.seeds, arguments.questions, arguments.accuracy, arguments.warmed)
        else:
            simple[name](arguments.runs)
        print()
