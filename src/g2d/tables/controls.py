"""Controls: how much of a policy's gain over M0 does one get that was trained alike, but on another reward?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from g2d.analysis.comparisons import LEVEL, Comparison, compare, corrected
from g2d.analysis.shares import share_of_gain
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import ROW_COLUMNS, Evaluations, Row, by_grid, by_policy, crossed, named
from g2d.tables.families import Grouped, paired, pool
from g2d.tables.frames import Rows, floats, integers, mean, strings, table_of

CONTROL_COLUMNS = {
    **ROW_COLUMNS,
    **strings("reward", "truth"),
    **integers("n_seeds", "n_problems"),
    **floats("rewarded", "right", "accuracy", "base_accuracy", "truth_accuracy"),
    **floats("gain", "gain_low", "gain_high", "p_gain", "truth_gain", "truth_gain_low", "truth_gain_high", "p_truth"),
    **floats("share", "share_low", "share_high", "difference", "difference_low", "difference_high", "p_value"),
    **integers("family_size"),
    **floats("p_holm", "minimum_detectable"),
}


@table_of(CONTROL_COLUMNS)
def controls_table(
    evaluations: Evaluations,
    controls: Mapping[str, str],
    seen: Mapping[PolicyKey, Mapping[str, float]],
) -> Rows:
    """Every policy that was trained on another reward, beside the one that differs in nothing else.

    Args:
        evaluations: as for `main_table`.
        controls: by the name of a policy, that of the one it is a control of (`g2d.experiment.grid.controls`).
        seen: of a control, the mean reward of the rollouts that it was trained on (rewarded), and the share of them
            that is right (right).

    Returns:
        `CONTROL_COLUMNS`, one row per control, K, G and benchmark where both policies and M0 were evaluated; share is
        null where p_truth is above 5 %.
    """
    grouped = by_policy(evaluations)
    for (_, benchmark), rows in by_grid(grouped).items():
        own = [policy for policy, _ in rows]
        base = next((policy for policy in own if policy.role == "base"), None)
        at = {(policy.regime, policy.group_size, policy.k): policy for policy in own}
        family = [
            (policy, at[twin])
            for policy in own
            if (twin := (controls.get(policy.regime, ""), policy.group_size, policy.k)) in at
        ]
        if base is None or not family:
            continue
        for (control, truth), row in zip(family, _tested(grouped, benchmark, family, base), strict=True):
            row |= {"reward": control.reward, "truth": truth.label}
            known = [found for key in grouped[control, benchmark] if (found := seen.get(key))]
            row |= {name: mean([found[name] for found in known]) for name in ("rewarded", "right")}
            yield named(grouped[control, benchmark], benchmark) | row


def seen_in_training(rollouts: str | Path) -> dict[str, float]:
    """What a policy saw in training: the mean reward of the rollouts, and the share of them that is right; nothing
    where none were kept."""
    rows = pd.read_parquet(rollouts, columns=["reward", "verdict"])
    known = rows["reward"].dropna()
    return (
        {"rewarded": float(known.mean()), "right": float((rows["verdict"] == "correct").mean())} if len(known) else {}
    )


def _tested(grouped: Grouped, benchmark: str, family: Sequence[tuple[PolicyKey, PolicyKey]], base: PolicyKey) -> Rows:
    """Of every control and its truth both gains, their difference and their ratio."""
    accuracies = {at: crossed(own, at[1]).mean(axis=1) for at, own in grouped.items() if at[1] == benchmark}
    of_base, size = (base, benchmark), len(family)

    def tested(pairs: Iterable[tuple[Row, Row]]) -> list[Comparison]:
        return corrected(
            [compare(*paired(grouped, at, of), pool(grouped, accuracies, at, of), size) for at, of in pairs]
        )

    controls = [(control, benchmark) for control, _ in family]
    truths = [(truth, benchmark) for _, truth in family]
    gains, true_gains = tested((at, of_base) for at in controls), tested((at, of_base) for at in truths)
    differences = tested(zip(truths, controls, strict=True))
    base_answers = crossed(grouped[of_base], benchmark)
    for at, truth, gain, true_gain, difference in zip(controls, truths, gains, true_gains, differences, strict=True):
        answers, true_answers = paired(grouped, at, truth)
        alike = pool(grouped, accuracies, at, truth)
        share = share_of_gain(answers, true_answers, base_answers, alike, LEVEL / size)
        share = share.compatible(gain, true_gain, difference)
        yield {
            **{"n_seeds": gain.n_seeds, "n_problems": gain.n_problems, "family_size": size},
            **{"base_accuracy": float(base_answers.mean()), "accuracy": float(answers.mean())},
            **{"truth_accuracy": float(true_answers.mean())},
            **_interval("gain", gain),
            **{"p_gain": gain.p_holm, "p_truth": true_gain.p_holm},
            **_interval("truth_gain", true_gain),
            **{"share": share.share, "share_low": share.low, "share_high": share.high},
            **_interval("difference", difference),
            **{"p_value": difference.p_value, "p_holm": difference.p_holm},
            **{"minimum_detectable": difference.minimum_detectable},
        }


def _interval(name: str, found: Comparison) -> dict[str, float]:
    return {name: found.difference, f"{name}_low": found.family_low, f"{name}_high": found.family_high}
