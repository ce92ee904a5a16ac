"""Controls: how much of a policy's gain over M0 does one get that was trained alike, but on another reward?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.analysis.comparisons import LEVEL, compare
from g2d.analysis.shares import share_of_gain
from g2d.analysis.statistics import holm
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import ROW_COLUMNS, Evaluations, Row, by_policy, crossed, grid_order, named
from g2d.tables.families import Grouped, paired, pool
from g2d.tables.frames import floats, frame, integers, mean, strings

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


def controls_table(
    evaluations: Evaluations,
    controls: Mapping[str, str],
    seen: Mapping[PolicyKey, Mapping[str, float]],
) -> pd.DataFrame:
    """Every policy that was trained on another reward, beside the one that differs in nothing else.

    Args:
        evaluations: as for `main_table`.
        controls: by the name of a policy, that of the one it is a control of (`g2d.experiment.controls`).
        seen: of a control, the mean reward of the rollouts that it was trained on (rewarded), and the share of them
            that is right (right).

    Returns:
        `CONTROL_COLUMNS`, one row per control, K, G and benchmark where both policies and M0 were evaluated. gain and
        truth_gain are over M0, difference is truth less control, all with intervals that hold for all controls of the
        model and benchmark at once; p_holm corrects p_value, that of the difference, over them (family_size), and so do
        p_gain and p_truth. share is gain over truth_gain, with the interval of `share_of_gain`; null where truth_gain
        is not told from 0.

    Raises:
        ValueError: two policies answered different problems, or have different seeds.
    """
    return frame(_rows(evaluations, controls, seen), CONTROL_COLUMNS)


def seen_in_training(rollouts: str | Path) -> dict[str, float]:
    """What a policy saw in training: the mean reward of the rollouts, and the share of them that is right; nothing
    where none were kept."""
    rows = pd.read_parquet(rollouts, columns=["reward", "verdict"])
    known = rows["reward"].dropna()
    return (
        {"rewarded": float(known.mean()), "right": float((rows["verdict"] == "correct").mean())} if len(known) else {}
    )


def _rows(
    evaluations: Evaluations,
    controls: Mapping[str, str],
    seen: Mapping[PolicyKey, Mapping[str, float]],
) -> Iterator[dict[str, Any]]:
    grouped = by_policy(evaluations, keep=lambda key: True)
    order = grid_order(grouped)
    for model, benchmark in dict.fromkeys((policy.model, name) for policy, name in order):
        own = [policy for policy, name in order if (policy.model, name) == (model, benchmark)]
        base = next((policy for policy in own if policy.role == "base"), None)
        at = {(policy.regime, policy.group_size, policy.k): policy for policy in own}
        family = [
            (policy, at[twin])
            for policy in own
            if (twin := (controls.get(policy.regime, ""), policy.group_size, policy.k)) in at
        ]
        if base is None or not family:
            continue
        tested = [_tested(grouped, benchmark, control, truth, base, len(family)) for control, truth in family]
        adjusted = {name: holm([row[name] for row in tested]) for name in ("p_value", "p_gain", "p_truth")}
        for number, ((control, truth), row) in enumerate(zip(family, tested, strict=True)):
            corrected = {name: float(values[number]) for name, values in adjusted.items()}
            row |= {"p_holm": corrected["p_value"], "p_gain": corrected["p_gain"], "p_truth": corrected["p_truth"]}
            row |= {"reward": control.reward, "truth": truth.label}
            known = [found for key in grouped[control, benchmark] if (found := seen.get(key))]
            row |= {name: mean([found[name] for found in known]) for name in ("rewarded", "right")}
            yield named(control, benchmark) | row


def _tested(
    grouped: Grouped, benchmark: str, control: PolicyKey, truth: PolicyKey, base: PolicyKey, family: int
) -> dict[str, Any]:
    """Both gains, their difference and their ratio."""
    of_control, of_truth, of_base = ((policy, benchmark) for policy in (control, truth, base))
    accuracies = {at: crossed(own, at[1]).mean(axis=1) for at, own in grouped.items() if at[1] == benchmark}

    def against(at: Row, reference: Row) -> Any:
        return compare(*paired(grouped, at, reference), pool(grouped, accuracies, at, reference), family)

    gain, truth_gain = against(of_control, of_base), against(of_truth, of_base)
    difference = against(of_truth, of_control)
    answers, true_answers = paired(grouped, of_control, of_truth)
    alike = pool(grouped, accuracies, of_control, of_truth)
    share = share_of_gain(answers, true_answers, crossed(grouped[of_base], benchmark), alike, LEVEL / family)
    base_accuracy = float(accuracies[of_base].mean())
    return {
        **{"n_seeds": gain.n_seeds, "n_problems": gain.n_problems, "family_size": family},
        **{"base_accuracy": base_accuracy, "accuracy": float(answers.mean())},
        **{"truth_accuracy": float(true_answers.mean())},
        **{"gain": gain.difference, "gain_low": gain.family_low, "gain_high": gain.family_high},
        **{"truth_gain": truth_gain.difference, "p_gain": gain.p_value, "p_truth": truth_gain.p_value},
        **{"truth_gain_low": truth_gain.family_low, "truth_gain_high": truth_gain.family_high},
        **{"share": share.share, "share_low": share.low, "share_high": share.high},
        **{"difference": difference.difference, "p_value": difference.p_value},
        **{"difference_low": difference.family_low, "difference_high": difference.family_high},
        **{"minimum_detectable": difference.minimum_detectable},
    }
