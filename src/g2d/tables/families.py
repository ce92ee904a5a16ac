"""Families of tests: comparisons of a model and benchmark from which a reader may pick one after seeing them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain, combinations, product

from g2d.grid.grid import Grid
from g2d.grid.runs import OnlineRun, Policy, Role
from g2d.tables.evaluations import BY_BENCHMARK, Evaluations, Paired, Row, by_grid, by_policy, named
from g2d.tables.frames import Rows, columns, table_of

Family = tuple[str, list[tuple[Policy, Policy]]]  # its name, and pairs (policy, reference)
ByRole = defaultdict[Role, list[Policy]]

# Names of families by the role of their policies; M0 and GRPO before its last K have none.
CALLED: dict[Role, str] = {
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
    "reference reference_K reference_group_size n_seeds n_problems n_clusters difference ci_low ci_high",
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
        by_role: ByRole = defaultdict(list)
        for policy, _ in rows:
            by_role[policy.role].append(policy)
        for role in CALLED:
            if not by_role[role]:
                continue
            families_of_role = _added_families if role in ("entry", "ablation") else _main_families
            for name, pairs in families_of_role(role, by_role):
                if pairs:
                    yield name, [((policy, benchmark), (reference, benchmark)) for policy, reference in pairs]


def planned_families(grid: Grid, model: str, benchmark: str) -> dict[str, list[tuple[Row, Row]]]:
    """Return the families of all policies that a grid makes of a model, on a benchmark."""
    policies = dict.fromkeys(policy.over_seeds for policy in grid.policies if policy.model == model)
    return dict(families((policy, benchmark) for policy in policies))


def _main_families(role: Role, by_role: ByRole) -> Iterator[Family]:
    members = by_role[role]
    called = CALLED[role]
    yield f"{called} against M0", _against(by_role["base"], members)
    if role == "grpo":
        return
    at_zero = [policy for policy in by_role["dpo"] if policy.k == 0]
    yield f"{called} against K=0", _against(at_zero, members)
    yield f"{called} against GRPO", _against(by_role["grpo"], members)
    warmed = sorted([policy for policy in by_role["dpo"] if policy.k > 0], key=lambda policy: policy.k)
    if role == "dpo":
        yield "pairs of K > 0", [(later, earlier) for earlier, later in combinations(warmed, 2)]
    if role == "auto":
        yield f"{called} against K > 0", list(product(members, warmed))


def _added_families(role: Role, by_role: ByRole) -> Iterator[Family]:
    members = by_role[role]
    policies = list(chain.from_iterable(by_role.values()))
    called = CALLED[role]
    yield f"{called} against M0", _against(by_role["base"], members)
    against_reference = []
    for policy in members:
        for other in policies:
            if _is_reference(other, policy):
                against_reference.append((policy, other))
    yield f"{called} against what they differ from", against_reference
    if role != "entry":
        return
    at_zero = [policy for policy in by_role["dpo"] if policy.k == 0]
    against_common = _against(at_zero + by_role["grpo"], members)
    yield ENTRIES_AGAINST_COMMON, [pair for pair in against_common if pair not in against_reference]
    online = [policy for policy in members if isinstance(policy.run, OnlineRun)]
    against_each_other = []
    against_start = []
    for n, policy in enumerate(online):
        for other in online[:n]:
            if (other.online_steps, other.group_size) == (policy.online_steps, policy.group_size):
                against_each_other.append((policy, other))
        if policy.start and policy.start.over_seeds in policies:
            against_start.append((policy, policy.start.over_seeds))
    yield "online regimes against each other", against_each_other
    yield "online regimes against their start", against_start


def _against(references: list[Policy], members: list[Policy]) -> list[tuple[Policy, Policy]]:
    """Return all pairs of a member and another policy, by reference."""
    return [(policy, reference) for reference, policy in product(references, members) if policy != reference]


def _is_reference(other: Policy, policy: Policy) -> bool:
    """Return whether a policy of the main grid has the same K, G and kind of training (Table 3)."""
    name = "grpo" if policy.method == "grpo" else "dpo"
    return (other.run_name, other.group_size, other.k) == (name, policy.group_size, policy.k)
