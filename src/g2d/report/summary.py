"""First part of the page: the answer for each model and benchmark, with caveats and charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from g2d.analysis.calibration import few_mixed
from g2d.analysis.comparisons import LEVEL
from g2d.experiment.config import Config
from g2d.experiment.keys import called
from g2d.policies.gguf import origin
from g2d.report import charts, frontier, training
from g2d.report.answer import answer
from g2d.report.contamination import memory_warnings
from g2d.report.looks import CAVEAT as STAGED_SEEDS
from g2d.report.phrases import NBSP, listed, percent, points_of, signed, signed_interval, these_weights
from g2d.report.styles import Styles
from g2d.report.vega import Spec

KEPT = 0.9  # share of an adapter's effect: less is a caveat
NAMED = 5  # policies in a sentence


def panels(
    tables: Mapping[str, pd.DataFrame],
    benchmarks: Sequence[str],
    specs: dict[str, Spec],
    styles: Styles,
    more: Mapping[str, tuple[str, ...]],
) -> list[dict[str, Any]]:
    """Return the answer for each model and benchmark, with caveats (`more`: further ones by model). Charts are added
    to `specs`."""
    main = tables["main"]
    shown = []
    for benchmark in benchmarks:
        for model in main.loc[main["benchmark"] == benchmark, "model"].unique():
            parts = {name: table[table["model"] == model] for name, table in tables.items() if "model" in table}
            parts |= {name: rows[rows["benchmark"] == benchmark] for name, rows in parts.items() if "benchmark" in rows}
            shown.append(_panel(parts, model, benchmark, specs, styles, more.get(model, ())))
    return shown


def _panel(
    tables: Mapping[str, pd.DataFrame],
    model: str,
    benchmark: str,
    specs: dict[str, Spec],
    styles: Styles,
    more: tuple[str, ...],
) -> dict[str, Any]:
    def sentences_of(name: str, sentences: Callable[[pd.DataFrame], tuple[str, ...]]) -> tuple[str, ...]:
        return sentences(tables[name]) if name in tables else ()

    rows, standings = tables["main"], tables.get("frontier", pd.DataFrame({"axis": []}))
    cheapest = frontier.cheapest_enough(standings)
    margin = None if standings.empty else float(standings["margin"].dropna().iloc[0])
    answered = answer(rows, model, benchmark, tables.get("comparisons"), tables.get("margins"), cheapest, margin)
    caveats = zero_caveats(rows, tables.get("ablations", rows[:0])) + sentences_of("contamination", memory_warnings)
    caveats += sentences_of("training", training.mismatch_caveats) + more
    details = sentences_of("frontier", frontier.sentences) + sentences_of("controls", control_sentences)
    answered = replace(answered, details=answered.details + details, caveats=caveats)
    drawn = {"steps": charts.accuracy_by_k(rows, styles)}
    if rows["device_hours"].notna().any():
        drawn["device_hours"] = charts.accuracy_by_hours(rows, styles)
    for axis, costed in ((str(axis), costed) for axis, costed in standings.groupby("axis", sort=False)):
        if axis != "device_hours" and len(costed) > 1:
            drawn[axis] = frontier.picture(costed, styles)
    names = {axis: f"{model}/{benchmark}/{axis}" for axis in drawn}
    specs |= {names[axis]: spec for axis, spec in drawn.items()}
    shared = calibration_words(rows, standings)
    costs = {axis: frontier.AXES[axis] for axis in drawn if axis != "steps"}
    reading = {axis: f"{cost.reading} {shared.get(axis, '')}".strip() for axis, cost in costs.items()}
    return {"answer": answered, "charts": names, "reading": reading}


def calibration_words(main: pd.DataFrame, standings: pd.DataFrame) -> dict[str, str]:
    axes = {str(axis): rows for axis, rows in standings.groupby("axis")}
    axes["device_hours"] = main.rename(columns=lambda name: name.replace("device_hours", "cost"))
    words = {}
    for axis, rows in axes.items():
        calibrated = rows[(rows["cost"] > 0) & (rows["cost_without_calibration"] < rows["cost"])]
        if calibrated.empty:
            continue
        shares = 1 - calibrated["cost_without_calibration"] / calibrated["cost"]
        most = calibrated.loc[[shares.idxmax()]].to_dict("records")[0]
        words[axis] = (
            "Each policy and seed is charged the whole calibration: at most "
            f"{100 * shares.max():.0f} % of a cost ({called(most['policy'], most['K'])})."
        )
    return words


def buttons(panels: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    charted = {axis for panel in panels for axis in panel["charts"]}
    costs = {axis: cost.button for axis, cost in frontier.AXES.items() if axis in charted}
    return {"steps": "against K", "device_hours": frontier.AXES["device_hours"].button} | costs


def zero_caveats(main: pd.DataFrame, ablations: pd.DataFrame) -> tuple[str, ...]:
    base = main.loc[main["policy"] == "base", "accuracy"]
    if not (base > 0).any():
        return ()
    rows = pd.concat([main, ablations]).drop_duplicates(["policy", "K", "group_size"])
    none = [called(at["policy"], at["K"]) for at in rows[rows["accuracy"] == 0].to_dict("records")]
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
        *loss_caveats(provenance.get("lost_losses", {}), model),
        *rounding_caveats(provenance.get("effect_left", {}), model, config),
        *([STAGED_SEEDS] if config.looks else []),
        *([few] if few else []),
    )


def loss_caveats(lost: Mapping[str, int], model: str) -> tuple[str, ...]:
    runs = [f"{name.removeprefix(f'{model}/')} ({n} steps)" for name, n in lost.items() if name.startswith(f"{model}/")]
    if not runs:
        return ()
    shown = runs if len(runs) <= NAMED else [*runs[:NAMED], f"{len(runs) - NAMED} more"]
    return (f"Losses were not finite in the training of {listed(shown)}: ignore the results of these policies.",)


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


def control_sentences(controls: pd.DataFrame) -> tuple[str, ...]:
    by_policy = [rows for _, rows in controls.groupby(["truth", "K", "group_size"], sort=False, dropna=False)]
    if not by_policy:
        return ()
    return (_share_of_gain(max(by_policy, key=lambda rows: rows["truth_accuracy"].iloc[0])),)


def _share_of_gain(rows: pd.DataFrame) -> str:
    first = rows.iloc[0].to_dict()
    gain = points_of(first, "truth_gain")
    name = called(first["truth"], first["K"], first["group_size"] if first["truth"] == "grpo" else 0)
    controls = "; ".join(_control(row) for row in rows.to_dict("records"))
    weights = these_weights(first["n_seeds"])
    if first["p_truth"] > LEVEL:
        return (
            f"Controls: the gain of {name} over M0{weights}, {gain}, is not significantly different from 0 "
            f"(p = {first['p_truth']:.2g}), so no shares are shown: {controls}."
        )
    return f"Controls: of the {gain} that {name} gains over M0{weights}, {controls}."


def _control(row: dict[Any, Any]) -> str:
    share = ""
    if pd.notna(row["share"]):
        ends = [_percent(row[f"share_{end}"]) for end in ("low", "high")]
        share = f"{_percent(row['share'])}{NBSP}% [{ends[0] or 'no lower end'}, {ends[1] or 'no upper end'}], "
    gain = f"{signed(row['gain'])} {signed_interval(row['gain_low'], row['gain_high'])}"
    differs = "not significantly different" if row["p_holm"] > LEVEL else "different"
    return (
        f"{row['reward']} get {gain} ({share}{differs} from the truth by a paired test, p = {row['p_holm']:.2g}: "
        f"{points_of(row, 'difference')})"
    )


def _percent(share: float) -> str:
    return "" if pd.isna(share) else f"{100 * share:.0f}".replace("-", "−")
