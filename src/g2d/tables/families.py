"""Families of tests: comparisons of a model and benchmark from which a reader may pick one after seeing them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import combinations, product

import numpy as np
import pandas as pd

from g2d.analysis.comparisons import Comparison, compare, corrected
from g2d.grid.runs import OnlineRun, Policy
from g2d.tables.evaluations import (
    BY_BENCHMARK,
    Evaluations,
    Grouped,
    Row,
    by_grid,
    by_policy,
    crossed,
    named,
)
from g2d.tables.frames import Rows, columns, table_of

Family = tuple[str, list[tuple[Policy, Policy]]]  # its name, and pairs (policy, reference)

# Names of families by the role of their policies; M0 and GRPO before its last K have none.
CALLED = {
    "dpo": "DPO",
    "auto": "warm-up that stopped by itself",
    "grpo": "GRPO",
    "entry": "regimes",
    "ablation": "ablations",
}
OF_K = ("DPO against K=0", "DPO against M0", "DPO against GRPO")
ENTRIES_AGAINST_COMMON = "regimes against K=0 and GRPO alone"

COMPARISON_COLUMNS = columns(
    BY_BENCHMARK,
    "reference reference_K reference_group_size n_seeds n_problems difference ci_low ci_high",
    "family family_size family_low family_high standard_error p_value p_holm",
    "gained lost",
)


@table_of(COMPARISON_COLUMNS)
def comparison_table(evaluations: Evaluations) -> Rows:
    """A row per policy and reference (`families`), from answers to the same questions (`comparisons.Comparison`)."""
    grouped = by_policy(evaluations)
    for (_, benchmark), rows in by_grid(grouped).items():
        answers = Paired(grouped, rows)
        for name, family in families(rows):
            comparisons = answers.tested(family)
            for (at, reference), comparison in zip(family, comparisons, strict=True):
                row = named(grouped[at], benchmark)
                row.update(asdict(comparison))
                row["family"] = name
                other = named(grouped[reference], benchmark)
                row["reference"] = other["policy"]
                row["reference_K"] = other["K"]
                row["reference_group_size"] = other["group_size"]
                yield row


def families(grouped: Iterable[Row]) -> Iterator[tuple[str, list[tuple[Row, Row]]]]:
    for (_, benchmark), rows in by_grid(grouped).items():
        policies = [policy for policy, _ in rows]
        for role in CALLED:
            members = [policy for policy in policies if policy.role == role]
            if not members:
                continue
            if role in ("entry", "ablation"):
                families_of_role = _added_families(members, policies)
            else:
                families_of_role = _main_families(members, policies)
            for name, pairs in families_of_role:
                if pairs:
                    yield name, [((policy, benchmark), (reference, benchmark)) for policy, reference in pairs]


def _main_families(members: list[Policy], policies: list[Policy]) -> Iterator[Family]:
    role = members[0].role
    called = CALLED[role]
    base = [policy for policy in policies if policy.role == "base"]
    yield f"{called} against M0", _against(base, members)
    if role == "grpo":
        return
    at_zero = [policy for policy in policies if policy.role == "dpo" and policy.k == 0]
    yield f"{called} against K=0", _against(at_zero, members)
    online = [policy for policy in policies if policy.role == "grpo"]
    yield f"{called} against GRPO", _against(online, members)
    warmed = [policy for policy in policies if policy.role == "dpo" and policy.k > 0]
    warmed.sort(key=lambda policy: policy.k)
    if role == "dpo":
        yield "pairs of K > 0", [(later, earlier) for earlier, later in combinations(warmed, 2)]
    if role == "auto":
        yield f"{called} against K > 0", list(product(members, warmed))


def _added_families(members: list[Policy], policies: list[Policy]) -> Iterator[Family]:
    role = members[0].role
    called = CALLED[role]
    base = [policy for policy in policies if policy.role == "base"]
    yield f"{called} against M0", _against(base, members)
    against_reference = []
    for policy in members:
        for other in policies:
            if _is_reference(other, policy):
                against_reference.append((policy, other))
    yield f"{called} against what they differ from", against_reference
    if role != "entry":
        return
    common = [policy for policy in policies if _is_common(policy)]
    against_common = [pair for pair in _against(common, members) if pair not in against_reference]
    yield ENTRIES_AGAINST_COMMON, against_common
    online = [policy for policy in members if isinstance(policy.run, OnlineRun)]
    against_each_other = []
    for n, policy in enumerate(online):
        for other in online[:n]:
            if _equally_online(policy, other):
                against_each_other.append((policy, other))
    yield "online regimes against each other", against_each_other
    against_start = []
    for policy in online:
        if policy.start and policy.start.over_seeds in policies:
            against_start.append((policy, policy.start.over_seeds))
    yield "online regimes against their start", against_start


def _against(references: list[Policy], members: list[Policy]) -> list[tuple[Policy, Policy]]:
    """Return all pairs of a member and another policy, by reference."""
    return [(policy, reference) for reference, policy in product(references, members) if policy != reference]


def _is_reference(other: Policy, policy: Policy) -> bool:
    """Return whether a policy of the main grid has the same K, G and kind of training (Table 3)."""
    name = "grpo" if policy.method == "grpo" else "dpo"
    return (other.run_name, other.group_size, other.k) == (name, policy.group_size, policy.k)


def _is_common(policy: Policy) -> bool:
    """Return whether entries are compared with a policy: DPO at K=0, or GRPO at the largest K."""
    return (policy.role == "dpo" and policy.k == 0) or policy.role == "grpo"


def _equally_online(policy: Policy, other: Policy) -> bool:
    return (other.online_steps, other.group_size) == (policy.online_steps, policy.group_size)


class Paired:
    """Answers of rows to the problems of one benchmark, (n_seeds, n_problems) each."""

    def __init__(self, grouped: Grouped, rows: Sequence[Row]) -> None:
        benchmark = rows[0][1]
        answers: dict[Policy, pd.DataFrame] = {}
        for at in rows:
            answers.update(grouped[at])
        correct = crossed(answers, benchmark)
        self.seeds: dict[Row, list[int | None]] = {}
        self.correct: dict[Row, np.ndarray] = {}
        start = 0
        for at in rows:
            end = start + len(grouped[at])
            self.seeds[at] = [key.seed for key in grouped[at]]
            self.correct[at] = correct[start:end]
            start = end

    def shared_seeds(self, at: Row, reference: Row) -> list[int | None]:
        others = self.seeds[reference]
        if others == [None]:
            return self.seeds[at]
        return [seed for seed in self.seeds[at] if seed in others]

    def pair(self, at: Row, reference: Row) -> tuple[np.ndarray, np.ndarray]:
        """Return both answers over the shared seeds, (n_seeds, n_problems) each, (1, n_problems) for M0; ValueError if
        no seed is shared."""
        seeds = self.shared_seeds(at, reference)
        if not seeds:
            first = replace(at[0], seed=self.seeds[at][0])
            second = replace(reference[0], seed=self.seeds[reference][0])
            raise ValueError(
                f"{first.folder} and {second.folder} have no seed in common: policies are compared seed by seed"
            )
        return self._of_seeds(at, seeds), self._of_seeds(reference, seeds)

    def tested(self, family: Collection[tuple[Row, Row]]) -> list[Comparison]:
        comparisons = []
        for at, reference in family:
            policy, other = self.pair(at, reference)
            comparisons.append(compare(policy, other, len(family)))
        return corrected(comparisons)

    def _of_seeds(self, row: Row, seeds: Sequence[int | None]) -> np.ndarray:
        if self.seeds[row] == [None]:
            return self.correct[row]
        positions = [self.seeds[row].index(seed) for seed in seeds]
        return self.correct[row][positions]
