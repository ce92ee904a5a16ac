"""Where every online training saturates: saturation.csv."""

from __future__ import annotations

from collections.abc import Iterator

from g2d.analysis.saturation import Saturation, saturation
from g2d.experiment.grid import FEWEST_K
from g2d.tables.evaluations import Evaluations, Row, by_policy, crossed, grid_order, named
from g2d.tables.frames import Rows, floats, integers, strings, table_of

_PARTS = ("asymptote", "midpoint", "slope", "nearly")
SATURATION_COLUMNS = {
    **strings("model", "benchmark", "policy"),
    **integers("group_size", "n_seeds", "n_problems", "n_steps", "last_K"),
    **strings("status"),
    **floats("start", *(name + end for name in _PARTS for end in ("", "_low", "_high"))),
}


@table_of(SATURATION_COLUMNS)
def saturation_table(evaluations: Evaluations) -> Rows:
    """A sigmoid of accuracy against K for every online training from M0 that is evaluated at enough K > 0.

    Args:
        evaluations: as for `main_table`.

    Returns:
        `SATURATION_COLUMNS`, a row per model, benchmark, training and group size; see
        `g2d.analysis.saturation.Saturation`. Where status is not fits, the numbers of the curve are null.
    """
    grouped = by_policy(evaluations, keep=lambda key: key.role == "base" or key.on_a_curve)
    bases = {(at.model, benchmark): own for (at, benchmark), own in grouped.items() if at.role == "base"}
    curves: dict[tuple[str, str, str, int], list[Row]] = {}
    for policy, benchmark in grid_order(grouped):
        if policy.role != "base" and (policy.model, benchmark) in bases:
            curve = policy.model, benchmark, policy.regime, policy.group_size
            curves.setdefault(curve, []).append((policy, benchmark))
    for (model, benchmark, *_), of_curve in curves.items():
        rows = sorted(of_curve, key=lambda at: at[0].k)
        before = crossed(bases[model, benchmark], benchmark)
        answers = [crossed(grouped[at], benchmark) for at in rows]
        if len(rows) < FEWEST_K or len({own.shape for own in answers}) > 1:  # too few, or one without some seed
            continue
        steps = [policy.k for policy, _ in rows]
        found = saturation(steps, before, answers)
        yield {
            **named(grouped[rows[0]], benchmark),
            **{"n_seeds": answers[0].shape[0], "n_problems": answers[0].shape[1]},
            **{"n_steps": len(steps), "last_K": steps[-1], "status": found.status, "start": float(before.mean())},
            **(dict(_numbers(found)) if found.status == "fits" else {}),
        }


def _numbers(found: Saturation) -> Iterator[tuple[str, float]]:
    for name in _PARTS:
        own = getattr(found, name)
        yield from ((name, own.value), (f"{name}_low", own.low), (f"{name}_high", own.high))
