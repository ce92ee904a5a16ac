"""Colour, shape and dash of each policy in all figures of a page: one colour per kind of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pandas as pd

from g2d.grid.grid import Grid
from g2d.grid.runs import Policy, called
from g2d.regimes.catalogue import REGIMES
from g2d.tables.frames import Cells

# Okabe and Ito's colours for colour-blind readers.
OKABE_ITO = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 2, 2, 2), (12, 3), (4, 1), (8, 2, 2, 2, 2, 2), (1, 4))

METHODS = tuple(dict.fromkeys(["base", "dpo", *REGIMES]))
COLORS = dict(zip(METHODS, cycle(OKABE_ITO), strict=False))
SERIES = {"base": "M0", "g2d": "G2D (at K=0: DPO)", "g2d-auto": "G2D auto", "grpo": "GRPO alone"}


@dataclass(frozen=True)
class Style:
    series: str  # name in legends
    color: str
    shape: str
    dash: tuple[int, ...]
    of_warmup: bool  # its K counts steps of the GRPO warm-up


Styles = Mapping[tuple[str, int], Style]  # key: policy, and group size or 0


def numbered_style(number: int, series: str, color: str) -> Style:
    return Style(series, color, SHAPES[number % len(SHAPES)], DASHES[number % len(DASHES)], of_warmup=False)


def series_styles(grid: Grid) -> Styles:
    by_name: dict[str, list[Policy]] = {}
    # Trainings that are not evaluated have curves too.
    for policy in [*grid.policies, *(last.over_seeds for last in grid.chains)]:
        by_name.setdefault(_name(policy.label), []).append(policy)
    made: dict[tuple[str, int], Style] = {}
    n_drawn: Counter[str] = Counter()  # styles by method
    for name, policies in sorted(by_name.items(), key=lambda item: METHODS.index(item[1][0].method)):
        first = policies[0]
        method = first.method
        sizes = sorted({policy.group_size for policy in policies} - {0}) or [0]
        for size in sizes:
            series = SERIES.get(name) or _series(name, REGIMES[method].label)
            if len(sizes) > 1:
                series += f", G={size}"
            made[name, size] = Style(
                series=series,
                color=COLORS[method],
                shape=SHAPES[(METHODS.index(method) + n_drawn[method]) % len(SHAPES)],
                dash=DASHES[n_drawn[method] % len(DASHES)],
                of_warmup=_follows_warmup(first),
            )
            n_drawn[method] += 1
        made.setdefault((name, 0), made[name, sizes[0]])
    return made


def _follows_warmup(policy: Policy) -> bool:
    online = policy.run.online
    return online is not None and online.method == "grpo" and policy.role != "ablation"


def policy_of(row: Cells, column: str = "policy") -> tuple[str, int, int]:
    """Return the policy, K and group size (or 0) of a row, or of its reference."""
    before = "" if column == "policy" else f"{column}_"
    return row[column], int(row[f"{before}K"]), _size(row[f"{before}group_size"])


def _size(group_size: Any) -> int:
    return 0 if pd.isna(group_size) else int(group_size)


def style_of(styles: Styles, policy: str, group_size: object) -> Style:
    name = _name(policy)
    for key in ((name, _size(group_size)), (name, 0)):
        if key in styles:
            return styles[key]
    return Style(SERIES.get(name, name), OKABE_ITO[0], SHAPES[0], DASHES[0], of_warmup=True)


def styles_of(rows: pd.DataFrame, styles: Styles) -> list[Style]:
    return [style_of(styles, *at) for at in zip(rows["policy"], rows["group_size"], strict=True)]


def _name(policy: str) -> str:
    return "g2d" if policy == "dpo" else policy


def _series(name: str, label: str) -> str:
    if name.casefold() == label.casefold():
        return label
    return f"{label}: {name.removesuffix('/grpo')}"


def drawn(rows: pd.DataFrame, styles: Styles) -> pd.DataFrame:
    series = [style.series for style in styles_of(rows, styles)]
    return rows.assign(series=series, name=names(rows)).reset_index(drop=True)


def legend(rows: pd.DataFrame, styles: Styles) -> dict[str, Style]:
    """Return the styles of these rows by series: in the order of the grid, then policies that the grid lacks."""
    present = {style.series: style for style in styles_of(rows, styles)}
    in_order = {style.series: present[style.series] for style in styles.values() if style.series in present}
    return in_order | present


def line_styles(rows: pd.DataFrame, styles: Styles) -> dict[str, Style]:
    policies = rows[["policy", "group_size"]].assign(name=names(rows)).drop_duplicates("name")
    by_name = {}
    for i, (policy, size, name) in enumerate(policies.itertuples(index=False)):
        by_name[name] = numbered_style(i, name, style_of(styles, policy, size).color)
    return by_name


def names(rows: pd.DataFrame) -> list[str]:
    n_sizes = rows.groupby("policy")["group_size"].nunique()
    several = set(n_sizes[n_sizes > 1].index)
    called_names = []
    for policy, k, size in zip(rows["policy"], rows["K"], rows["group_size"], strict=True):
        shown_size = _size(size) if policy in several else 0
        called_names.append(called(policy, k, shown_size))
    return called_names
