"""How long a policy's answers are beside those of M0, on every benchmark: drift.csv."""

from __future__ import annotations

from g2d.analysis.statistics import hierarchical_bootstrap
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import BY_BENCHMARK, Evaluations, by_policy, crossed, crossed_values, grid_order, named
from g2d.tables.frames import Rows, floats, integers, table_of

DRIFT_COLUMNS = {
    **BY_BENCHMARK,
    **integers("n_seeds", "n_problems"),
    **floats("accuracy", "gain", "length", "longer", "longer_low", "longer_high"),
}


@table_of(DRIFT_COLUMNS)
def drift_table(evaluations: Evaluations) -> Rows:
    """What changed against M0 on every benchmark: the length of answers, beside the accuracy.

    Args:
        evaluations: as for `main_table`.

    Returns:
        `DRIFT_COLUMNS`, one row per (model, policy, K, group_size, benchmark), M0 first. length is the mean number of
        tokens of an answer, at most the budget, over samples, then problems, then seeds; gain and longer are accuracy
        and length less M0's on the same problems, null for M0 and without it; longer_low and longer_high the 95 %
        interval of `hierarchical_bootstrap` over seeds and problems. comparisons.csv has the interval of the gain.
    """
    grouped = by_policy(evaluations, keep=lambda key: True)
    for at in grid_order(grouped):
        policy, benchmark = at
        own = grouped[at]
        base = grouped.get((PolicyKey(policy.model, "base", 0, 0, None), benchmark), {})
        both = {**base, **own}
        correct = crossed(both, benchmark)
        tokens = crossed_values(
            {key: answers.assign(value=answers["token_count"]) for key, answers in both.items()}, benchmark
        )
        row = named(next(iter(own)), benchmark) | {"n_seeds": len(own), "n_problems": correct.shape[1]}
        row |= {"accuracy": correct[-len(own) :].mean(), "length": tokens[-len(own) :].mean()}
        if base and policy.role != "base":
            change = tokens[1:] - tokens[0]
            low, high = hierarchical_bootstrap(change)
            row |= {"gain": row["accuracy"] - correct[0].mean(), "longer": change.mean()}
            row |= {"longer_low": low, "longer_high": high}
        yield row
