"""Sentences about the settings that a sweep chose."""

from __future__ import annotations

import pandas as pd


def sweep_sentences(table: pd.DataFrame) -> list[str]:
    several = table["model"].nunique() > 1
    sentences: list[str] = []
    for (model, swept), rows in table.groupby(["model", "swept"], sort=False):
        name = f"{swept} of {model}" if several else str(swept)
        chosen = rows[rows["chosen"]].iloc[0]
        tied = int((rows["accuracy"] == chosen["accuracy"]).sum()) - 1
        as_good = f", as had {tied} of the larger ones" if tied else ""
        sentences.append(
            f"For {name}, {chosen['settings']} was chosen out of {len(rows)} tried at K={chosen['K']}: it had "
            f"{chosen['accuracy']:.3f} [{chosen['ci_low']:.3f}, {chosen['ci_high']:.3f}] right{as_good}."
        )
        if isinstance(chosen["edge"], str):
            sentences.append(f"For {name}, {chosen['edge']}: a better one may lie beyond, so widen the list.")
    return sentences
