"""What the printed figures are put together from: one style, a panel per model, its axes, bands, lines and legend."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

STYLE: Any = {  # Any: the stub wants a dictionary of literal keys
    "svg.fonttype": "none",
    "svg.hashsalt": "g2d",  # ids in the SVG are random without one
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1,  # inches
    "figure.constrained_layout.h_pad": 0.1,
}

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#007F5F", "0.55"

PANEL_WIDTH, PANEL_HEIGHT = 4.8, 4.0  # inches, legend and note included
NOTE_CHARACTERS_PER_INCH = 17
NOTHING = "Nothing was evaluated."


def on_a_curve(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that lie on a curve over K: of the main table DPO and G2D, of the harvest table all."""
    return rows[rows["policy"].isin(["dpo", "g2d"])] if "policy" in rows else rows


def reference_lines(rows: pd.DataFrame) -> pd.DataFrame:
    """M0, and GRPO alone at the last K of every group size."""
    alone = rows[rows["policy"] == "grpo"]
    return pd.concat([rows[rows["policy"] == "base"], alone.loc[alone.groupby("group_size")["K"].idxmax()]])


def learning_curves(rows: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """GRPO alone by group size, from M0 on, where it was evaluated at several K."""
    base, alone = rows[rows["policy"] == "base"], rows[rows["policy"] == "grpo"]
    by_size = {
        size: own.sort_values("K")
        for size in sorted({int(size) for size in alone["group_size"]})
        if len(own := alone[alone["group_size"] == size]) > 1
    }
    return {size: pd.concat([base, own]) for size, own in by_size.items()}


def panel_per_model(
    rows: pd.DataFrame, note: str | None, nothing: str = NOTHING
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A figure, and for every model of a table its panel and its rows."""
    models = list(dict.fromkeys(rows["model"]))
    figure, panels = panels_for(models, note, nothing)
    return figure, [(panel, rows[rows["model"] == model]) for panel, model in zip(panels, models, strict=True)]


def panels_for(models: Sequence[str], note: str | None, nothing: str = NOTHING) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for every model, and the note below; `nothing` is what it says without models."""
    width = PANEL_WIDTH * max(1, len(models))
    figure = Figure(figsize=(width, PANEL_HEIGHT))
    if not models:
        figure.text(0.5, 0.5, nothing, ha="center")
    panels = [figure.add_subplot(1, len(models), i + 1, title=model) for i, model in enumerate(models)]
    if note:
        figure.supxlabel(textwrap.fill(note, int(width * NOTE_CHARACTERS_PER_INCH)), fontsize=7, color="0.3")
    return figure, panels


def band(panel: Axes, curve: pd.DataFrame, color: str) -> None:
    """The interval as a band, or as a bar where the curve is a single point."""
    if len(curve) > 1:
        panel.fill_between(curve["K"], curve["ci_low"], curve["ci_high"], color=color, alpha=0.15, lw=0)
    else:
        panel.vlines(curve["K"], curve["ci_low"], curve["ci_high"], color=color, alpha=0.4, lw=3)


def mark_auto(panel: Axes, rows: pd.DataFrame) -> None:
    """A star, with its interval, for the policy of every group size whose warm-up stopped by itself."""
    for row in rows.to_dict("records"):
        size = f" (G={row['group_size']})" if len(rows) > 1 else ""
        label = f"G2D, stopped by itself{size}"
        panel.vlines(row["K"], row["ci_low"], row["ci_high"], color=GREEN, lw=1)
        panel.plot(row["K"], row["accuracy"], marker="*", ms=12, mec="black", mfc=GREEN, ls="", label=label)


def finish(panel: Axes, rows: pd.DataFrame, benchmark: str) -> None:
    """The axes of a panel over K."""
    panel.set_xlabel("GRPO warm-up steps K")
    accuracy_axis(panel, benchmark)
    panel.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    panel.set_xticks(_apart(sorted({int(k) for k in on_a_curve(rows)["K"]})))


def accuracy_axis(panel: Axes, benchmark: str) -> None:
    """The axis of accuracies, in per cent."""
    panel.set_ylabel(f"{benchmark}, pass@1")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g}%"))


def _apart(ks: Sequence[int], share: float = 0.08) -> list[int]:
    """The values of K that leave room for their labels on the axis."""
    shown: list[int] = []
    for k in ks:
        if not shown or k - shown[-1] >= share * (ks[-1] - ks[0]):
            shown.append(k)
    return shown


def label_lines(panel: Axes, baselines: pd.DataFrame, gap: float = 0.055) -> None:
    """Draw each baseline as a dashed line with its name at the right end, moved up where names would overlap."""
    lines = sorted(
        (round(float(accuracy), 6), "M0" if policy == "base" else f"GRPO, G={size}")
        for policy, size, accuracy in zip(
            baselines["policy"], baselines["group_size"], baselines["accuracy"], strict=True
        )
    )
    for accuracy, _ in lines:
        panel.axhline(accuracy, ls="--", lw=1, color="0.3")
    low, high = panel.get_ylim()
    y = -math.inf
    for accuracy, name in lines:
        y = max(accuracy, y + gap * (high - low))
        panel.text(1.02, y, name, transform=panel.get_yaxis_transform(), va="center", fontsize=8)


def legend(*axes: Axes) -> None:
    """One legend below the first axes; unlabelled artists stay out of it."""
    handles = [line for ax in axes for line in ax.get_lines() if not str(line.get_label()).startswith("_")]
    if handles:
        axes[0].legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
