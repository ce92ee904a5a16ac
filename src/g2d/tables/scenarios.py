"""One kind of prompts, one after the other, or both: Table 3 of "Bridging Offline and Online RL" (arXiv 2506.21495)
beside a grid's own policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from g2d.experiment.prompt_counts import THEN
from g2d.tables.frames import Columns, floats, frame, strings
from g2d.tables.paper import published

# Its columns "Seed" and "Dataset" of the 8B rows, and what such a policy was trained on here.
SEED = "Llama-3.1-8B-Instruct"
SCENARIOS = {
    (SEED, ""): "",
    (SEED, "NM"): "verifiable",
    (SEED, "WC"): "open_ended",
    ("WC-Checkpoint", "NM"): THEN.join(("open_ended", "verifiable")),
    ("NM-Checkpoint", "WC"): THEN.join(("verifiable", "open_ended")),
    (SEED, "NM+WC"): "mixed",
}
PRINTED = ("math500", "math500_se", "amc23", "amc23_se", "alpacaeval_lc", "alpacaeval_lc_se", "arenahard")
SCENARIO_COLUMNS: Columns = {
    **strings("prompts", "paper_seed", "paper_dataset"),
    **floats(*(f"paper_{name}" for name in PRINTED)),
    **strings("model", "policy"),
    **dict.fromkeys(("K", "group_size"), "Int64"),
    **strings("benchmark"),
    **floats("accuracy", "ci_low", "ci_high", "win_rate", "equal_length", "equal_length_low", "equal_length_high"),
}
SAME = ["model", "policy", "K", "group_size"]


def scenario_table(main: pd.DataFrame, win_rates: pd.DataFrame, prompts: Mapping[str, str]) -> pd.DataFrame:
    """The paper's rows, each with every policy of the grid that was trained on the same kinds of prompts.

    Args:
        main: from `g2d.tables.accuracy.main_table`.
        win_rates: from `g2d.tables.win_rates.win_rate_table`.
        prompts: by the label of M0 and of every policy on fresh rollouts, the kinds of prompts that it was trained on.

    Returns:
        `SCENARIO_COLUMNS`, in the paper's order: its numbers over 100, win rates as in `win_rates.csv` (M0 has none),
        accuracies of every benchmark; the grid's columns are null where it has no such policy.
    """
    own = main.assign(prompts=main["policy"].map(dict(prompts))).dropna(subset="prompts")
    own = own.merge(win_rates.drop(columns="prompts"), on=SAME, how="left", validate="many_to_one")
    rows: list[dict[Any, Any]] = []
    printed = {(row["seed_model"], row["dataset"]): row for row in published("bridging_table3").to_dict("records")}
    for at, kinds in SCENARIOS.items():
        paper: dict[Any, Any] = {"prompts": kinds, "paper_seed": at[0], "paper_dataset": at[1]}
        paper |= {f"paper_{name}": float(printed[at][name]) / 100 for name in PRINTED}
        found = own[own["prompts"] == kinds].to_dict("records") or [{}]
        rows += [{**row, **paper} for row in found]
    return frame(rows, SCENARIO_COLUMNS)
