"""First part of the page: the answer for each model and benchmark, with caveats and charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pandas as pd

from g2d.analysis.calibration import few_mixed
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.grid.policy import called
from g2d.policies.gguf import origin
from g2d.report import charts, training_curves
from g2d.report.answer import Answer, answer
from g2d.report.phrases import listed, percent
from g2d.report.styles import Styles
from g2d.report.vega import Spec
from g2d.tables.captions import sampling_words

KEPT = 0.9  # share of an adapter's effect: less is a caveat
NAMED = 5  # policies in a sentence


AXES = {"steps": "against K", "device_hours": "against device time"}  # charts, with the words of their buttons
READING = "Device time as measured here, of every stage behind a policy, mean over seeds."


@dataclass(frozen=True)
class Panel:
    answer: Answer
    charts: Mapping[str, str]  # names of specifications by axis
    reading: Mapping[str, str]  # words below the chart of an axis


def panels(
    tables: Mapping[str, pd.DataFrame],
    grid: Grid,
    specs: dict[str, Spec],
    styles: Styles,
    more: Mapping[str, tuple[str, ...]],
) -> list[Panel]:
    """Return the answer for each model and benchmark, with caveats (`more`: further ones by model). Charts are added
    to `specs`."""
    main = tables["main"]
    shown = []
    for benchmark in grid.config.tested_benchmarks:
        for model in main.loc[main["benchmark"] == benchmark, "model"].unique():
            parts = {name: table[table["model"] == model] for name, table in tables.items() if "model" in table}
            parts |= {name: rows[rows["benchmark"] == benchmark] for name, rows in parts.items() if "benchmark" in rows}
            shown.append(_panel(parts, grid, model, benchmark, specs, styles, more.get(model, ())))
    return shown


def _panel(
    tables: Mapping[str, pd.DataFrame],
    grid: Grid,
    model: str,
    benchmark: str,
    specs: dict[str, Spec],
    styles: Styles,
    more: tuple[str, ...],
) -> Panel:
    every = tables["main"]
    rows = charts.without_ablations(every)
    reward = grid.runs[model]["grpo"].other_reward
    measured = sampling_words(grid.config) + (f", trained on {reward}" if reward else "")
    answered = answer(rows, model, benchmark, measured, grid.config.margin, tables.get("comparisons"))
    caveats = zero_caveats(every)
    if "training" in tables:
        caveats += training_curves.mismatch_caveats(tables["training"])
    answered = replace(answered, caveats=caveats + more)
    drawn = {"steps": charts.accuracy_by_k(rows, styles)}
    if rows["device_hours"].notna().any():
        drawn["device_hours"] = charts.accuracy_by_hours(rows, styles)
    names = {axis: f"{model}/{benchmark}/{axis}" for axis in drawn}
    specs |= {names[axis]: spec for axis, spec in drawn.items()}
    return Panel(answered, names, {"device_hours": f"{READING} {calibration_words(rows)}"})


def calibration_words(main: pd.DataFrame) -> str:
    cost = main["device_hours"]
    without = main["device_hours_without_calibration"]
    calibrated = main[(cost > 0) & (without < cost)]
    if calibrated.empty:
        return ""
    shares = 1 - calibrated["device_hours_without_calibration"] / calibrated["device_hours"]
    most = calibrated.loc[[shares.idxmax()]].to_dict("records")[0]
    return (
        "Each policy and seed is charged the whole calibration: at most "
        f"{100 * shares.max():.0f} % of a cost ({called(most['policy'], most['K'])})."
    )


def buttons(panels: Sequence[Panel]) -> dict[str, str]:
    charted = set(chain.from_iterable(panel.charts for panel in panels))
    return {axis: words for axis, words in AXES.items() if axis in charted}


def zero_caveats(main: pd.DataFrame) -> tuple[str, ...]:
    base = main.loc[main["policy"] == "base", "accuracy"]
    if not (base > 0).any():
        return ()
    none = [called(at["policy"], at["K"]) for at in main[main["accuracy"] == 0].to_dict("records")]
    if not none:
        return ()
    return (
        f"Accuracy 0, although M0 has {percent(base.max())}: {listed(none)}. The training may have broken the model: "
        "check its learning rate and the losses in metrics.jsonl.",
    )


def model_caveats(
    model: str, config: Config, provenance: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]
) -> tuple[str, ...]:
    """Return the caveats that hold for all answers of a model."""
    converted = provenance["models"].get(model, {}).get("converted_from")
    levels = tables.get("calibration")
    few = None if levels is None else few_mixed(levels[levels["model"] == model])
    return (
        *([f"M0 was {origin(converted)}."] if converted else []),
        *untrained_caveats(provenance.get("untrained", []), model),
        *loss_caveats(provenance.get("lost_losses", {}), model),
        *rounding_caveats(provenance.get("effect_left", {}), model, config),
        *([few] if few else []),
    )


def untrained_caveats(untrained: Sequence[str], model: str) -> tuple[str, ...]:
    runs = _of_model(untrained, model)
    if not runs:
        return ()
    return (
        f"The harvest had no data for the training of {listed(_few(runs))}: no gradient step was possible, so "
        "each of these policies is the one that it started from.",
    )


def _of_model(policies: Iterable[str], model: str) -> list[str]:
    return [policy.removeprefix(f"{model}/") for policy in policies if policy.startswith(f"{model}/")]


def _few(runs: list[str]) -> list[str]:
    return runs if len(runs) <= NAMED else [*runs[:NAMED], f"{len(runs) - NAMED} more"]


def loss_caveats(lost: Mapping[str, int], model: str) -> tuple[str, ...]:
    runs = [f"{name} ({lost[f'{model}/{name}']} steps)" for name in _of_model(lost, model)]
    if not runs:
        return ()
    return (f"Losses were not finite in the training of {listed(_few(runs))}: ignore the results of these policies.",)


def rounding_caveats(effects: Mapping[str, float], model: str, config: Config) -> tuple[str, ...]:
    engine = config.for_model(model).engine
    merges = engine.name == "vllm" and engine.adapters == "merge"
    lost = {name: share for name, share in effects.items() if name.startswith(f"{model}/") and share < KEPT}
    if merges or not lost:
        return ()
    least = min(lost, key=lost.__getitem__)
    policies = f"{len(lost)} policies" if len(lost) > 1 else "one policy"
    return (
        f"bfloat16 keeps less than {percent(KEPT, 0)} of the adapter's effect for {policies} (least: "
        f"{percent(lost[least], 0)} for {least.removeprefix(f'{model}/')}). The adapter's output is added to a "
        "rounded one; engine.adapters: merge, with vLLM, keeps it.",
    )
