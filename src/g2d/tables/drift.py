"""How far policies are from M0 beside their accuracy: drift.csv, and equal_gain.csv on what online training adds."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from g2d.analysis.equal_gain import at_equal_gain
from g2d.analysis.statistics import mean_interval
from g2d.tables.evaluations import BY_BENCHMARK, Evaluations, by_grid, by_policy, clusters_of, crossed, m0_of, row_of
from g2d.tables.frames import Rows, columns, estimate, table_of

DRIFT_COLUMNS = columns(BY_BENCHMARK, "n_seeds n_problems accuracy length longer longer_low longer_high")
KL_COLUMNS = columns("kl kl_low kl_high")
EQUAL_GAIN_COLUMNS = columns("model benchmark status n_online n_others n_seeds ratio ratio_low ratio_high p_value")


@table_of(DRIFT_COLUMNS, where_known=KL_COLUMNS)
def drift_table(evaluations: Evaluations, drifted: Evaluations) -> Rows:
    """What changed against M0 on every benchmark: the length of answers and their divergence, beside the accuracy.

    length is the mean number of tokens of an answer, at most the budget, over samples, then problems, then seeds;
    longer is that less M0's on the same problems, null for M0 and without it. kl is the mean divergence from M0 in
    nats. _low and _high: the 95 % interval over seeds and problems (`mean_interval`); kl is at least 0.

    Args:
        drifted: by policy and benchmark, rows of `g2d.rollouts.divergence.own_answers`; empty without `drift`.
    """
    grouped, measured = (by_policy(answers) for answers in (evaluations, drifted))
    for at, own in grouped.items():
        (policy, benchmark), base = at, grouped.get(m0_of(at), {})
        tokens = crossed(base | own, benchmark, "token_count")
        correct = crossed(own, benchmark)
        row = row_of(own, benchmark, correct) | {"accuracy": correct.mean(), "length": tokens[-len(own) :].mean()}
        if base and policy.role != "base":
            row |= _mean("longer", tokens[1:] - tokens[0], clusters=clusters_of(own))
        if at in measured:
            row |= _mean("kl", crossed(measured[at], benchmark, "kl"), least=0.0)
        yield row


@table_of(EQUAL_GAIN_COLUMNS)
def equal_gain_table(evaluations: Evaluations, drifted: Evaluations) -> Rows:
    """Whether policies trained online are closer to M0 than those trained on harvests, at equal gain: the ratio of the
    divergences, online over the others, with its 95 % interval and p-value (`g2d.analysis.equal_gain`). Without
    selected checkpoints, which are copies, rounds, which are both, and policies that answer as M0 does."""
    grouped, measured = (
        by_policy(answers, keep=lambda key: not (key.selected or key.in_rounds)) for answers in (evaluations, drifted)
    )
    for (model, benchmark), rows in by_grid(measured).items():
        base = grouped[m0_of(rows[0])]
        found = {at: crossed(measured[at], benchmark, "kl") for at in rows}
        n_seeds = max(len(values) for values in found.values())
        found = {at: values for at, values in found.items() if values.mean() > 0 and len(values) == n_seeds}
        answers = [crossed(base | grouped[at], benchmark) for at in found]
        online = np.array([policy.trained_online for policy, _ in found], dtype=bool)
        gain = np.array([(own[1:] - own[0]).mean() for own in answers])
        result = at_equal_gain(np.array([values.mean() for values in found.values()]), gain, online)
        counts = {"n_online": online.sum(), "n_others": (~online).sum(), "n_seeds": n_seeds}
        yield {"model": model, "benchmark": benchmark} | counts | asdict(result)


def _mean(
    name: str, values: np.ndarray, least: float = -math.inf, clusters: np.ndarray | None = None
) -> dict[str, float | None]:
    low, high = mean_interval(values, clusters=clusters)
    return estimate(name, float(values.mean()), (max(low, least), high))
