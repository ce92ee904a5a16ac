"""The advice in sentences (results/advice.md, `snakemake advice`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from g2d.advice.probe import METRICS, single_levels
from g2d.analysis.calibration import format_levels
from g2d.experiment.config import Config
from g2d.forecast.devices import CARD, Device
from g2d.forecast.probe_hours import MEASURED
from g2d.markdown import literal
from g2d.status.screen import hours_to_go
from g2d.status.snapshot import Grid

Row = Mapping[Hashable, Any] | pd.Series


def advice_text(
    config: Config,
    levels: pd.DataFrame,
    steps: pd.DataFrame,
    hours: pd.DataFrame,
    power: Sequence[str] = (),
    device: Device = CARD,
) -> str:
    """Write a section per model in Markdown; hours are of `device`."""
    parts = [f"# Advice: {literal(config.title)}", *([literal(config.demonstration)] if config.demonstration else [])]
    for model in config.models:
        own, jobs = steps[steps["model"] == model], hours[hours["model"] == model]
        parts += [f"## {literal(model)}", level_words(config, model, levels[levels["model"] == model])]
        parts += [step_words(own), step_list(own), hours_words(jobs, device)]
    parts += power
    parts.append(
        f"From the calibration and {len(steps)} probes of seed {config.seeds[0]}, in tables/advice*.csv. Ranges are "
        "95 % intervals for the whole harvest of this seed; other seeds vary beyond them. H is a hint at accuracy, not "
        "a measurement of it: once the grid has run, snakemake advice_check compares."
    )
    return "\n\n".join(parts) + "\n"


def advice_since(advice: str, results: str) -> str:
    """Return the text of the file and the remaining hours, at the rates so far."""
    text = Path(advice).read_text(encoding="utf-8")
    look = Grid(Path(results)).look()
    for line in hours_to_go(look.to_go, look.device):
        text += f"\nThe whole grid, with all that it has measured since the probe: {line}\n"
    return text


def level_words(config: Config, model: str, levels: pd.DataFrame) -> str:
    settings, single = config.for_model(model).calibration, single_levels(levels)
    low, high = (f"{100 * end:g}" for end in settings.window)
    chosen, inside = single[single["selected"]], single[single["in_window"]]
    window = f"pass@1 of {low} to {high} %"
    if settings.levels == "auto":
        words = [f"Levels: train on {_names(chosen['levels'])}, inside the window ({window})."]
    else:
        are = "are" if len(chosen) > 1 else "is"
        words = [
            f"Levels: {_names(chosen['levels'])} {are} pinned; the window ({window}) holds {_names(inside['levels'])}."
        ]
    pairability = np.average(chosen["pairability"], weights=chosen["n"])
    words.append(f"Of 100 prompts there, {100 * pairability:.0f} give a pair with M0.")
    better = single[~single["selected"] & (single["pairability"] > chosen["pairability"].max())]
    for row in better.to_dict("records"):
        words.append(
            f"{_names([row['levels']]).capitalize()} would give more: {row['pairs_per_100']:.0f} "
            f"({100 * row['pairability_low']:.0f} to {100 * row['pairability_high']:.0f}), "
            f"at pass@1 {100 * row['pass_at_1']:.0f} % and {100 * row['all_wrong_share']:.0f} % all wrong."
        )
    if better.empty and len(chosen) < len(single):
        words.append("No level outside gives more than the best of them.")
    return " ".join(words)


def step_words(steps: pd.DataFrame) -> str:
    if not steps["advised"].any():
        return "K: no probed prompt is pairable at any K, so there is nothing to choose by: calibrate first."
    best = steps[steps["advised"]].iloc[0]
    words = [
        f"K: {_step(best)} looks best, H = {_interval(best, 'entropy')} bits, by {best['n_probed']} of "
        f"{best['n_prompts']} prompts. The chance that its whole harvest has the highest H is "
        f"{_percent(best['p_best_entropy'])}; the highest mid-band share, {_percent(best['p_best_mid_band'])}."
    ]
    cheapest = steps[steps["as_good"]].iloc[0]
    if cheapest["K"] < best["K"]:
        words.append(
            f"The cheapest K that this probe cannot tell from it is {_step(cheapest)}: H is "
            f"{_interval(cheapest, 'behind_advised')} bits lower there."
        )
    else:
        smaller = "No smaller K can be as good by this probe." if (steps["K"] < best["K"]).any() else "No K is cheaper."
        words.append(smaller if len(steps) > 1 else "It is the only K.")
    words.append(f"Expected pairs at {_step(best)}: {_interval(best, 'n_pairs', '.0f')}.")
    return " ".join(words)


def score_words(check: pd.DataFrame) -> list[str]:
    sentences = []
    called = {"best_K_by_entropy": "highest H", "best_K_by_accuracy": "highest accuracy"}
    for model, own in check.groupby("model", sort=False):
        intervals = own[own["metric"].isin(METRICS) & own["inside"].notna()]
        words = [f"The forecast for {model}, scored:"]
        if len(intervals):
            by_metric = intervals.groupby("metric", sort=False)["width"].mean()
            widths = ", ".join(f"{metric} {width:.2g}" for metric, width in by_metric.items())
            words.append(
                f"{int(intervals['inside'].sum())} of {len(intervals)} intervals of 95 % held what the whole harvest "
                f"of the probed seed showed (mean widths: {widths})."
            )
        for row in own[own["metric"].isin(called)].to_dict("records"):
            where = "inside" if row["inside"] else "outside"
            words.append(
                f"The K of the {called[row['metric']]} is {row['found']:.0f}, {where} the set that the probe left "
                f"({row['note']}); that of a seed is inside in {_percent(row['seeds_inside'])} of them."
            )
        sentences.append(" ".join(words))
    return sentences


def step_list(steps: pd.DataFrame) -> str:
    head = "| K | G | pairs | H | mid-band share | chance of highest H |\n|---:|---:|---|---|---|---:|"
    lines = [
        f"| {row['K']} | {'–' if pd.isna(row['group_size']) else row['group_size']} "
        f"| {_interval(row, 'n_pairs', '.0f')} | {_interval(row, 'entropy')} | {_interval(row, 'mid_band')} "
        f"| {_percent(row['p_best_entropy'])} |"
        for row in steps.to_dict("records")
    ]
    return "\n".join([head, *lines])


def hours_words(hours: pd.DataFrame, device: Device = CARD) -> str:
    scopes = {str(scope): rows[rows["n_jobs"] > 0] for scope, rows in hours.groupby("scope", sort=False)}
    words = [f"{'Device-hours' if device.is_card else device.unit} of the rest of the grid: {_total(scopes['grid'])}."]
    if "advised K" in scopes:
        saved = scopes["grid"]["device_hours"].sum() - scopes["advised K"]["device_hours"].sum()
        words.append(f"Of the advised K alone, without baselines and ablations: {_total(scopes['advised K'])}.")
        words.append(f"Following the advice saves about {saved:.2g} of what is measured.")
    return " ".join(words)


def _total(jobs: pd.DataFrame) -> str:
    measured = jobs[jobs["device_hours"].notna()]
    stages = [
        f"{row['stage']} {row['device_hours']:.2g}" + ("" if row["source"] == MEASURED else f" ({row['source']})")
        for row in measured.to_dict("records")
    ]
    unknown = [f"{row['n_jobs']} {row['stage']}" for row in jobs[jobs["device_hours"].isna()].to_dict("records")]
    total = f"about {measured['device_hours'].sum():.2g} ({', '.join(stages)})" if stages else "none that is measured"
    return total + (f", and {' and '.join(unknown)}, which was not measured" if unknown else "")


def _names(labels: Iterable[str]) -> str:
    numbers = [None if label == "none" else int(label) for label in labels]
    if not numbers:
        return "no level"
    return f"level{'s' if len(numbers) > 1 else ''} {format_levels(numbers)}" if any(numbers) else "the pool as a whole"


def _step(row: Row) -> str:
    return f"K={row['K']}" if pd.isna(row["group_size"]) else f"K={row['K']} (G={row['group_size']})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _interval(row: Row, name: str, form: str = ".2f") -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if pd.isna(value):
        return "–"
    return f"{value:{form}}" if pd.isna(low) else f"{value:{form}} ({low:{form}} to {high:{form}})"
