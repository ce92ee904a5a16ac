"""Controls: gains of policies trained on another reward, as a share of the gain with the true reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import pandas as pd

from g2d.analysis.comparisons import LEVEL, Comparison
from g2d.analysis.shares import share_of_gain
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import ROW, Evaluations, Grouped, Row, by_grid, by_policy, named
from g2d.tables.families import Paired
from g2d.tables.frames import Rows, columns, estimate, mean, table_of

CONTROL_COLUMNS = columns(
    *(ROW, "reward truth n_seeds n_problems rewarded right accuracy base_accuracy truth_accuracy"),
    "gain gain_low gain_high p_gain truth_gain truth_gain_low truth_gain_high p_truth share share_low share_high",
    "difference difference_low difference_high p_value family_size p_holm",
    reward="object",
)

# Parts of the gain over M0 (arXiv 2606.05932): each is the accuracy with one reward minus that with another.
TERMS = {"null": ("random", "base"), "elicitation": ("majority", "random"), "reward": ("truth", "majority")}
TERM_COLUMNS = columns(
    *("model benchmark level policy K group_size n_seeds n_problems", "gain gain_low gain_high"),
    *(f"{name} {name}_low {name}_high" for name in TERMS),
    level="Int64",
)


@table_of(CONTROL_COLUMNS)
def controls_table(
    evaluations: Evaluations,
    controls: Mapping[str, str],
    seen: Mapping[PolicyKey, Mapping[str, float]],
) -> Rows:
    """A row per policy that was trained on another reward, if M0 and its counterpart (`controls`) were evaluated; share
    is null if p_truth is above 5 %.
    """
    grouped = by_policy(evaluations)
    for (_, benchmark), rows in by_grid(grouped).items():
        base = next((at for at in rows if at[0].role == "base"), None)
        at = {(policy.regime, policy.group_size, policy.k): (policy, benchmark) for policy, _ in rows}
        family = [
            (control, at[twin])
            for control in rows
            if (twin := (controls.get(control[0].regime, ""), control[0].group_size, control[0].k)) in at
        ]
        if base is None or not family:
            continue
        for (control, truth), row in zip(family, _tested(Paired(grouped, rows), family, base), strict=True):
            row |= {"reward": control[0].arm.other_reward, "truth": truth[0].label}
            for name in ("rewarded", "right"):
                row[name] = mean(seen.get(key, {}).get(name) for key in grouped[control])
            yield named(grouped[control], benchmark) | row


@table_of(TERM_COLUMNS)
def terms_table(evaluations: Evaluations, controls: Mapping[str, str], control_rewards: Mapping[str, str]) -> Rows:
    """A row per policy whose random and majority controls were evaluated, over all problems and for each level; the
    intervals of `TERMS` hold together.
    """
    names = {(twin, control_rewards[name]): name for name, twin in controls.items()}
    grouped = by_policy(evaluations)
    for (_, benchmark), rows in by_grid(grouped).items():
        at = {(policy.regime, policy.group_size, policy.k): (policy, benchmark) for policy, _ in rows}
        base = next((row for row in rows if row[0].role == "base"), None)
        families = []
        for policy, _ in rows:
            kinds = {kind: names.get((policy.regime, kind), "") for kind in ("random", "majority")}
            kinds["truth"] = policy.regime
            points = {kind: (name, policy.group_size, policy.k) for kind, name in kinds.items()}
            if base and at.keys() >= {*points.values()}:
                families.append({"base": base} | {kind: at[point] for kind, point in points.items()})
        levels = sorted(next(iter(grouped[rows[0]].values()))["level"].dropna().unique()) if families else []
        for level in (None, *levels) if len(levels) > 1 else (None,):
            answers = Paired(_of_level(grouped, rows, level), rows)
            for arms in families:
                terms = answers.tested([(arms[policy], arms[reference]) for policy, reference in TERMS.values()])
                (gain,) = answers.tested([(arms["truth"], arms["base"])])
                yield {
                    **named(grouped[arms["truth"]], benchmark),
                    **{"level": level, "n_seeds": gain.n_seeds, "n_problems": gain.n_problems},
                    **dict(chain(*(_corrected(*pair).items() for pair in zip(TERMS, terms, strict=True)))),
                    **_corrected("gain", gain),
                }


def _of_level(grouped: Grouped, rows: Sequence[Row], level: int | None) -> Grouped:
    if level is None:
        return grouped
    return {row: {key: part[part["level"] == level] for key, part in grouped[row].items()} for row in rows}


def seen_in_training(rollouts: str | Path) -> dict[str, float]:
    """Return mean reward and share of right answers of a policy's training rollouts, {} without any."""
    rows = pd.read_parquet(rollouts, columns=["reward", "verdict"])
    rewards = rows["reward"].dropna()
    if rewards.empty:
        return {}
    return {"rewarded": float(rewards.mean()), "right": float((rows["verdict"] == "correct").mean())}


def _tested(answers: Paired, family: Sequence[tuple[Row, Row]], base: Row) -> Rows:
    gains = answers.tested([(control, base) for control, _ in family])
    true_gains = answers.tested([(truth, base) for _, truth in family])
    differences = answers.tested([(truth, control) for control, truth in family])
    of_base = answers.correct[base]
    for (control, truth), gain, true_gain, difference in zip(family, gains, true_gains, differences, strict=True):
        of_control, of_truth = answers.pair(control, truth)
        pool = answers.pool(control, truth)
        share = share_of_gain(of_control, of_truth, of_base, pool, LEVEL / len(family), answers.clusters)
        share = share.compatible(gain, true_gain, difference)
        yield {
            **{"n_seeds": gain.n_seeds, "n_problems": gain.n_problems, "family_size": len(family)},
            **{"base_accuracy": float(of_base.mean()), "accuracy": float(of_control.mean())},
            **{"truth_accuracy": float(of_truth.mean())},
            **_corrected("gain", gain),
            **{"p_gain": gain.p_holm, "p_truth": true_gain.p_holm},
            **_corrected("truth_gain", true_gain),
            **estimate("share", share.share, (share.low, share.high)),
            **_corrected("difference", difference),
            **{"p_value": difference.p_value, "p_holm": difference.p_holm},
        }


def _corrected(name: str, test: Comparison) -> dict[str, float | None]:
    return estimate(name, test.difference, (test.family_low, test.family_high))
