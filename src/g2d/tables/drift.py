"""Answer length and divergence from M0 (drift.csv), and divergence at equal gain (equal_gain.csv)."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from g2d.analysis.equal_gain import at_equal_gain
from g2d.analysis.statistics import mean_interval
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import BY_BENCHMARK, Evaluations, by_grid, by_policy, clusters_of, crossed, m0_of, row_of
from g2d.tables.frames import Rows, columns, estimate, table_of

DRIFT_COLUMNS = columns(BY_BENCHMARK, "n_seeds n_problems accuracy length longer longer_low longer_high")
KL_COLUMNS = columns("kl kl_low kl_high")
EQUAL_GAIN_COLUMNS = columns("model benchmark status n_online n_others n_seeds ratio ratio_low ratio_high p_value")


@table_of(DRIFT_COLUMNS, KL_COLUMNS)
def drift_table(evaluations: Evaluations, drifted: Evaluations) -> Rows:
    """A row per policy and benchmark: the length of its answers and their divergence from M0 (`drifted`, rows of
    `g2d.rollouts.divergence.own_answers`). Intervals are over seeds and problems.
    """
    grouped, measured = (by_policy(answers) for answers in (evaluations, drifted))
    for at, by_key in grouped.items():
        (policy, benchmark), base = at, grouped.get(m0_of(at), {})
        tokens = crossed(base | by_key, benchmark, "token_count")
        correct = crossed(by_key, benchmark)
        length = tokens[-len(by_key) :].mean()
        row = row_of(by_key, benchmark, correct) | {"accuracy": correct.mean(), "length": length}
        if base and policy.role != "base":
            row |= _mean("longer", tokens[1:] - tokens[0], clusters=clusters_of(by_key))
        if at in measured:
            row |= _mean("kl", crossed(measured[at], benchmark, "kl"), least=0.0)
        yield row


@table_of(EQUAL_GAIN_COLUMNS)
def equal_gain_table(evaluations: Evaluations, drifted: Evaluations) -> Rows:
    """A row per model and benchmark: `at_equal_gain` of online policies and policies trained on harvests.

    Left out: selected checkpoints (copies), rounds (both kinds), extrapolated policies (neither), and policies that
    answer as M0 does.
    """

    def keep(key: PolicyKey) -> bool:
        return key.arm.has_log and not key.arm.in_rounds

    grouped, measured = (by_policy(answers, keep) for answers in (evaluations, drifted))
    for (model, benchmark), rows in by_grid(measured).items():
        base = grouped[m0_of(rows[0])]
        by_seed = {at: crossed(measured[at], benchmark, "kl") for at in rows}
        n_seeds = max(len(values) for values in by_seed.values())
        kl = {at: values.mean() for at, values in by_seed.items() if values.mean() > 0 and len(values) == n_seeds}
        answers = [crossed(base | grouped[at], benchmark) for at in kl]
        online = np.array([policy.arm.phase == "online" for policy, _ in kl], dtype=bool)
        gain = np.array([(correct[1:] - correct[0]).mean() for correct in answers])
        result = at_equal_gain(np.array([*kl.values()]), gain, online)
        counts = {"n_online": online.sum(), "n_others": (~online).sum(), "n_seeds": n_seeds}
        yield {"model": model, "benchmark": benchmark} | counts | asdict(result)


def _mean(
    name: str, values: np.ndarray, least: float = -math.inf, clusters: np.ndarray | None = None
) -> dict[str, float | None]:
    low, high = mean_interval(values, clusters=clusters)
    return estimate(name, float(values.mean()), (max(low, least), high))
