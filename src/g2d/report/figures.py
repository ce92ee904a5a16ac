"""The paper's Figures 2 and 3, where gains come from, and accuracy by token budget; one panel per model, drawn from
the tables.

Readable in black and white: what differs by colour differs by marker and line style too. Deterministic: the same
tables give the same bytes of SVG, whose text stays text, so that it can be searched and read aloud.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from g2d.jobs.files import atomic
from g2d.report.panels import (
    BLUE,
    GREEN,
    GREY,
    STYLE,
    VERMILION,
    accuracy_axis,
    band,
    finish,
    label_lines,
    learning_curves,
    legend,
    mark_auto,
    on_a_curve,
    panel_per_model,
    panels_for,
    reference_lines,
)

SERIES = [("o", "-", BLUE), ("s", "-.", VERMILION), ("^", ":", GREEN), ("D", (0, (5, 1)), "black")]

METRICS = [
    ("entropy", "entropy H (bits)", "s", "--", VERMILION),
    ("mid_band", "mid-band fraction μ", "^", ":", GREEN),
    ("pairability", "pairability ρ", "D", "-", GREY),
]


def accuracy_figure(main: pd.DataFrame, benchmark: str, note: str | None = None) -> Figure:
    """Figure 2: accuracy against warm-up steps K, with M0 and GRPO as dashed lines, GRPO at smaller K as crosses.

    The point at K=0 is DPO on M0's own harvest. Bands are the table's 95 % intervals. A star is the policy whose
    warm-up stopped by itself.

    Args:
        main: from `g2d.tables.accuracy.main_table`.
        benchmark: the benchmark to show.
        note: printed small below the panels.

    Raises:
        ValueError: the table has rows, but none for this benchmark.
    """
    rows = _of_benchmark(main, benchmark)
    with mpl.rc_context(STYLE):
        figure, panels = panel_per_model(rows, note)
        for panel, own in panels:
            for i, (group_size, curve) in enumerate(_curves(own)):
                marker, line, color = SERIES[i % len(SERIES)]
                at_zero = " (DPO at K=0)" if 0 in curve["K"].values else ""
                label = "DPO" if group_size is None else f"G2D, G={group_size}{at_zero}"
                panel.plot(curve["K"], curve["accuracy"], marker=marker, ls=line, color=color, label=label)
                band(panel, curve, color)
            mark_auto(panel, own[own["policy"] == "g2d-auto"])
            finish(panel, own, benchmark)
            for size, curve in learning_curves(own).items():
                label = f"GRPO alone, G={size}"
                panel.plot(curve["K"], curve["accuracy"], marker="x", ms=5, ls="--", lw=1, color="0.3", label=label)
            label_lines(panel, reference_lines(own))
            legend(panel)
    return figure


def informativeness_figure(
    main: pd.DataFrame, harvest: pd.DataFrame, benchmark: str, note: str | None = None
) -> Figure:
    """Figure 3: accuracy (left axis, solid) and the harvest's H, mu and rho (right axis) against K.

    The right axis runs from 0 to 1 whatever the data, so that a flat line looks flat: H is in bits and reaches 1 at
    p = 1/2, mu and rho are shares. Where several group sizes were harvested, the smallest is shown.

    Args:
        main: from `g2d.tables.accuracy.main_table`.
        harvest: from `g2d.tables.harvest.harvest_table`.
        benchmark: the benchmark whose accuracy is shown.
        note: printed small below the panels.

    Raises:
        ValueError: the table has rows, but none for this benchmark.
    """
    rows = _of_benchmark(main, benchmark)
    models = list(dict.fromkeys([*rows["model"], *harvest["model"]]))
    with mpl.rc_context(STYLE):
        figure, panels = panels_for(models, note)
        for panel, model in zip(panels, models, strict=True):
            own, harvested = rows[rows["model"] == model], harvest[harvest["model"] == model]
            for _, curve in _curves(own)[:1]:
                panel.plot(curve["K"], curve["accuracy"], marker="o", lw=2, color=BLUE, label="accuracy (left axis)")
                band(panel, curve, BLUE)
            right = panel.twinx()
            for _, curve in _curves(harvested)[:1]:
                for column, label, marker, line, color in METRICS:
                    values = curve[column].astype(float)
                    right.plot(curve["K"], values, marker=marker, ms=4, ls=line, lw=1.2, color=color, label=label)
            right.set_ylim(0, 1)
            right.set_ylabel("H (bits), μ, ρ")
            right.grid(False)
            right.spines["right"].set_visible(True)
            panel.set_zorder(right.get_zorder() + 1)  # accuracy above the metrics
            panel.patch.set_visible(False)
            finish(panel, pd.concat([own, harvested]), benchmark)
            panel.yaxis.set_visible(not own.empty)
            legend(panel, right)
    return figure


def gain_figure(decomposition: pd.DataFrame, benchmark: str, note: str | None = None) -> Figure:
    """A waterfall per policy: from M0's accuracy to the policy's by finishing, by format, by reasoning.

    Each step begins where the one before ended; its thin line is the 95 % interval of its size. The black mark at the
    end is the policy's accuracy.

    Args:
        decomposition: from `tables.decomposition_table`.
        benchmark: the benchmark to show.
        note: printed small below the panels.

    Raises:
        ValueError: the table has rows, but none for this benchmark.
    """
    rows = _of_benchmark(decomposition, benchmark)
    with mpl.rc_context(STYLE):
        figure, panels = panel_per_model(rows, note)
        for panel, own in panels:
            base, gains = own[own["policy"] == "base"], own[own["gain"].notna()]
            for x, row in enumerate(gains.to_dict("records")):
                _waterfall(panel, x, row)
            for accuracy in base["accuracy"]:
                panel.axhline(accuracy, ls="--", lw=1, color="0.3")
            accuracy_axis(panel, benchmark)
            names = [_policy_name(row) for row in gains.to_dict("records")]
            panel.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
            panel.use_sticky_edges = False  # M0's line is the lower edge of most bars
            panel.margins(y=0.06)
        steps = [Patch(fc=color, ec="black", hatch=hatch, label=label) for _, label, color, hatch in STEPS]
        handles = [Line2D([], [], ls="--", lw=1, color="0.3", label="M0"), *steps]
        if panels:
            figure.legend(handles=handles, loc="outside upper center", ncols=4)
    return figure


def budget_figure(budgets: pd.DataFrame, benchmark: str, note: str | None = None) -> Figure:
    """Accuracy against the token budget, a line per policy with the table's 95 % intervals as bars.

    Args:
        budgets: from `tables.budget_table`; empty where no budgets were evaluated.
        benchmark: the benchmark to show.
        note: printed small below the panels.

    Raises:
        ValueError: the table has rows, but none for this benchmark.
    """
    rows = _of_benchmark(budgets, benchmark)
    rows = rows[rows["policy"].isin(["base", "dpo", "g2d", "g2d-auto", "grpo"])]
    nothing = "No token budgets were evaluated (evaluation.token_budgets)."
    with mpl.rc_context(STYLE):
        figure, panels = panel_per_model(rows, note, nothing)
        for panel, own in panels:
            curves = list(own.groupby(["policy", "K", own["group_size"].fillna(0)], sort=False))
            for i, (_, curve) in enumerate(curves):
                marker, line, color = SERIES[i % len(SERIES)]
                offset = 1 + 0.012 * (i - (len(curves) - 1) / 2)  # bars beside each other
                x, y = curve["budget"] * offset, curve["accuracy"]
                errors = [y - curve["ci_low"], curve["ci_high"] - y]
                name = _policy_name(curve.iloc[0].to_dict())
                fill = color if i < len(SERIES) else "white"
                panel.errorbar(
                    x, y, yerr=errors, marker=marker, ls=line, color=color, mfc=fill, lw=1.2, elinewidth=0.7, label=name
                )
            panel.set_xscale("log", base=2)
            panel.set_xticks(sorted(set(own["budget"])), [str(budget) for budget in sorted(set(own["budget"]))])
            panel.xaxis.set_minor_locator(NullLocator())
            panel.set_xlabel("token budget")
            accuracy_axis(panel, benchmark)
            panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3)
    return figure


def save_figure(path: str | Path, figure: Figure) -> None:
    """Write a figure as SVG without a date, so that two runs give identical bytes."""
    with mpl.rc_context(STYLE), atomic(path) as draft:
        figure.savefig(draft, format="svg", metadata={"Date": None})


# ------------------------------------------------------------------------------------------------------------- parts

STEPS = [  # column of the decomposition, label, colour, hatch
    ("from_finishing", "finishing", BLUE, ""),
    ("from_format", "format", "white", "////"),
    ("from_reasoning", "reasoning", VERMILION, "...."),
]


def _waterfall(panel: Axes, x: int, row: dict[Any, Any], width: float = 0.26) -> None:
    level = row["accuracy"] - row["gain"]
    for i, (column, _, color, hatch) in enumerate(STEPS):
        at, size = x + (i - 1) * width, row[column]
        panel.bar(at, size, width, bottom=level, color=color, hatch=hatch, edgecolor="black", lw=0.6)
        panel.vlines(at, level + row[f"{column}_low"], level + row[f"{column}_high"], color="black", lw=0.8)
        level += size
    panel.hlines(level, x - 1.5 * width, x + 1.8 * width, color="black", lw=2)


def _policy_name(row: dict[Any, Any]) -> str:
    if row["policy"] == "base":
        return "M0"
    group_size = row["group_size"]
    size = "" if pd.isna(group_size) or row["policy"] != "grpo" else f", G={int(group_size)}"
    name = {"dpo": "DPO", "g2d": "G2D", "g2d-auto": "G2D auto", "grpo": "GRPO"}.get(row["policy"], row["policy"])
    return f"{name} K={row['K']}{size}"


def _of_benchmark(main: pd.DataFrame, benchmark: str) -> pd.DataFrame:
    """Rows of one benchmark; none if nothing was evaluated at all, as with recorded completions."""
    rows = main[main["benchmark"] == benchmark]
    if rows.empty and not main.empty:
        known = ", ".join(map(str, main["benchmark"].unique()))
        raise ValueError(f"the main table has no rows for the benchmark {benchmark!r}: choose from {known}")
    return rows


def _curves(rows: pd.DataFrame) -> list[tuple[int | None, pd.DataFrame]]:
    """One curve over K per group size; K=0 has no group size and starts every curve."""
    rows = on_a_curve(rows)
    group_size = rows["group_size"].fillna(0)
    sizes = sorted({int(size) for size in group_size} - {0})
    if not sizes:
        return [(None, rows)] if len(rows) else []
    return [(size, rows[group_size.isin([0, size])].sort_values("K")) for size in sizes]
