"""Coverage of intervals, and error and power of tests, in simulations with known truth.

Prints tables of docs/simulations.md. Tests: equally good policies, each warmed-up one against K=0 and all against M0;
then one of them is better. Accuracy: P(correct) = 0.6 + seed effect + difficulty.

    python benchmarks/coverage.py [tests unstable pairing margins headline forms power accuracy clusters] [--runs 500]
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

from g2d.analysis.comparisons import Margin, margins_behind_best
from g2d.analysis.statistics import Error, accuracy_interval, error_of_difference, mean_squares
from g2d.forecast.power import DIFFER, FOR_EVERY_SEED, SEED_SDS, Size, smallest_difference
from g2d.grid.runs import Policy, Run
from g2d.report.answer import answer
from g2d.report.charts import without_ablations
from g2d.tables.accuracy import main_table

TRUTH = 0.6
DPO = Run("dpo", "dpo", "dpo")
LEVEL = 0.05


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
        *((s, n, effect) for n in (500, 1319) for s in (2, 3, 5) for effect in (0.01, 0.03, 0.05, 0.10)),
    ]:
        rng = np.random.default_rng(0)
        ends = np.array([accuracy_interval(answers(rng, n_seeds, n_questions, effect)) for _ in range(runs)])
        covered = ((ends[:, 0] <= TRUTH) & (ends[:, 1] >= TRUTH)).mean()
        width = f"±{100 * np.diff(ends).mean() / 2:.1f}"
        print(f"| {n_seeds} | {n_questions} | {100 * effect:.0f} | {covered:.1%} | {width} |", flush=True)


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


def evaluated(right: np.ndarray) -> pd.DataFrame:
    problems = np.arange(len(right))
    return pd.DataFrame({"problem_id": problems, "cluster": problems, "reward": right})


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
            against_m0 = any(rejects(error_of_difference(policy - m0), n_k + 1) for policy in policies)
            wrong = any(rejects(error_of_difference(policy - policies[0]), n_k) for policy in policies[1:])
            policies, _ = grid(rng, n_seeds, pattern, accuracy, gain, n_questions)
            error = error_of_difference(policies[1] - policies[0])
            covered = abs(error.middle - gain) < error.reach(LEVEL)
            outcomes.append((wrong, against_m0, rejects(error, n_k), covered))
        errs, errs_m0, finds, covered = np.mean(outcomes, axis=0)
        print(f"| {n_seeds} | {name} | {errs:.1%} | {errs_m0:.1%} | {finds:.0%} | {covered:.1%} |", flush=True)


def unstable(runs: int) -> None:
    """One policy of four scatters by 15 points, the others by .8 to 3: errors of pairs without and with it, and how
    often a gain of a stable policy is found."""
    print("| seeds | errs: stable pair | pair with the unstable policy | stable pair: finds 5 points | 10 points |")
    print("|---:" * 5 + "|")
    for n_seeds in (2, 3, 5, 8):
        rng, rows = np.random.default_rng(0), []
        for _ in range(runs):
            spread = np.array([0.15, *rng.uniform(0.008, 0.03, 3)])
            equal, *gained = (grid(rng, n_seeds, spread, TRUTH, gain)[0] for gain in (0.0, 0.05, 0.1))
            pairs = [(equal, 1, 2), (equal, 0, 1), *((policies, 1, 2) for policies in gained)]
            rows.append([rejects(error_of_difference(policies[i] - policies[j])) for policies, i, j in pairs])
        shares = np.mean(rows, axis=0)
        cells = [f"{share:.1%}" for share in shares[:2]] + [f"{share:.0%}" for share in shares[2:]]
        print(f"| {n_seeds} | {' | '.join(cells)} |", flush=True)


def margins(runs: int, n_k: int = 3) -> None:
    """Bounds for every K against the best: their mean if all K are equal; and, if one K is 4 points better than all
    others, how often some bound is too small and how often two rules accept K=0."""
    print(
        "| seeds | sd of seeds | equal: at_most of K=0, mean | 4 points worse: some bound is too small "
        "| K=0 is not significantly different | K=0 is shown to be less than 4 points worse |"
    )
    print("|---:" * 6 + "|")
    for n_seeds in (1, 2, 3, 5, 8):
        effect = 0.01 if n_seeds > 1 else 0.0
        rng, spread, shown, errors = np.random.default_rng(0), np.full(n_k + 1, effect), [], []
        for _ in range(runs):
            for gain in (0.0, 0.04):
                policies, _ = grid(rng, n_seeds, spread, 0.78, gain)
                bounds = margins_behind_best([*policies])
                if gain:
                    wrong = any(bound.at_most < gain for i, bound in enumerate(bounds) if i != 1)
                    named = not rejects(error_of_difference(policies[1] - policies[0]), n_k)
                    errors.append((wrong, named, bounds[0].at_most <= gain))
                else:
                    shown.append(bounds[0].at_most)
        cells = " | ".join(f"{share:.1%}" for share in np.mean(errors, axis=0))
        print(f"| {n_seeds} | {100 * effect:.0f} | {100 * np.mean(shown):.1f} | {cells} |", flush=True)


def headline(runs: int) -> None:
    """Verdicts on K=0 with a margin of 5 points, if one of three K > 0 leads all others."""
    verdicts = ("K=0 was enough on", "K=0 was not enough on", "K=0 was worse than the best K on", "is open on")
    print("| seeds | true lead | enough | not enough | worse than the best K | open | open: some K is excluded |")
    print("|---:" * 7 + "|")
    keys = [Policy("m", DPO, 2 if k else 0, k, 0) for k in (0, 150, 300, 450)]
    for n_seeds, gain in itertools.product((3, 5, 8), (0.0, 0.03, 0.05, 0.08, 0.12)):
        rng, said, excluded = np.random.default_rng(0), dict.fromkeys(verdicts, 0), 0
        for _ in range(runs):
            policies, _ = grid(rng, n_seeds, np.full(len(keys), 0.01), 0.78, gain)
            evaluations = {}
            for key, answers_by_seed in zip(keys, policies, strict=True):
                for seed, right in enumerate(answers_by_seed):
                    evaluations[replace(key, seed=seed), "b"] = evaluated(right)
            shown = answer(without_ablations(main_table(evaluations, {})), "m", "b", "greedy answers", 0.05).headline
            for verdict in verdicts:
                said[verdict] += verdict in shown
            excluded += "is open on" in shown and "any K may be the best" not in shown
        cells = " | ".join(f"{n / runs:.1%}" for n in (*said.values(), excluded))
        print(f"| {n_seeds} | {100 * gain:.0f} | {cells} |", flush=True)


# Accuracies of K=0 and three K > 0, in points.
TRUTHS = (
    *((78, 78, 78, 78), (78, 81, 78, 78), (78, 82.9, 78, 78), (78, 83, 78, 78), (78, 86, 78, 78), (78, 83, 83, 78)),
    *((83, 78, 78, 78), (83, 83, 78, 78), (78, 80, 82, 84), (84, 82, 80, 78), (75, 78, 58, 46), (78, 78, 78, 60)),
)
# Standard deviations over seeds, in points.
SCATTERS = ((1, 1, 1, 1), (5, 5, 5, 5), (5, 1, 1, 1), (1, 5, 1, 1))
FORMS = (
    "the set has no best K",
    "enough",
    "not enough",
    "worse than the best K",
    "at least",
    "at most, of some K",
    "any of these",
)


def false_forms(behind: np.ndarray, margins: Sequence[Margin], margin: float) -> list[bool]:
    """Which of `FORMS` the headline says falsely if K=0 and the others are truly so far behind the best."""
    at_least = np.array([one.at_least for one in margins])
    at_most = np.array([one.at_most for one in margins])
    enough = bool(at_most[0] <= margin)
    worse = bool(at_least[0] > 0) and not enough
    false = [
        not (at_least[behind == 0] == 0).any(),
        enough and at_most[0] < behind[0],
        worse and behind[0] < margin <= at_least[0],
        worse and behind[0] == 0,
        worse and at_least[0] > behind[0],
        bool((at_most < behind).any()),
    ]
    return [*false, any(false)]


def forms(runs: int, n_questions: int = 300) -> None:
    """How often the headline is wrong with a margin of 5 points, over `TRUTHS` and `SCATTERS`."""
    print("| seeds | " + " | ".join(FORMS) + " |")
    print("|---:" * (1 + len(FORMS)) + "|")
    for n_seeds in (3, 5, 10):
        rng, cells = np.random.default_rng(0), []
        for truth, scatter in itertools.product(TRUTHS, SCATTERS):
            accuracies, sds = np.array(truth) / 100, np.array(scatter) / 100
            behind = accuracies.max() - accuracies
            said = []
            for _ in range(runs):
                policies, _ = latent(rng, accuracies, sds, n_seeds, n_questions)
                said.append(false_forms(behind, margins_behind_best([*policies]), 0.05))
            cells.append(np.mean(said, axis=0))
        most, mean = np.max(cells, axis=0), np.mean(cells, axis=0)
        words = [f"{100 * high:.1f} / {100 * middle:.1f}" for high, middle in zip(most, mean, strict=True)]
        print(f"| {n_seeds} | {' | '.join(words)} |", flush=True)


# Shares of the variance of a latent ability: of the expression, of the policy's way with it, of the training's, and of
# the wording with the single answer.
EXPRESSION, POLICY, TRAINING, WORDING = 0.65, 0.2, 0.13, 0.02


def latent(
    rng: np.random.Generator, accuracies: np.ndarray, sds: np.ndarray, n_seeds: int, expressions: int, wordings: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Answers of policies, (n_policies, n_seeds, expressions wordings), and of M0 with the accuracy `TRUTH`, (1, ...).

    An answer is right if the latent ability exceeds a threshold. The seeds of a policy scatter by its `sds` (in 0..1).
    """
    shared = rng.normal(0, math.sqrt(EXPRESSION), (1, 1, expressions, 1))

    def right(accuracies: np.ndarray, sds: np.ndarray, n_seeds: int) -> np.ndarray:
        bars = scipy.special.ndtri(1 - accuracies)
        of_seeds = sds * math.sqrt(2 * math.pi) * np.exp(bars**2 / 2)
        bars = bars * np.sqrt(1 + of_seeds**2)
        n_policies = len(accuracies)
        ability = shared + rng.normal(0, math.sqrt(POLICY), (n_policies, 1, expressions, 1))
        ability = ability + rng.normal(0, math.sqrt(TRAINING), (n_policies, n_seeds, expressions, 1))
        ability = ability + rng.normal(0, 1, (n_policies, n_seeds, 1, 1)) * of_seeds[:, None, None, None]
        ability = ability + rng.normal(0, math.sqrt(WORDING), (n_policies, n_seeds, expressions, wordings))
        answers: np.ndarray = ability > bars[:, None, None, None]
        return answers.reshape(n_policies, n_seeds, expressions * wordings).astype(float)

    return right(accuracies, sds, n_seeds), right(np.array([TRUTH]), np.zeros(1), 1)[0]


