"""Table 1 of "Bridging Offline and Online RL" (arXiv 2506.21495) beside a grid's own: equal model, benchmark and s."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from g2d.experiment.arms import any_arms
from g2d.experiment.config import Config
from g2d.experiment.printed import BRIDGING_BENCHMARKS, BRIDGING_MODEL, benchmarks_of, models_of
from g2d.tables.frames import floats, frame, strings
from g2d.tables.paper import published

SAMPLING = {"n": 50, "temperature": 0.6, "top_p": 0.9}  # section 3.2: mean of 50 samples
PERIODS = {"inf": "never"}  # its word for s, ours
OWN = ("accuracy", "ci_low", "ci_high")
BRIDGING_COLUMNS = {
    **strings("model", "benchmark", "method", "sync_every"),
    **floats("paper_accuracy", "paper_standard_error"),
    **strings("policy"),
    **dict.fromkeys(("K", "group_size"), "Int64"),
    **floats(*OWN, "difference"),
    "same_sampling": "bool",
}


def bridging_table(main: pd.DataFrame, config: Config) -> pd.DataFrame:
    """The paper's rows, each with what the grid has of it at its largest K: M0, GRPO alone, and every entry of
    `regimes` of DPO on fresh rollouts with the same s, whatever else differs.

    Args:
        main: from `g2d.tables.accuracy.main_table`.
        config: the grid's configuration.

    Returns:
        `BRIDGING_COLUMNS`: accuracies in 0..1, difference = accuracy - paper_accuracy; same_sampling says whether
        accuracy is a mean of 50 samples at temperature 0.6 and top-p 0.9, as the paper's. The grid's columns are null
        where it has no such policy. Empty if the paper has none of its models, or of its benchmarks.
    """
    paper = published("bridging_table1").to_dict("records")
    return frame(
        (
            _beside(printed, column, found) | {"model": model, "benchmark": benchmark, "same_sampling": same}
            for model in models_of(config, {BRIDGING_MODEL})
            for same in [_is_sampled_alike(config, model)]
            for benchmark, column in benchmarks_of(config, BRIDGING_BENCHMARKS)
            for printed in paper
            for found in _own(main[(main["model"] == model) & (main["benchmark"] == benchmark)], printed, config)
        ),
        BRIDGING_COLUMNS,
    )


def _is_sampled_alike(config: Config, model: str) -> bool:
    sampled = config.for_model(model).evaluation.answers.sampled
    return sampled is not None and sampled.model_dump(include={*SAMPLING}) == SAMPLING


def _beside(printed: dict[Any, Any], column: str, found: dict[Any, Any]) -> dict[str, Any]:
    accuracy = float(printed[column]) / 100
    return {
        "method": printed["method"],
        "sync_every": PERIODS.get(printed["sync_steps"], printed["sync_steps"]) or None,
        "paper_accuracy": accuracy,
        "paper_standard_error": float(printed[f"{column}_se"]) / 100,
        **{name: found.get(name) for name in ("policy", "K", "group_size", *OWN)},
        "difference": found["accuracy"] - accuracy if found else None,
    }


def _own(rows: pd.DataFrame, printed: dict[Any, Any], config: Config) -> Iterator[dict[Any, Any]]:
    """The grid's policies of a printed row, each at its largest K; one empty record if there is none."""
    last = rows.sort_values("K", kind="stable").groupby(["policy", rows["group_size"].fillna(0)], sort=False).tail(1)
    found = last[last["policy"].isin(_names(printed, config))].to_dict("records")
    yield from found or [{}]


def _names(printed: dict[Any, Any], config: Config) -> set[str]:
    if printed["method"] in ("Seed", "GRPO"):
        return {"base" if printed["method"] == "Seed" else "grpo"}
    period = PERIODS.get(printed["sync_steps"], printed["sync_steps"])
    entries = {name: arm.settings for name, arm in any_arms(config).items() if arm.variant == name}
    return {name for name, entry in entries.items() if str(getattr(entry, "sync_every", "")) == period}
