"""The sweep in sentences: the chosen settings, and where the chosen value is the last of its list."""

from __future__ import annotations

import pandas as pd

from g2d.experiment.config import Config
from g2d.experiment.sweep import held_out


def sweep_sentences(table: pd.DataFrame) -> list[str]:
    """A sentence for every entry of `sweep.csv`, and a warning where its choice is the last value of a list."""
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


def sweep_paragraph(config: Config, table: pd.DataFrame, alike: bool) -> str:
    """How the settings were chosen, for the methods; `alike` says whether all models have the same choice."""
    n = int(table["n_problems"].iloc[0])
    source = "held out of the training pool" if held_out(config) else "of a development set"
    sentences = [
        f"Before any benchmark was answered, settings were chosen on {n} problems {source}, by the accuracy of one "
        f"training each (seed {table['seed'].iloc[0]}), the smallest values of equally good ones.",
        *sweep_sentences(table),
    ]
    if not alike:
        sentences.append(
            f"Where the choices differ by model, the settings named above are those of {next(iter(config.models))}."
        )
    return " ".join(sentences)
