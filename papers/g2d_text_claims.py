"""Claims in the text of the G2D paper (arXiv 2605.21266) about its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from g2d.tables.paper import published
from papers.claims import G2D, Claim, Formula, Printed, cell_of, cells_of, difference, first_cell, percent, ratio


def g2d_statements() -> Iterator[Claim]:
    """Yield the numbers in the text."""
    for _, row in published("g2d_statements").iterrows():
        formula, cells = _statement_formula(row["statement"], row["model"])
        yield Claim(G2D, row["where"], row["model"], row["quantity"], row["stated"], formula, cells)


def _statement_formula(statement: str, model: str) -> tuple[Formula, list[Printed]]:
    main, harvest, levels = published("g2d_table1"), published("g2d_table2"), published("g2d_table4")
    main = main[main["model"] == model]
    warmed_up = main[main["method"] == "G2D"]
    accuracy, hours = (partial(cell_of, main, column) for column in ("math500", "gpu_hours"))

    def g2d(cell: Callable[..., Printed], k: str = "150") -> Printed:
        return cell(method="G2D", K=k)

    def grpo(cell: Callable[..., Printed], group_size: str = "2") -> Printed:
        return cell(method="GRPO", group_size=group_size)

    def by_k(metric: str) -> list[Printed]:
        """Return a metric over K without rounding ranges: only the order matters."""
        return [Printed(cell.value, 0.0) for cell in cells_of(harvest, metric)]

    def peak(v: np.ndarray) -> float:
        return float(harvest["K"].iloc[int(np.argmax(v))])

    def rises(v: np.ndarray) -> float:
        return float((np.diff(v[int(np.argmax(v)) :]) > 0).sum())

    formulas: dict[str, tuple[Formula, list[Printed]]] = {
        "gain_over_grpo": (difference, [g2d(accuracy), grpo(accuracy)]),
        "compute_ratio": (ratio, [grpo(hours), g2d(hours)]),
        "share_of_compute": (ratio, [g2d(hours), grpo(hours)]),
        "same_k_ratio": (ratio, [grpo(hours), g2d(hours, "1000")]),
        "largest_ratio": (lambda v: v[0] / np.min(v[1:]), [grpo(hours), *cells_of(warmed_up, "gpu_hours")]),
        "smallest_gain": (lambda v: np.min(v[1:]) - v[0], [grpo(accuracy), *cells_of(warmed_up, "math500")]),
        "dpo_over_grpo": (difference, [accuracy(method="DPO"), grpo(accuracy)]),
        "group_size_gain": (difference, [grpo(accuracy, "4"), grpo(accuracy)]),
        "group_size_accuracy": (first_cell, [grpo(accuracy, "4")]),
        "group_size_gap": (difference, [g2d(accuracy), grpo(accuracy, "4")]),
        "best_grpo": (np.max, [grpo(accuracy), grpo(accuracy, "4")]),
        "entropy_peak": (peak, by_k("entropy")),
        "mid_band_peak": (peak, by_k("mid_band")),
        "pairability_peak": (peak, by_k("pairability")),
        "entropy_decline": (rises, by_k("entropy")),
        "mid_band_decline": (rises, by_k("mid_band")),
        "pair_quantity": (difference, [cell_of(published("g2d_table3"), "math500", n_pairs=n) for n in ("708", "680")]),
        "level_5_wrong": (percent, [cell_of(levels, column, levels="5") for column in ("all_wrong", "n")]),
    }
    return formulas[statement]
