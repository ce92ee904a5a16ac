"""Claims of "Revisiting GRPO" (arXiv 2505.22257) about its tables and settings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from g2d.tables.paper import published
from papers.claims import OFF_POLICY, Claim, Formulas, Printed, cell_of, difference, first_cell, printed, stated_claims

R1_QWEN = "DeepSeek-R1-Distill-Qwen-1.5B"
BENCHMARKS = {"AIME24": "offpolicy_table2", "MATH500": "offpolicy_table3"}
AIME24_ANSWERS = 30 * 32  # problems x samples behind a value of Table 2
STAGES = 3  # S of Figure 2


def offpolicy_statements() -> Iterator[Claim]:
    """Yield numbers and comparisons in the text."""
    return stated_claims(OFF_POLICY, "offpolicy_statements", _formulas)


def aime_shares() -> Iterator[Claim]:
    """Yield values of AIME24: a pass@1 of 30 problems and 32 samples is a share of 960 answers."""
    for _, row in published("offpolicy_table2").iterrows():
        for extreme in ("min", "max"):
            quantity = f"AIME24, {extreme} of v={row['v']}: nearest share of {AIME24_ANSWERS} answers"
            formula, cells = partial(_nearest_share, AIME24_ANSWERS), [printed(row[extreme])]
            yield Claim(OFF_POLICY, "Table 2", R1_QWEN, quantity, row[extreme], formula, cells)


def _formulas(statement: str) -> Formulas:
    match statement:
        case "on_par_or_better":
            return {
                f"{statistic} on {benchmark}": (
                    difference,
                    [cell_of(published(table), statistic, v=v) for v in ("10", "1")],
                )
                for benchmark, table in BENCHMARKS.items()
                for statistic in ("median", "mean")
            }
        case "prompts_per_step":
            names = ("training_gpus", "gradient_accumulation")
            return {"": (np.prod, [_setting(name) for name in names])}
        case "epochs":
            return {"": (first_cell, [Printed(STAGES, 0)])}
        case "sigma_bound":
            return {"": (lambda v: float(np.sqrt(v[0] * (1 - v[0]))), [Printed(0.5, 0)])}  # p = 1/2 is the largest
        case "index_of_v":
            on_policy = published("offpolicy_table1").iloc[0]
            return {"": (first_cell, [printed(on_policy["v"], exact=True)])}
    raise KeyError(f"no formula for the statement {statement}")


def _nearest_share(answers: int, v: np.ndarray) -> float:
    return float(np.round(v[0] * answers) / answers)


def _setting(name: str) -> Printed:
    """Return a setting of the experiment on GSM8K, an exact count."""
    return Printed(cell_of(published("offpolicy_settings"), "gsm8k", setting=name).value, 0)
