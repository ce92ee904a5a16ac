"""Which policies are compared, in which families of tests, and which policies were trained alike.

A family holds the comparisons from which a reader may pick one after seeing them. Within a family p-values are
Holm-corrected, and the intervals `family_low` and `family_high` hold all at once. Families are not corrected for one
another, and a family never spans models or benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations

import numpy as np
import pandas as pd

from g2d.analysis.comparisons import compare, corrected
from g2d.analysis.margins import Differences, smallest_margins
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import BY_BENCHMARK, Evaluations, Row, by_grid, by_policy, crossed, named
from g2d.tables.frames import Rows, floats, integers, strings, table_of

Grouped = Mapping[Row, Mapping[PolicyKey, pd.DataFrame]]
Family = tuple[str, list[tuple[PolicyKey, PolicyKey]]]  # its name, and pairs (policy, reference)

# By role, how policies are called that share families; GRPO before its last K is in none.
CALLED = {
    **{"base": "M0", "dpo": "DPO", "auto": "warm-up that stopped by itself", "grpo": "GRPO"},
    **{"entry": "regimes", "ablation": "ablations"},
}
ALIKE = ("dpo", "auto")  # DPO on pairs of a harvest, whatever K and G: their seeds are taken to vary alike

COMPARISON_COLUMNS = {
    **BY_BENCHMARK,
    "reference": "object",
    "reference_K": "int64",
    "reference_group_size": "Int64",
    **integers("n_seeds", "n_problems"),
    **floats("difference", "ci_low", "ci_high"),
    **strings("family"),
    **integers("family_size"),
    **floats("family_low", "family_high", "standard_error", "p_value", "p_holm", "p_questions"),
    **floats("gained", "lost", "cohens_h", "minimum_detectable"),
}


@table_of(COMPARISON_COLUMNS)
def comparison_table(evaluations: Evaluations) -> Rows:
    """Every policy against what it has to beat, on the same questions.

    Returns:
        `COMPARISON_COLUMNS`, see `comparisons.Comparison`; p_holm and the interval family_low, family_high correct for
        the family_size comparisons of the same model, benchmark and family, of which one may be picked.
    """
    grouped = by_policy(evaluations)
    accuracies = {at: crossed(own, at[1]).mean(axis=1) for at, own in grouped.items()}
    for name, family in families(grouped):
        found = []
        for at, reference in family:
            policy, other = paired(grouped, at, reference)
            found.append(compare(policy, other, pool(grouped, accuracies, at, reference), len(family)))
        for (at, reference), comparison in zip(family, corrected(found), strict=True):
            other_name = named(grouped[reference], at[1])
            row = named(grouped[at], at[1]) | asdict(comparison)
            references = {f"reference_{key}": other_name[key] for key in ("K", "group_size")}
            yield row | {"family": name, "reference": other_name["policy"]} | references


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
    rounds = [(later, earlier) for earlier, later in combinations(members, 2) if later.regime == earlier.regime]
    yield "rounds against earlier rounds", [pair for pair in rounds if pair[0].in_rounds]
    if members[0].role == "entry":
        online = [(policy, other) for policy in members for other in _other_online(policy, own)]
        yield "online regimes against each other", online
        started = [(policy, policy.start.over_seeds) for policy in members if policy.start and policy.trained_online]
        yield "online regimes against their start", [pair for pair in started if pair[1] in own]
        taught = [(policy, policy.teacher.over_seeds) for policy in members if policy.teacher and policy.trained_online]
        yield "online regimes against their teacher", [pair for pair in taught if pair[1] in own]


def _other_online(policy: PolicyKey, own: list[PolicyKey]) -> list[PolicyKey]:
    """What a policy that was trained on fresh rollouts is compared with: the entries before it that have as many online
    steps behind them in all, with as many rollouts of a prompt. Where s alone differs, that is what s does."""
    if not policy.trained_online:
        return []
    before = own[: own.index(policy)]
    return [
        other
        for other in before
        if other.trained_online
        and other.role == "entry"
        and (other.online_steps, other.group_size) == (policy.online_steps, policy.group_size)
    ]


def _worth_comparing(policy: PolicyKey, reference: PolicyKey) -> bool:
    """M0 is a reference only, nothing is compared with itself, and GRPO with M0 only."""
    if policy == reference or policy.role == "base":
        return False
    return policy.role != "grpo" or reference.role == "base"


def paired(grouped: Grouped, at: Row, reference: Row) -> tuple[np.ndarray, np.ndarray]:
    """Answers of both, (n_seeds, n_problems), problem by problem and over the seeds that both have, seed by seed.

    Raises:
        ValueError: they answered different problems, or have no seed in common. So does every table with differences.
    """
    seeds = shared_seeds(grouped, at, reference)
    if not seeds:
        names = (next(iter(grouped[row])).folder for row in (at, reference))
        raise ValueError(f"{' and '.join(names)} have no seed in common: policies are compared seed by seed")
    own = {key: answers for key, answers in grouped[at].items() if key.seed in seeds}
    other = {key: answers for key, answers in grouped[reference].items() if key.seed in (None, *seeds)}
    correct = crossed({**other, **own}, at[1])
    return correct[len(other) :], correct[: len(other)]


def shared_seeds(grouped: Grouped, at: Row, reference: Row) -> list[int | None]:
    """Seeds that both have, or the policy's where the reference is without seeds (M0)."""
    others = [key.seed for key in grouped[reference]]
    return [key.seed for key in grouped[at] if others == [None] or key.seed in others]


