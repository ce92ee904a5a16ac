"""Interim analyses ("looks"): comparisons of a grid, tested after each stage of seeds, with one error over all looks.

Within a family each look tests in Holm's steps, at the levels of group-sequential boundaries (Tamhane, Xi and Gou 2021,
"Group sequential Holm and Hochberg procedures"; docs/analysis.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
import scipy

from g2d.analysis.crossed import ENOUGH_SEEDS, Error, SeedPool, error_of_difference
from g2d.analysis.margins import by_seed
from g2d.analysis.spending import Spending, nominal_level
from g2d.analysis.statistics import one_side

Verdict = Literal["better", "worse", "within", "open", "given up"]
Status = Literal["settled", "not worth going on", "open"]
Steps = Literal["holm", "hochberg"]
SETTLED = ("better", "worse", "within")
LATER = 2.0  # power of the information in the spending function, because tests of few seeds find less than it implies


@dataclass(frozen=True, slots=True)
class Asked:
    family: str
    policy: str
    reference: str


@dataclass(frozen=True)
class Plan:
    looks: tuple[int, ...]  # seeds of a policy at each of its looks, rising, at least two
    asked: tuple[Asked, ...]
    margin: float  # 0..1: less than this apart is "within the margin"
    spending: Spending = "obrien_fleming"
    error: float = 0.05  # probability of a wrong verdict in each family over all looks
    futility: float = 0.015  # a comparison with a smaller chance to be settled, per further seed, is given up
    alike: tuple[str, ...] = ()  # policies whose seed variance is pooled
    without_seeds: tuple[str, ...] = ()  # M0
    steps: Steps = "hochberg"  # plans of earlier versions lack the field

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(name for comparison in self.asked for name in (comparison.policy, comparison.reference))
        )


@dataclass(frozen=True, slots=True)
class Compared(Asked):
    """A comparison at its last look; accuracies are in 0..1, differences in -1..1."""

    n_seeds: int = 0  # seeds that both policies have
    fractions: tuple[float, ...] = ()  # information at each of its looks, as a share of the last planned look's
    estimate: float = 0.0  # accuracy of the policy minus the reference's
    standard_error: float = 0.0
    p_value: float = 1.0  # two-sided, of "no difference"
    boundary: float = 0.0  # the policies differ if p_value is at most this
    p_margin: float = 1.0  # two-sided, of "the margin apart, or more"
    boundary_margin: float = 0.0  # they are within the margin if p_margin is at most this
    low: float = -1.0  # repeated confidence interval, simultaneous over looks and the family
    high: float = 1.0
    verdict: Verdict = "open"
    look: int = 0  # number of the look of these values, or of the verdict
    chance_next: float = 0.0  # probability that the next look settles it, from the current estimates
    chance: float = 0.0  # probability that the remaining seeds settle it


@dataclass(frozen=True, slots=True)
class Decision:
    policy: str
    status: Status
    why: str
    seeds: int  # now
    next_seeds: int  # needed at the next look


@dataclass(frozen=True)
class Look:
    plan: Plan
    number: int
    comparisons: tuple[Compared, ...]  # in the order of `plan.asked`
    policies: tuple[Decision, ...]  # in the order of `plan.policies`

    @property
    def next(self) -> dict[str, int]:
        return {
            decision.policy: decision.next_seeds for decision in self.policies if decision.next_seeds > decision.seeds
        }


def take_look(
    plan: Plan,
    results: Mapping[str, np.ndarray],
    earlier: Sequence[Look] = (),
    clusters: np.ndarray | None = None,
) -> Look:
    """Test the open comparisons and decide which policies get further seeds.

    Args:
        results: (n_seeds, n_questions) shares of right answers by policy, with the same questions and order of seeds;
            one row for a policy without seeds. Seeds that the plan does not need yet are left out.
        clusters: cluster of each question.

    Raises:
        ValueError: earlier looks were taken with another plan, all are taken, or seeds are missing.
    """
    wanted = _seeds_now(plan, earlier)
    answers = {policy: _cut(policy, results, n) for policy, n in wanted.items()}
    number = len(earlier) + 1
    before = earlier[-1].comparisons if earlier else tuple(Compared(**asdict(comparison)) for comparison in plan.asked)
    compared = dict(enumerate(before))
    for family in dict.fromkeys(comparison.family for comparison in plan.asked):
        members = {i: comparison for i, comparison in enumerate(before) if comparison.family == family}
        left = {i: comparison for i, comparison in members.items() if comparison.verdict == "open"}
        testable = {
            i: comparison for i, comparison in left.items() if {comparison.policy, comparison.reference} <= set(answers)
        }
        tests = {i: _Test.of(plan, comparison, answers, clusters) for i, comparison in testable.items()}
        compared |= _judged(plan, members, tests, number)
    return _decided(plan, number, _without_beaten(list(compared.values())), wanted)


def _seeds_now(plan: Plan, earlier: Sequence[Look]) -> dict[str, int]:
    none = dict.fromkeys((p for p in plan.policies if p in plan.without_seeds), 1)
    if not earlier:
        return dict.fromkeys(plan.policies, plan.looks[0]) | none
    last = earlier[-1]
    if last.plan != plan:
        raise ValueError(
            f"look {last.number} was taken with another plan; a changed plan starts with its own first look"
        )
    if not last.next:
        raise ValueError(f"look {last.number} was the last: no policy gets further seeds")
    return {decision.policy: decision.next_seeds for decision in last.policies if decision.next_seeds} | none


def _cut(policy: str, results: Mapping[str, np.ndarray], n_seeds: int) -> np.ndarray:
    answers = np.asarray(results.get(policy, np.zeros((0, 0))), dtype=float)
    if len(answers) < n_seeds:
        raise ValueError(f"{policy} has {len(answers)} seeds of the {n_seeds} that this look needs")
    return answers[:n_seeds]


@dataclass(frozen=True)
class _Test:
    plan: Plan
    estimate: float
    error: Error
    n_seeds: int
    fractions: tuple[float, ...]  # up to this look

    @classmethod
    def of(
        cls, plan: Plan, comparison: Compared, answers: Mapping[str, np.ndarray], clusters: np.ndarray | None
    ) -> _Test:
        deltas = by_seed(answers[comparison.policy], answers[comparison.reference])
        n, paired = len(deltas), comparison.reference not in plan.without_seeds
        names = dict.fromkeys((*(p for p in plan.alike if p in answers), comparison.policy, comparison.reference))
        # Both are in the pool: with their own variance two seeds would decide nothing, and looks keep their error
        # with one policy that scatters five times as much (docs/analysis.md).
        pooled = [p for p in names if len(answers[p]) >= n and p not in plan.without_seeds]
        pool = SeedPool(np.stack([answers[p][:n].mean(axis=1) for p in pooled]))
        error = error_of_difference(deltas, pool, paired, clusters)
        test = cls(plan, float(deltas.mean()), error, n, comparison.fractions)
        return replace(test, fractions=(*comparison.fractions, test.fraction(n)))

    @property
    def seeds_variance(self) -> float:
        return max(self.error.expected_seeds, self.error.noise)

    def fraction(self, n_seeds: int) -> float:
        """Return the information at so many seeds as a fraction of the last look's, never falling; in hundredths, so
        that boundaries are few."""
        most = self.plan.looks[-1]
        if n_seeds >= most:
            return 1.0
        per_seed = self.seeds_variance * self.n_seeds
        last = self.error.questions + per_seed / most
        now = round(last / (self.error.questions + per_seed / n_seeds), 2)
        return max(now, *self.fractions, 0.01)

    @property
    def p_margin(self) -> float:
        """Return the two-sided p-value of the nearer end of the margin; 1 outside it."""
        middle, margin = self.error.middle, self.plan.margin
        return self.error.p_value(math.copysign(margin, middle)) if abs(middle) < margin else 1.0

    def level(self, error: float, later: Sequence[float] = ()) -> float:
        """Return the level of the test at this look, or after later ones, for an error of the whole path."""
        return nominal_level((*self.fractions, *later), error, self.plan.spending, LATER)

    def at(self, n_seeds: int) -> Error:
        share = self.n_seeds / n_seeds
        seeds, degrees = self.error.seeds, self.error.seed_degrees * (n_seeds - 1) // (self.n_seeds - 1)
        if n_seeds >= ENOUGH_SEEDS:
            seeds, degrees = self.seeds_variance, n_seeds - 1
        return replace(self.error, seeds=seeds * share, seed_degrees=degrees, noise=self.error.noise * share)

    def chance(self, n_seeds: int, error: float, error_margin: float) -> float:
        """Return the predictive probability that a look at more seeds settles the comparison, with these errors left.

        Normal approximation: further seeds move the estimate with variance S (1 - n / n'), where S is the part of
        its variance that comes from seeds.
        """
        later = [self.fraction(n) for n in self.plan.looks if self.n_seeds < n <= n_seeds]
        level, level_margin = (self.level(allowed, later) for allowed in (error, error_margin))
        spread = math.sqrt(max(self.seeds_variance * (1 - self.n_seeds / n_seeds), 1e-12))
        then = self.at(n_seeds)
        far = then.reach(level) if level else math.inf
        near = max(self.plan.margin - then.reach(level_margin), 0.0) if level_margin else 0.0
        above, below, high, low = (
            float(scipy.special.ndtr((end - then.middle) / spread)) for end in (far, -far, near, -near)
        )
        return min(1 - above + below + high - low, 1.0)


def _judged(
    plan: Plan, members: Mapping[int, Compared], tests: Mapping[int, _Test], number: int
) -> dict[int, Compared]:
    size, verdicts = len(members), [comparison.verdict for comparison in members.values()]
    n_different, n_within = sum(v in ("better", "worse") for v in verdicts), verdicts.count("within")

    def level(error: float) -> Callable[[int, int], float]:
        return lambda i, rejected: tests[i].level(error / (size - rejected))

    p_values = {i: test.error.p_value() for i, test in tests.items()}
    p_margin = {i: test.p_margin for i, test in tests.items()}
    different = stepped(plan.steps, p_values, n_different, level(plan.error))
    # Only one end of the margin can be wrong, so each is tested one-sided at the family's error.
    within = stepped(plan.steps, p_margin, n_within, level(2 * plan.error))
    rank, rank_margin = _ranks(p_values, n_different), _ranks(p_margin, n_within)
    judged = {}
    for i, test in tests.items():
        low, high = test.error.interval(test.level(plan.error / size))
        verdict: Verdict = "open"
        chances: list[tuple[int, float]] = []
        if p_values[i] <= different[i]:
            verdict = "better" if test.error.middle > 0 else "worse"
            low, high = one_side(low, high, test.error.middle > 0)
        elif p_margin[i] <= within[i]:
            verdict = "within"
        else:
            errors = plan.error / (size - rank[i]), 2 * plan.error / (size - rank_margin[i])
            chances = [(n, test.chance(n, *errors)) for n in plan.looks if n > test.n_seeds]
            if all(chance < plan.futility * (n - test.n_seeds) for n, chance in chances):
                verdict, chances = "given up", []
        judged[i] = replace(
            members[i],
            n_seeds=test.n_seeds,
            fractions=test.fractions,
            estimate=test.estimate,
            standard_error=test.error.standard_error,
            p_value=p_values[i],
            boundary=different[i],
            p_margin=p_margin[i],
            boundary_margin=within[i],
            low=low,
            high=high,
            verdict=verdict,
            look=number,
            chance_next=chances[0][1] if chances else 0.0,
            chance=max((chance for _, chance in chances), default=0.0),
        )
    return judged


def stepped(
    steps: Steps, p_values: Mapping[int, float], rejected: int, level: Callable[[int, int], float]
) -> dict[int, float]:
    """Return the level at or below which the p-value of each comparison is rejected at one look.

    Holm (1979) rejects one after another as long as the next p-value is at most its level. Hochberg (1988, section 2)
    takes the largest k for which k p-values are at most their levels with all but k - 1 of the family left.

    Args:
        rejected: number of comparisons of the family that were rejected before.
        level: level of a comparison's test with so many rejected.
    """
    numbers = range(len(p_values))
    levels: dict[int, float] = {}
    for before in reversed(numbers) if steps == "hochberg" else numbers:
        levels = {i: level(i, rejected + before) for i in p_values}
        more = sum(p_values[i] <= levels[i] for i in p_values) > before
        if more == (steps == "hochberg"):
            break
    return levels


def _ranks(p_values: Mapping[int, float], rejected: int) -> dict[int, int]:
    return {i: rejected + rank for rank, i in enumerate(sorted(p_values, key=lambda i: p_values[i]))}


def _without_beaten(compared: Sequence[Compared]) -> list[Compared]:
    beaten, contenders = _beaten(compared), {(comparison.family, comparison.policy) for comparison in compared}
    return [
        replace(comparison, verdict="given up", chance=0.0, chance_next=0.0)
        if comparison.verdict == "open"
        and any(p in beaten and (comparison.family, p) in contenders for p in (comparison.policy, comparison.reference))
        else comparison
        for comparison in compared
    ]


def _beaten(compared: Sequence[Compared]) -> set[str]:
    worse = {comparison.policy for comparison in compared if comparison.verdict == "worse"}
    return worse | {comparison.reference for comparison in compared if comparison.verdict == "better"}


def _decided(plan: Plan, number: int, compared: Sequence[Compared], seeds: Mapping[str, int]) -> Look:
    beaten, decisions = _beaten(compared), []
    for policy in plan.policies:
        comparisons = [c for c in compared if policy in (c.policy, c.reference)]
        now = seeds.get(policy, 0)
        going_on = [c.n_seeds for c in comparisons if c.verdict == "open"]
        wanted = [next(n for n in plan.looks if n > n_seeds) for n_seeds in going_on]
        further = now if policy in plan.without_seeds else max([now, *wanted])
        decisions.append(Decision(policy, *_status(policy in beaten, comparisons), now, further))
    return Look(plan, number, tuple(compared), tuple(decisions))


def _status(beaten: bool, comparisons: Sequence[Compared]) -> tuple[Status, str]:
    left = [c for c in comparisons if c.verdict == "open"]
    given_up = [c for c in comparisons if c.verdict == "given up"]
    if left:
        return "open", f"{len(left)} of {len(comparisons)} comparisons are open"
    if given_up:
        unlikely = f"further seeds are unlikely to settle {len(given_up)} of {len(comparisons)} comparisons"
        return "not worth going on", "it is worse than another" if beaten else unlikely
    return "settled", "every comparison has its verdict"
