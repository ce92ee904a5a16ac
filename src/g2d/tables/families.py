"""Which policies are compared, in which families of tests, and which policies were trained alike.

A family holds the comparisons of one model and benchmark from which a reader may pick one after seeing them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import combinations

import numpy as np

from g2d.analysis.comparisons import Comparison, compare, corrected
from g2d.analysis.crossed import SeedPool
from g2d.analysis.margins import Differences, smallest_margins
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import (
    BY_BENCHMARK,
    Evaluations,
    Grouped,
    Row,
    by_grid,
    by_policy,
    clusters_of,
    crossed,
    named,
    row_of,
)
from g2d.tables.frames import Rows, columns, table_of

Family = tuple[str, list[tuple[PolicyKey, PolicyKey]]]  # its name, and pairs (policy, reference)

# By role, how policies are called that share families; GRPO before its last K is in none.
CALLED = {
    **{"base": "M0", "dpo": "DPO", "auto": "warm-up that stopped by itself", "grpo": "GRPO"},
    **{"entry": "regimes", "ablation": "ablations"},
}
ENTRIES_AGAINST_COMMON = f"{CALLED['entry']} against K=0 and GRPO alone"
ALIKE = ("dpo", "auto")  # DPO on pairs of a harvest, whatever K and G: their seeds are taken to vary alike

COMPARISON_COLUMNS = columns(
    *(BY_BENCHMARK, "reference reference_K reference_group_size n_seeds n_problems difference ci_low ci_high"),
    "family family_size family_low family_high standard_error p_value p_holm",
    "gained lost",
)


@table_of(COMPARISON_COLUMNS)
def comparison_table(evaluations: Evaluations) -> Rows:
    """Every policy against what it has to beat, on the same questions (`comparisons.Comparison`); p_holm and the
    interval family_low, family_high correct for the family_size comparisons of the same model, benchmark and family, of
    which one may be picked."""
    grouped = by_policy(evaluations)
    for (_, benchmark), rows in by_grid(grouped).items():
        answers = Paired(grouped, rows)
        for name, family in families(rows):
            for (at, reference), comparison in zip(family, answers.tested(family), strict=True):
                other = named(grouped[reference], benchmark)
                beside = {"family": name, "reference": other["policy"]}
                beside |= {f"reference_{key}": other[key] for key in ("K", "group_size")}
                yield named(grouped[at], benchmark) | asdict(comparison) | beside


def families(grouped: Iterable[Row]) -> Iterator[tuple[str, list[tuple[Row, Row]]]]:
    """Families by name, pairs (policy, reference) of each."""
    for (_, benchmark), rows in by_grid(grouped).items():
        own = [policy for policy, _ in rows]
        for role in CALLED:
            members = [policy for policy in own if policy.role == role]
            found = _of_others(members, own) if role in ("entry", "ablation") else _of_main(members, own)
            for name, family in found if members else ():
                if family:
                    yield name, [((policy, benchmark), (reference, benchmark)) for policy, reference in family]


def _of_main(members: list[PolicyKey], own: list[PolicyKey]) -> Iterator[Family]:
    """The families of DPO, of GRPO alone, or of warm-up that stopped by itself."""
    role = members[0].role
    for kind, words in (("base", "M0"), ("dpo", "K=0"), ("grpo", "GRPO")):
        references = [other for other in own if other.role == kind and (kind != "dpo" or other.k == 0)]
        pairs = [(policy, other) for other in references for policy in members if _worth_comparing(policy, other)]
        yield f"{CALLED[role]} against {words}", pairs
    warmed = sorted((p for p in own if p.role == "dpo" and p.k > 0), key=lambda policy: policy.k)
    if role == "dpo":
        yield "pairs of K > 0", [(later, earlier) for earlier, later in combinations(warmed, 2)]
    if role == "auto":
        yield f"{CALLED[role]} against K > 0", [(policy, fixed) for policy in members for fixed in warmed]


def _of_others(members: list[PolicyKey], own: list[PolicyKey]) -> Iterator[Family]:
    """The families of all entries of `regimes`, or of all ablations."""
    name = CALLED[members[0].role]
    yield f"{name} against M0", [(policy, other) for other in own if other.role == "base" for policy in members]
    beside = [(policy, policy.reference) for policy in members if policy.reference in own]
    yield f"{name} against what they differ from", beside
    if members[0].role == "entry":
        common = [other for other in own if (other.role == "dpo" and other.k == 0) or other.role == "grpo"]
        pairs = [(policy, other) for other in common for policy in members if (policy, other) not in beside]
        yield ENTRIES_AGAINST_COMMON, pairs
    rounds = [(later, earlier) for earlier, later in combinations(members, 2) if later.regime == earlier.regime]
    yield "rounds against earlier rounds", [pair for pair in rounds if pair[0].in_rounds]
    if members[0].role == "entry":
        online = [policy for policy in members if policy.trained_online]
        earlier = [(policy, other) for n, policy in enumerate(online) for other in online[:n]]
        yield "online regimes against each other", [pair for pair in earlier if _as_much_online(*pair)]
        started = [(policy, policy.start.over_seeds) for policy in online if policy.start]
        yield "online regimes against their start", [pair for pair in started if pair[1] in own]
        taught = [(policy, policy.teacher.over_seeds) for policy in online if policy.teacher]
        yield "online regimes against their teacher", [pair for pair in taught if pair[1] in own]


def _as_much_online(policy: PolicyKey, other: PolicyKey) -> bool:
    """Whether both have as many online steps behind them in all, with as many rollouts of a prompt. Where s alone
    differs, their difference is what s does."""
    return (other.online_steps, other.group_size) == (policy.online_steps, policy.group_size)


def _worth_comparing(policy: PolicyKey, reference: PolicyKey) -> bool:
    """M0 is a reference only, nothing is compared with itself, and GRPO with M0 only."""
    if policy == reference or policy.role == "base":
        return False
    return policy.role != "grpo" or reference.role == "base"


class Paired:
    """Answers of the policies of one model to one benchmark, paired by question and by seed."""

    def __init__(self, grouped: Grouped, rows: Sequence[Row]) -> None:
        together = crossed({key: own for at in rows for key, own in grouped[at].items()}, rows[0][1])
        ends = np.cumsum([len(grouped[at]) for at in rows])
        self.seeds = {at: [key.seed for key in grouped[at]] for at in rows}
        self.correct = dict(zip(rows, np.split(together, ends[:-1]), strict=True))
        self.clusters = clusters_of(grouped[rows[0]])
        self.accuracies = {at: own.mean(axis=1) for at, own in self.correct.items()}

    def shared_seeds(self, at: Row, reference: Row) -> list[int | None]:
        """Seeds that both have, or the policy's where the reference is without seeds (M0)."""
        others = self.seeds[reference]
        return [seed for seed in self.seeds[at] if others == [None] or seed in others]

    def pair(self, at: Row, reference: Row) -> tuple[np.ndarray, np.ndarray]:
        """Their answers over the seeds that they share, (n_seeds, n_problems) each; of M0 (1, n_problems).

        Raises:
            ValueError: there is no such seed.
        """
        seeds = self.shared_seeds(at, reference)
        if not seeds:
            names = " and ".join(replace(own, seed=self.seeds[own, name][0]).folder for own, name in (at, reference))
            raise ValueError(f"{names} have no seed in common: policies are compared seed by seed")
        own, other = (self.correct[row][self._places(row, seeds)] for row in (at, reference))
        return own, other

    def pool(self, at: Row, reference: Row) -> SeedPool:
        """Accuracies of the policies that were trained alike, over the seeds that the two policies share; without
        policies that lack one of these seeds."""
        seeds = self.shared_seeds(at, reference)
        alike = [row for row in self.seeds if row[0].role in ALIKE and {*seeds} <= {*self.seeds[row]}]
        accuracies = np.array([self.accuracies[row][self._places(row, seeds)] for row in alike])
        both = all(row in alike or self.seeds[row] == [None] for row in (at, reference))
        return SeedPool(accuracies.reshape(-1, len(seeds)), both)

    def compare(self, at: Row, reference: Row, family: int) -> Comparison:
        """One of `family` comparisons, from which one may be picked afterwards."""
        return compare(*self.pair(at, reference), self.pool(at, reference), family, self.clusters)

    def tested(self, family: Collection[tuple[Row, Row]]) -> list[Comparison]:
        """All pairs of policy and reference of a family, corrected for one another."""
        return corrected([self.compare(at, reference, len(family)) for at, reference in family])

    @property
    def differences(self) -> Differences:
        """Every difference between two policies.

        Raises:
            ValueError: the seeds of one policy are not the first ones of another.
        """
        rows, seeds = [*self.seeds], [own for own in self.seeds.values() if own != [None]]
        longest = max(seeds, key=len, default=[])
        for own in seeds:
            if own != longest[: len(own)] or (len(own) == 1 < len(longest)):
                where = rows[0][1]
                raise ValueError(f"{where}: one policy has the seeds {own}, another {longest}: they cannot be paired")

        def pool(i: int, j: int) -> SeedPool | None:
            at, other = (rows[i], rows[j]) if len(self.seeds[rows[i]]) > 1 else (rows[j], rows[i])
            return self.pool(at, other) if len(longest) > 1 else None

        return Differences([*self.correct.values()], pool, self.clusters)

    def _places(self, row: Row, seeds: Sequence[int | None]) -> list[int]:
        return [0] if self.seeds[row] == [None] else [self.seeds[row].index(seed) for seed in seeds]


MARGIN_COLUMNS = columns(BY_BENCHMARK, "n_seeds n_problems accuracy behind margin_shown margin p_enough enough")


@table_of(MARGIN_COLUMNS)
def margin_table(evaluations: Evaluations, margin: float) -> Rows:
    """DPO at every K (and G) against the best of the other K (`g2d.analysis.margins.Margin`)."""
    grouped = by_policy(evaluations, keep=lambda key: key.role == "dpo")
    for (_, benchmark), own in by_grid(grouped).items():
        differences = Paired(grouped, own).differences
        for at, answers, found in zip(own, differences.answers, smallest_margins(differences, margin), strict=True):
            row = row_of(grouped[at], benchmark, answers)
            yield row | asdict(found) | {"margin": margin, "accuracy": answers.mean()}