def clusters(runs: int, n_k: int = 3) -> None:
    """Intervals and tests over problems and over clusters, if 256 problems are wordings of a few expressions."""
    print(
        "| expressions | seeds | sd of seeds | accuracy: coverage, over problems | over clusters "
        "| errs: K against K=0, over problems | over clusters "
        "| policies against M0, over problems | over clusters |"
    )
    print("|---:" * 9 + "|")
    designs = [(1, 0.0), *itertools.product((3, 5, 10), (0.01, 0.05))]
    for n, (n_seeds, sd) in [*itertools.product((4, 8), designs[::3]), *itertools.product((32,), designs)]:
        expressions = np.repeat(np.arange(n), 256 // n)
        rng = np.random.default_rng(0)
        outcomes = []
        for _ in range(runs):
            policies, m0 = latent(rng, np.full(n_k + 1, TRUTH), np.full(n_k + 1, sd), n_seeds, n, 256 // n)
            outcome = []
            for of in (None, expressions):
                low, high = accuracy_interval(policies[0], of)
                against_zero = [error_of_difference(policy - policies[0], of) for policy in policies[1:]]
                against_m0 = [error_of_difference(policy - m0, of) for policy in policies]
                covered = low <= TRUTH <= high
                errs = any(rejects(error, n_k) for error in against_zero)
                outcome.append((covered, errs, any(rejects(error, n_k + 1) for error in against_m0)))
            outcomes.append(np.transpose(outcome).ravel())
        cells = [f"{share:.1%}" for share in np.mean(outcomes, axis=0)]
        print(f"| {n} | {n_seeds} | {100 * sd:.0f} | {' | '.join(cells)} |", flush=True)


def unequal(n_policies: int, at: int) -> np.ndarray:
    """One policy whose seeds scatter by 3 points, the others by 1."""
    return np.where(np.arange(n_policies) == at, 0.03, 0.01)


def power(runs: int) -> None:
    """Differences that `g2d plan` prints for a family of three, and how often normal answers with its variances find
    them."""
    print("| questions | seeds | sd of seeds | smallest difference | found |")
    print("|---:" * 5 + "|")
    for n_questions, n_seeds, sd in itertools.product((30, 500), (1, 3, 5, 8), SEED_SDS):
        if n_seeds == 1 and sd > SEED_SDS[0]:
            continue
        rng, found = np.random.default_rng(0), 0
        difference = smallest_difference(n_seeds, Size(n_questions, n_questions), sd, 3)
        for _ in range(runs):
            values = difference + rng.normal(0, math.sqrt(FOR_EVERY_SEED), (1, n_questions))
            values = values + rng.normal(0, math.sqrt(DIFFER - FOR_EVERY_SEED), (n_seeds, n_questions))
            values += rng.normal(0, math.sqrt(2) * sd * (n_seeds > 1), (n_seeds, 1))
            found += rejects(error_of_difference(values), 3)
        shown = f"{100 * sd:g}" if n_seeds > 1 else ""
        print(f"| {n_questions} | {n_seeds} | {shown} | {100 * difference:.1f} | {found / runs:.0%} |", flush=True)


def pairing(runs: int, n_questions: int = 500) -> None:
    """Seeds in pairs, as the tests have them, or as two independent samples (Satterthwaite), in a family of three."""
    print("| seeds | sd of seeds | correlation | true lead | errs: pairs | two samples | finds: pairs | two samples |")
    print("|---:" * 8 + "|")
    for (n_seeds, sd, lead), correlation in itertools.product(((3, 0.01, 0.05), (5, 0.05, 0.1)), (0.0, 0.5, 0.9)):
        rng, outcomes = np.random.default_rng(0), []
        for _ in range(runs):
            seeds = math.sqrt(1 - correlation) * rng.normal(0, sd, (2, n_seeds))
            seeds = seeds + math.sqrt(correlation) * rng.normal(0, sd, n_seeds)
            both = seeds[..., None] + rng.normal(0, math.sqrt(DIFFER / 2), (2, n_seeds, n_questions))
            outcome = []
            for gain in (0.0, lead):
                first, second = both[0] + gain, both[1]
                pairs = error_of_difference(first - second)
                parts = np.array([mean_squares(first)[0], mean_squares(second)[0]])
                degrees = float((n_seeds - 1) * parts.sum() ** 2 / (parts**2).sum())
                samples = replace(pairs, seeds=float(parts.sum()), seed_degrees=degrees)
                outcome += [rejects(pairs, 3), rejects(samples, 3)]
            outcomes.append(outcome)
        cells = " | ".join(f"{share:.1%}" for share in np.mean(outcomes, axis=0))
        print(f"| {n_seeds} | {100 * sd:.0f} | {correlation:g} | {100 * lead:.0f} | {cells} |", flush=True)


SEEDS = (1, 2, 3, 5, 8)

if __name__ == "__main__":
    simple = {
        "unstable": unstable,
        "margins": margins,
        "headline": headline,
        "power": power,
        "accuracy": coverage,
        "clusters": clusters,
        "forms": forms,
        "pairing": pairing,
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
