"""Claims in the tables of the G2D paper (arXiv 2605.21266): sums, shares, means and correlations of their cells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from g2d.analysis.correlations import within_correlation
from g2d.tables.paper import published
from papers.claims import COUNTS, G2D, LLAMA, QWEN, Claim, cell_of, cells_of, first_cell, percent, printed

GRPO_STEPS = 1000  # steps of the GRPO rows in Table 1
PROMPTS = 1500  # prompts per harvest in Table 2


def table_1_costs() -> Iterator[Claim]:
    """G2D at K costs K of the 1000 GRPO steps (G=2), a harvest and a DPO; the DPO row is a harvest and a DPO."""
    table = published("g2d_table1")
    for model in (QWEN, LLAMA):
        rows = table[table["model"] == model]
        parts = [cell_of(rows, "gpu_hours", method="DPO"), cell_of(rows, "gpu_hours", method="GRPO", group_size="2")]
        for _, row in rows[rows["method"] == "G2D"].iterrows():
            share = int(row["K"]) / GRPO_STEPS
            quantity = f"GPU-hours of G2D at K={row['K']}: DPO (K=0) plus {share:g} of GRPO (G=2, 1000 steps)"
            note = "contains the whole GRPO run" if share == 1 else "if every GRPO step takes equally long"
            yield Claim(G2D, "Table 1", model, quantity, row["gpu_hours"], partial(_cost, share), parts, note=note)


def table_2_correlations() -> Iterator[Claim]:
    """Pearson's r of every column with the accuracies of Table 1."""
    harvest, accuracy = published("g2d_table2"), published("g2d_table1")
    trained = accuracy[(accuracy["model"] == QWEN) & accuracy["method"].isin(["DPO", "G2D"])]
    for _, row in published("g2d_table2_correlations").iterrows():
        x = cells_of(harvest, row["metric"])
        y = [cell_of(trained, "math500", K=k) for k in harvest["K"]]
        a, b = (np.array([cell.value for cell in side]) for side in (x, y))
        correlation = within_correlation(a, b, np.zeros(len(a)))
        quantity = f"Pearson's r of {row['metric']} with MATH-500 accuracy over K"
        note = f"n = {correlation.n}, p = {correlation.p:.2f}"
        yield Claim(G2D, "Table 2, last row", QWEN, quantity, row["pearson_r"], _pearson, x + y, note=note)


def table_2_pairability() -> Iterator[Claim]:
    """rho is the pairs over the prompts of a harvest."""
    for _, row in published("g2d_table2").iterrows():
        quantity = f"pairability at K={row['K']}: pairs over {PROMPTS} prompts, percent"
        pairs = [printed(row["n_pairs"], exact=True)]
        yield Claim(G2D, "Table 2", QWEN, quantity, row["pairability"], lambda v: 100 * v[0] / PROMPTS, pairs)


def table_4() -> Iterator[Claim]:
    """Outcomes add up to the prompts, levels to their mixes, and Table 2 begins with the mix that is trained on."""
    table, claim = published("g2d_table4"), partial(Claim, G2D, "Table 4", QWEN)
    outcomes = ["pairable", "all_wrong", "all_correct"]
    for _, row in table.iterrows():
        levels = f"levels {row['levels']}" if "-" in row["levels"] else f"level {row['levels']}"
        counts = [printed(row[outcome], exact=True) for outcome in outcomes]
        n = printed(row["n"], exact=True)
        yield claim(f"prompts of {levels}: sum of the three outcomes", row["n"], np.sum, counts)
        for outcome, count in zip(outcomes, counts, strict=True):
            yield claim(f"{outcome} prompts of {levels}, percent", row[f"{outcome}_share"], percent, [count, n])
    single = table[~table["levels"].str.contains("-")]
    upper = table[table["levels"] == "3-5"].iloc[0]
    for column in ("n", *outcomes):
        yield claim(f"levels 3-5: sum of {column} over the levels", upper[column], np.sum, cells_of(single, column))
    yield claim(
        "pass@1 of levels 3-5: mean of the levels weighted by prompts, percent",
        upper["pass_at_1"],
        lambda v: float(v[:3] @ v[3:] / v[3:].sum()),
        cells_of(single, "pass_at_1") + cells_of(single, "n"),
    )
    lower = table[table["levels"] == "2-4"].iloc[0]
    kept = single[single["levels"].isin(["3", "4"])]
    bound = {"at_least": True, "note": "unless level 2 is harder than level 4; or the two mixes were not sampled alike"}
    yield claim(
        "pass@1 of levels 2-4: no less than the lower of levels 3 and 4, percent",
        lower["pass_at_1"],
        np.min,
        cells_of(kept, "pass_at_1"),
        **bound,
    )
    yield claim(
        "all-correct prompts of levels 2-4: no smaller share than the lower of levels 3 and 4, percent",
        lower["all_correct_share"],
        lambda v: 100 * float(np.min(v[:2] / v[2:])),
        cells_of(kept, "all_correct") + cells_of(kept, "n"),
        **bound,
    )
    first = published("g2d_table2").iloc[0]
    for column, stated in (("pairable", first["n_pairs"]), ("pass_at_1", first["harvest_pass_at_1"])):
        quantity = f"{column} of the harvest of M0: levels 2-4 of Table 4"
        cell = printed(lower[column], exact=column in COUNTS)
        yield Claim(G2D, "Table 2, K=0", QWEN, quantity, stated, first_cell, [cell])


def temperatures() -> Iterator[Claim]:
    """The three shares of appendix A.1 add up."""
    for _, row in published("g2d_tableA1").iterrows():
        quantity = f"temperature {row['temperature']}: pairable, all-wrong and all-correct shares, percent together"
        shares = [printed(row[column]) for column in ("pairability", "all_wrong_share", "all_correct_share")]
        note = "every prompt is one of the three"
        yield Claim(G2D, "appendix A.1", QWEN, quantity, "100", np.sum, shares, note=note)


def _cost(share: float, v: np.ndarray) -> float:
    """GPU-hours of the DPO row plus a share of the GRPO row."""
    return float(v[0] + share * v[1])


def _pearson(v: np.ndarray) -> float:
    """Pearson's r of the first half with the second."""
    return float(np.corrcoef(v.reshape(2, -1))[0, 1])
