"""Tests of a model on a benchmark: the primary ones, each K against K=0, and the exploratory ones, all others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import combinations, product

from g2d.analysis.comparisons import corrected
from g2d.grid.grid import Grid
from g2d.grid.runs import OnlineRun, Policy, Role
from g2d.tables.evaluations import BY_BENCHMARK, Evaluations, Paired, by_grid, by_policy, named
from g2d.tables.frames import Rows, columns, table_of

Pair = tuple[Policy, Policy]  # a policy and its reference
ByRole = defaultdict[Role, list[Policy]]

PRIMARY = "primary"  # corrected for all of them (Holm)
EXPLORATORY = "exploratory"  # not corrected

COMPARISON_COLUMNS = columns(
    BY_BENCHMARK,
    "reference reference_K reference_group_size n_seeds n_problems n_clusters difference ci_low ci_high p_value",
    "family family_size standard_error seed_share problem_share gained lost",
)


@table_of(COMPARISON_COLUMNS)
def comparison_table(evaluations: Evaluations) -> Rows:
    """A row per policy and reference, from answers to the same questions (`comparisons.Comparison`)."""
    grouped = by_policy(evaluations)
    for (_, benchmark), rows in by_grid(grouped).items():
        answers = Paired(grouped, rows)
        policies = [policy for policy, _ in rows]
        for name, pairs in ((PRIMARY, primary_pairs(policies)), (EXPLORATORY, exploratory_pairs(policies))):
            of_rows = [((policy, benchmark), (reference, benchmark)) for policy, reference in pairs]
            if name == PRIMARY:
                comparisons = corrected(answers.compared(of_rows, len(pairs)))
            else:
                comparisons = answers.compared(of_rows)
            for (at, reference), comparison in zip(of_rows, comparisons, strict=True):
                row = named(grouped[at], benchmark)
                row.update(asdict(comparison))
                row["family"] = name
                row["family_size"] = len(pairs)
                other = named(grouped[reference], benchmark)
                row["reference"] = other["policy"]
                row["reference_K"] = other["K"]
                row["reference_group_size"] = other["group_size"]
                yield row


def planned_pairs(grid: Grid, model: str) -> list[Pair]:
    """Return the primary comparisons of all policies that a grid makes of a model."""
    return primary_pairs(list(dict.fromkeys(policy.over_seeds for policy in grid.policies if policy.model == model)))


def primary_pairs(policies: Iterable[Policy]) -> list[Pair]:
    of_k = _by_role(policies)["dpo"]
    return _against([policy for policy in of_k if policy.k == 0], of_k)


def exploratory_pairs(policies: Sequence[Policy]) -> list[Pair]:
    """Return pairs of policies from which a reader may learn something, each pair once."""
    by_role = _by_role(policies)
    at_zero = [policy for policy in by_role["dpo"] if policy.k == 0]
    warmed = sorted([policy for policy in by_role["dpo"] if policy.k > 0], key=lambda policy: policy.k)
    pairs = _against(by_role["base"], [policy for policy in policies if policy.role not in ("base", "curve")])
    pairs += _against(by_role["grpo"], by_role["dpo"])
    pairs += [(later, earlier) for earlier, later in combinations(warmed, 2)]
    pairs += _against([*at_zero, *by_role["grpo"], *warmed], by_role["auto"])
    for policy in by_role["entry"] + by_role["ablation"]:
        pairs += [(policy, other) for other in policies if _is_reference(other, policy)]
    pairs += _against(at_zero + by_role["grpo"], by_role["entry"])
    pairs += _of_online(by_role["entry"], policies)
    return list(dict.fromkeys(pairs))


def _of_online(entries: Sequence[Policy], policies: Sequence[Policy]) -> Iterator[Pair]:
    """Yield pairs of online regimes with equally many online steps, and of each with its start."""
    online = [policy for policy in entries if isinstance(policy.run, OnlineRun)]
    for n, policy in enumerate(online):
        for other in online[:n]:
            if (other.online_steps, other.group_size) == (policy.online_steps, policy.group_size):
                yield policy, other
        start = policy.online_start
        if start and start.over_seeds in policies:
            yield policy, start.over_seeds


def _by_role(policies: Iterable[Policy]) -> ByRole:
    by_role: ByRole = defaultdict(list)
    for policy in policies:
        by_role[policy.role].append(policy)
    return by_role


def _against(references: list[Policy], members: list[Policy]) -> list[Pair]:
    """Return all pairs of a member and another policy, by reference."""
    return [(policy, reference) for reference, policy in product(references, members) if policy != reference]


def _is_reference(other: Policy, policy: Policy) -> bool:
    """Return whether a policy of the main grid has the same K, G and kind of training (Table 3)."""
    name = "grpo" if policy.method == "grpo" else "dpo"
    return (other.run_name, other.group_size, other.k) == (name, policy.group_size, policy.k)
