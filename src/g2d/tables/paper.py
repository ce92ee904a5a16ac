"""What the papers printed beside a grid's own: Table 1 of the G2D paper, and Tables 1 and 3 of "Bridging Offline and
Online RL" (arXiv 2506.21495)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from importlib import resources
from io import StringIO
from typing import Any

import pandas as pd

from g2d.experiment.arms import any_arms
from g2d.experiment.config import Config
from g2d.experiment.printed import BRIDGING_BENCHMARKS, BRIDGING_MODEL, benchmarks_of, models_of
from g2d.experiment.prompt_counts import THEN
from g2d.tables.evaluations import ROW
from g2d.tables.frames import Rows, columns, table_of

POLICIES = {"SFT": "base", "DPO": "dpo", "G2D": "g2d", "GRPO": "grpo"}  # Table 1's names: ours
BENCHMARKS = ("math500", "gsm8k")  # its columns of accuracies
OWN = ("accuracy", "ci_low", "ci_high")
PUBLISHED_COLUMNS = columns(ROW, "paper_accuracy paper_std", *OWN, "difference paper_gpu_hours device_hours")


def published(name: str) -> pd.DataFrame:
    """A published table, every cell the text that was printed; its source is in the file's first line."""
    text = (resources.files("g2d.tables") / "published" / f"{name}.csv").read_text(encoding="utf-8")
    return pd.read_csv(StringIO(text), comment="#", dtype=str, keep_default_na=False)


@table_of(PUBLISHED_COLUMNS)
def published_table(main: pd.DataFrame, config: Config) -> Rows:
    """Table 1 of the G2D paper beside a grid's own, for the models and benchmarks that both have; the grid's columns
    are null where it has no such policy."""
    paper = published("g2d_table1")
    own = {_row(row): row for row in main.to_dict("records")}
    for model, name in models_of(config, set(paper["model"])).items():
        for printed in paper[paper["model"] == name].to_dict("records"):
            for benchmark, column in benchmarks_of(config, BENCHMARKS):
                k, group_size = (int(printed[name] or 0) for name in ("K", "group_size"))
                at = {"model": model, "policy": POLICIES[printed["method"]], "K": k, "group_size": group_size or None}
                found = own.get(_row(at | {"benchmark": benchmark}), {})
                yield {
                    **at,
                    "benchmark": benchmark,
                    "paper_std": _number(printed.get(f"{column}_std"), 100),
                    "paper_gpu_hours": _number(printed["gpu_hours"]),
                    **_beside(float(printed[column]) / 100, found),
                    "device_hours": found.get("device_hours"),
                }


def _beside(printed: float, found: Mapping[Hashable, Any]) -> dict[str, Any]:
    """A printed accuracy, the grid's own (null where it has none), and their difference."""
    own = {name: found.get(name) for name in OWN}
    return {"paper_accuracy": printed, **own, "difference": found["accuracy"] - printed if found else None}


def _row(values: dict[Hashable, Any] | dict[str, Any]) -> tuple[Any, ...]:
    """What names a row of Table 1; nulls, which equal nothing, become 0."""
    return tuple(0 if pd.isna(values[name]) else values[name] for name in ROW.split())


def _number(text: str | None, divisor: float = 1) -> float | None:
    return float(text) / divisor if text else None


SAMPLING = {"n": 50, "temperature": 0.6, "top_p": 0.9}  # section 3.2: mean of 50 samples
PERIODS = {"inf": "never"}  # its word for s, ours
BRIDGING_COLUMNS = columns(
    "model benchmark method sync_every paper_accuracy paper_standard_error policy K group_size",
    *(*OWN, "difference same_sampling"),
    K="Int64",
)


@table_of(BRIDGING_COLUMNS)
def bridging_table(main: pd.DataFrame, config: Config) -> Rows:
    """The paper's rows, each with what the grid has of it at its largest K: M0, GRPO alone, and every entry of
    `regimes` of DPO on fresh rollouts with the same s, whatever else differs. Null as in `published_table`."""
    paper = published("bridging_table1").to_dict("records")
    for model in models_of(config, {BRIDGING_MODEL}):
        sampled = config.for_model(model).evaluation.answers.sampled
        same = sampled is not None and sampled.model_dump(include={*SAMPLING}) == SAMPLING
        for benchmark, column in benchmarks_of(config, BRIDGING_BENCHMARKS):
            rows = main[(main["model"] == model) & (main["benchmark"] == benchmark)]
            for printed in paper:
                for found in _own(rows, printed, config):
                    yield {
                        **{"model": model, "benchmark": benchmark, "same_sampling": same},
                        **{"method": printed["method"], "sync_every": _period(printed) or None},
                        "paper_standard_error": float(printed[f"{column}_se"]) / 100,
                        **_beside(float(printed[column]) / 100, found),
                        **{name: found.get(name) for name in ("policy", "K", "group_size")},
                    }


def _own(rows: pd.DataFrame, printed: dict[Any, Any], config: Config) -> Iterator[dict[Any, Any]]:
    """The grid's policies of a printed row, each at its largest K; one empty record if there is none."""
    last = rows.sort_values("K", kind="stable").groupby(["policy", rows["group_size"].fillna(0)], sort=False).tail(1)
    found = last[last["policy"].isin(_names(printed, config))].to_dict("records")
    yield from found or [{}]


def _names(printed: dict[Any, Any], config: Config) -> set[str]:
    if printed["method"] in ("Seed", "GRPO"):
        return {"base" if printed["method"] == "Seed" else "grpo"}
    entries = {name: arm.settings for name, arm in any_arms(config).items() if arm.variant == name}
    return {name for name, entry in entries.items() if str(getattr(entry, "sync_every", "")) == _period(printed)}


def _period(printed: dict[Any, Any]) -> str:
    return PERIODS.get(printed["sync_steps"], printed["sync_steps"])


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
SCENARIO_COLUMNS = columns(
    *("prompts paper_seed paper_dataset", *(f"paper_{name}" for name in PRINTED)),
    *("model policy K group_size benchmark", *OWN, "win_rate equal_length equal_length_low equal_length_high"),
    K="Int64",
)
SAME = ["model", "policy", "K", "group_size"]


@table_of(SCENARIO_COLUMNS)
def scenario_table(main: pd.DataFrame, win_rates: pd.DataFrame, prompts: Mapping[str, str]) -> Rows:
    """The paper's rows, each with every policy of the grid that was trained on the same kinds of prompts; null as in
    `published_table`.

    Args:
        prompts: by the label of M0 and of every policy on fresh rollouts, the kinds of prompts that it was trained on.
    """
    own = main.assign(prompts=main["policy"].map(dict(prompts))).dropna(subset="prompts")
    own = own.merge(win_rates.drop(columns="prompts"), on=SAME, how="left", validate="many_to_one")
    printed = {(row["seed_model"], row["dataset"]): row for row in published("bridging_table3").to_dict("records")}
    for at, kinds in SCENARIOS.items():
        paper: dict[Any, Any] = {"prompts": kinds, "paper_seed": at[0], "paper_dataset": at[1]}
        paper |= {f"paper_{name}": float(printed[at][name]) / 100 for name in PRINTED}
        found = own[own["prompts"] == kinds].to_dict("records") or [{}]
        yield from [{**row, **paper} for row in found]
