"""Families of tests: comparisons of a model and benchmark from which a reader may pick one after seeing them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import combinations

import numpy as np

from g2d.analysis.comparisons import Comparison, compare, corrected
from g2d.grid.policy import Policy
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
    **{"dpo": "DPO", "auto": "warm-up that stopped by itself", "grpo": "GRPO"},
    **{"entry": "regimes", "ablation": "ablations"},
}
OF_K = tuple(f"{CALLED['dpo']} against {reference}" for reference in ("K=0", "M0", "GRPO"))
ENTRIES_AGAINST_COMMON = f"{CALLED['entry']} against K=0 and GRPO alone"

COMPARISON_COLUMNS = columns(
    *(BY_BENCHMARK, "reference reference_K reference_group_size n_seeds n_problems difference ci_low ci_high"),
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
            for (at, reference), comparison in zip(family, answers.tested(family), strict=True):
                other = named(grouped[reference], benchmark)
                labels = {"family": name, "reference": other["policy"]}
                labels |= {f"reference_{column}": other[column] for column in ("K", "group_size")}
                yield named(grouped[at], benchmark) | asdict(comparison) | labels


def families(grouped: Iterable[Row]) -> Iterator[tuple[str, list[tuple[Row, Row]]]]:
    for (_, benchmark), rows in by_grid(grouped).items():
        policies = [policy for policy, _ in rows]
        for role in CALLED:
            members = [policy for policy in policies if policy.role == role]
            families_of_role = _added_families if role in ("entry", "ablation") else _main_families
            for name, pairs in families_of_role(members, policies) if members else ():
                if pairs:
                    yield name, [((policy, benchmark), (reference, benchmark)) for policy, reference in pairs]


def _main_families(members: list[Policy], policies: list[Policy]) -> Iterator[Family]:
    role = members[0].role
    references = {
        "M0": [policy for policy in policies if policy.role == "base"],
        "K=0": [policy for policy in policies if policy.role == "dpo" and policy.k == 0],
        "GRPO": [policy for policy in policies if policy.role == "grpo"],
    }
    for name, others in references.items():
        if role != "grpo" or name == "M0":
            pairs = [(policy, other) for other in others for policy in members if policy != other]
            yield f"{CALLED[role]} against {name}", pairs
    warmed = sorted((p for p in policies if p.role == "dpo" and p.k > 0), key=lambda policy: policy.k)
    if role == "dpo":
        yield "pairs of K > 0", [(later, earlier) for earlier, later in combinations(warmed, 2)]
    if role == "auto":
        yield f"{CALLED[role]} against K > 0", [(policy, fixed) for policy in members for fixed in warmed]


def _added_families(members: list[Policy], policies: list[Policy]) -> Iterator[Family]:
    role, name = members[0].role, CALLED[members[0].role]
    yield f"{name} against M0", [(policy, other) for other in policies if other.role == "base" for policy in members]
    against_reference = [(policy, other) for policy in members for other in policies if _is_reference(other, policy)]
    yield f"{name} against what they differ from", against_reference
    if role == "entry":
        pairs = [(policy, other) for other in policies for policy in members if _is_common(other)]
        yield ENTRIES_AGAINST_COMMON, [pair for pair in pairs if pair not in against_reference]
    if role == "entry":
        online = [policy for policy in members if policy.run.phase == "online"]
        pairs = [(policy, other) for n, policy in enumerate(online) for other in online[:n]]
        yield "online regimes against each other", [pair for pair in pairs if _equally_online(*pair)]
        starts = [(policy, policy.start.over_seeds) for policy in online if policy.start]
        yield "online regimes against their start", [pair for pair in starts if pair[1] in policies]


def _is_reference(other: Policy, policy: Policy) -> bool:
    """Return whether a policy is that of the main grid at the same K and G, by the same phase (Table 3)."""
    name = "grpo" if policy.method == "grpo" else "dpo"
    return (other.run_name, other.group_size, other.k) == (name, policy.group_size, policy.k)


def _is_common(policy: Policy) -> bool:
    """Return whether entries are compared with a policy: DPO at K=0, or GRPO at the largest K."""
    return (policy.role == "dpo" and policy.k == 0) or policy.role == "grpo"


def _equally_online(policy: Policy, other: Policy) -> bool:
    return (other.online_steps, other.group_size) == (policy.online_steps, policy.group_size)


class Paired:
    def __init__(self, grouped: Grouped, rows: Sequence[Row]) -> None:
        correct = crossed({key: answers for at in rows for key, answers in grouped[at].items()}, rows[0][1])
        ends = np.cumsum([len(grouped[at]) for at in rows])
        self.seeds = {at: [key.seed for key in grouped[at]] for at in rows}
        self.correct = dict(zip(rows, np.split(correct, ends[:-1]), strict=True))

    def shared_seeds(self, at: Row, reference: Row) -> list[int | None]:
        others = self.seeds[reference]
        return [seed for seed in self.seeds[at] if others == [None] or seed in others]

    def pair(self, at: Row, reference: Row) -> tuple[np.ndarray, np.ndarray]:
        """Return both answers over the shared seeds, (n_seeds, n_problems) each, (1, n_problems) for M0; ValueError if
        no seed is shared."""
        seeds = self.shared_seeds(at, reference)
        if not seeds:
            names = " and ".join(replace(key, seed=self.seeds[key, name][0]).folder for key, name in (at, reference))
            raise ValueError(f"{names} have no seed in common: policies are compared seed by seed")
        return self._of_seeds(at, seeds), self._of_seeds(reference, seeds)

    def tested(self, family: Collection[tuple[Row, Row]]) -> list[Comparison]:
        return corrected([compare(*self.pair(*pair), len(family)) for pair in family])

    def _of_seeds(self, row: Row, seeds: Sequence[int | None]) -> np.ndarray:
        if self.seeds[row] == [None]:
            return self.correct[row]
        return self.correct[row][[self.seeds[row].index(seed) for seed in seeds]]