def pool(grouped: Grouped, accuracies: Mapping[Row, np.ndarray], at: Row, reference: Row) -> np.ndarray:
    """Accuracies per seed of the policies that were trained alike, and of the two, (n_policies, n_seeds), over the
    seeds that the two share; without policies that lack one of these."""
    seeds = shared_seeds(grouped, at, reference)
    found = []
    for row, own in grouped.items():
        alike = row[0].role in ALIKE or row in (at, reference)
        has = [key.seed for key in own]
        if (row[0].model, row[1]) == (at[0].model, at[1]) and alike and set(seeds) <= set(has):
            found.append(accuracies[row][[has.index(seed) for seed in seeds]])
    return np.stack(found)


def differences_of(grouped: Grouped, rows: Sequence[Row]) -> Differences:
    """Every difference between policies of one model and benchmark, over the seeds that both have, seed by seed.

    Raises:
        ValueError: the seeds of one policy are not the first ones of another.
    """
    benchmark = rows[0][1]
    seeds = [own for at in rows if (own := [key.seed for key in grouped[at]]) != [None]]
    longest = max(seeds, key=len, default=[])
    for own in seeds:
        if own != longest[: len(own)] or (len(own) == 1 < len(longest)):
            raise ValueError(f"{benchmark}: one policy has the seeds {own}, another {longest}: they cannot be paired")
    together = crossed({key: answers for at in rows for key, answers in grouped[at].items()}, benchmark)
    ends = np.cumsum([len(grouped[at]) for at in rows])
    answers = np.split(together, ends[:-1])
    accuracies = {at: own.mean(axis=1) for at, own in zip(rows, answers, strict=True)}

    def alike(i: int, j: int) -> np.ndarray | None:
        at, other = (rows[i], rows[j]) if len(answers[i]) > 1 else (rows[j], rows[i])
        several = any(len(own) > 1 for own in answers)
        return pool({row: grouped[row] for row in rows}, accuracies, at, other) if several else None

    return Differences(answers, alike)


MARGIN_COLUMNS = {
    **BY_BENCHMARK,
    **integers("n_seeds", "n_problems"),
    **floats("accuracy", "behind", "margin_shown", "margin", "p_enough"),
    "enough": "bool",
}


@table_of(MARGIN_COLUMNS)
def margin_table(evaluations: Evaluations, margin: float) -> Rows:
    """DPO at every K (and G) against the best of the other K.

    Args:
        evaluations: as for `main_table`.
        margin: by how much a K that is good enough may be worse, in 0..1 (`frontier.margin`).

    Returns:
        `MARGIN_COLUMNS`, one row per model, benchmark, K and group_size (`g2d.analysis.margins.Margin`).
    """
    grouped = by_policy(evaluations, keep=lambda key: key.role == "dpo")
    for (_, benchmark), own in by_grid(grouped).items():
        differences = differences_of(grouped, own)
        for at, answers, found in zip(own, differences.answers, smallest_margins(differences, margin), strict=True):
            row = named(grouped[at], benchmark) | asdict(found) | {"margin": margin}
            row |= {"n_seeds": answers.shape[0], "n_problems": answers.shape[1], "accuracy": answers.mean()}
            yield row
