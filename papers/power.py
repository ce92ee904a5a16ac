"""Compute which differences between trained policies the papers' designs could have found, like `g2d power`.

    python -m papers.power papers/power.csv     # writes the table, which a test compares

A difference is within reach if it is at least the smallest one that the design finds with 80 % probability, corrected
for the comparisons with the reference. A smaller difference may be true, but such a table cannot show it. With one
training per policy, the result only holds for these weights. Two policies are assumed to differ in 15 % of their
answers, too many for accuracies near 0 or 100 %.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from g2d.forecast.design_power import reach
from g2d.plain import say
from g2d.tables.frames import columns, frame, write_table
from g2d.tables.paper import published
from papers.claims import BRIDGING, G2D, LLAMA, OFF_POLICY, QWEN

POWER_COLUMNS = columns(
    "paper where model benchmark n_problems n_seeds n_samples sd reference policy difference smallest within_reach",
    **dict.fromkeys(("paper", "where", "model", "benchmark", "reference", "policy"), "object"),
)
QUESTIONS = {"math500": 500, "gsm8k": 1319, "amc23": 40, "AIME24": 30}
ASSUMED_SD = 1.0  # points, of accuracies over trainings, if a paper prints none


@dataclass(frozen=True)
class Design:
    """Accuracies in a table on one benchmark, by policy, and the trainings that they are from."""

    paper: str
    where: str
    model: str
    benchmark: str
    accuracies: dict[str, float]  # percent
    seeds: int  # trainings per policy
    references: tuple[str, ...]
    sd: float = ASSUMED_SD
    samples: int = 1  # answers per question


def designs() -> Iterator[Design]:
    """Yield the tables with trained policies."""
    table = published("g2d_table1")
    for model in (QWEN, LLAMA):
        rows = table[(table["model"] == model) & (table["method"] != "SFT")]
        names = [_g2d_name(row) for row in rows.to_dict("records")]
        spread = float((rows["math500_std"].astype(float) ** 2).mean() ** 0.5)
        for benchmark, sd in (("math500", spread), ("gsm8k", ASSUMED_SD)):
            accuracies = dict(zip(names, rows[benchmark].astype(float), strict=True))
            yield Design(G2D, "Table 1", model, benchmark, accuracies, 5, ("DPO (K=0)", "GRPO (G=2)"), sd)
    rows = published("bridging_table1")
    rows = rows[rows["method"] != "Seed"]
    names = [f"{row['method']} (s={row['sync_steps']})" for row in rows.to_dict("records")]
    for benchmark in ("math500", "amc23"):
        accuracies = dict(zip(names, rows[benchmark].astype(float), strict=True))
        references = ("Offline DPO (s=inf)", "GRPO (s=1)")
        yield Design(BRIDGING, "Table 1", LLAMA, benchmark, accuracies, 1, references, samples=50)
    for name, benchmark in (("offpolicy_table2", "AIME24"), ("offpolicy_table3", "math500")):
        rows = published(name)
        accuracies = {f"v={row['v']}": 100 * float(row["mean"]) for row in rows.to_dict("records")}
        where, model = f"Table {name[-1]}", "DeepSeek-R1-Distill-Qwen-1.5B"
        samples = 32 if benchmark == "AIME24" else 1
        yield Design(OFF_POLICY, where, model, benchmark, accuracies, 1, ("v=1",), samples=samples)


def _g2d_name(row: dict[str, str]) -> str:
    return f"GRPO (G={row['group_size']})" if row["method"] == "GRPO" else f"{row['method']} (K={row['K']})"


def power() -> pd.DataFrame:
    """Return a row per compared pair, in `POWER_COLUMNS`; differences, `sd` and `smallest` are in points."""
    rows = []
    for design in designs():
        questions = QUESTIONS[design.benchmark]
        common = {"questions": questions, "seeds": design.seeds, "samples": design.samples, "sd": design.sd}
        smallest = reach(pd.DataFrame(common, index=list(design.accuracies)))
        for reference in design.references:
            for policy in [name for name in design.accuracies if name != reference]:
                difference = design.accuracies[policy] - design.accuracies[reference]
                rows.append(
                    {
                        **{"paper": f"arXiv {design.paper}", "where": design.where, "model": design.model},
                        **{"benchmark": design.benchmark, "n_problems": questions, "n_seeds": design.seeds},
                        **{"n_samples": design.samples, "sd": design.sd},
                        **{"reference": reference, "policy": policy, "difference": difference},
                        **{"smallest": smallest, "within_reach": bool(abs(difference) >= smallest)},
                    }
                )
    return frame(rows, POWER_COLUMNS)


def summary(table: pd.DataFrame) -> str:
    """Return a line per table and reference: the smallest difference, and the policies beyond it."""
    lines = [f"{int(table['within_reach'].sum())} of {len(table)} differences are within reach of their own designs:"]
    places = ["paper", "where", "model", "benchmark", "n_problems", "n_seeds", "reference", "smallest"]
    for (paper, where, model, benchmark, questions, seeds, reference, smallest), rows in table.groupby(
        places, sort=False
    ):
        reached = rows[rows["within_reach"].astype(bool)]
        named = ", ".join(f"{row['policy']} {row['difference']:+.1f}" for row in reached.to_dict("records")) or "none"
        lines.append(f"  {paper}, {where}, {model}, {benchmark} ({questions:.0f} questions, seeds: {seeds:.0f})")
        lines.append(f"    against {reference}, {smallest:.1f} points or more: {named} (of {len(rows)})")
    return "\n".join(lines)


def main(path: str | Path | None = None) -> None:
    """Print the summary; write the table."""
    table = power()
    say(summary(table))
    if path:
        write_table(path, table)


if __name__ == "__main__":
    main(next(iter(sys.argv[1:]), None))
