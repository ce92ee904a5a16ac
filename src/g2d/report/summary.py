"""First part of the page: the answer for each model and benchmark, with caveats and charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pandas as pd

from g2d.analysis.calibration import few_mixed
from g2d.analysis.training_steps import RATIO_BOUND
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.grid.runs import POLICY_NAMES, called
from g2d.report import charts
from g2d.report.answer import Answer, answer
from g2d.report.provenance import Provenance
from g2d.report.sentences import listed, percent
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
    caveats_of_models: Mapping[str, tuple[str, ...]],
) -> list[Panel]:
    """Return the answer for each model and benchmark, with caveats and charts.

    Args:
        tables: all tables of the grid.
        specs: specifications of charts by name; the charts of the answers are added.
        caveats_of_models: caveats that hold for all answers of a model (`model_caveats`).
    """
    main = tables["main"]
    shown = []
    for benchmark in grid.config.tested_benchmarks:
        for model in main.loc[main["benchmark"] == benchmark, "model"].unique():
            mine = _rows_of(model, benchmark, tables)
            caveats = zero_caveats(mine["main"])
            if "comparisons" in mine:
                caveats += no_effect_caveats(mine["comparisons"])
            if "training" in mine:
                caveats += mismatch_caveats(mine["training"])
            if grid.config.verifier is not None and "decomposition" in mine:
                caveats += verifier_caveats(mine["decomposition"])
            caveats += caveats_of_models.get(model, ())
            rows = charts.without_ablations(mine["main"])
            drawn = {"steps": charts.accuracy_by_k(rows, styles)}
            if rows["device_hours"].notna().any():
                drawn["device_hours"] = charts.accuracy_by_hours(rows, styles)
            names = {}
            for axis, spec in drawn.items():
                names[axis] = f"{model}/{benchmark}/{axis}"
                specs[names[axis]] = spec
            shown.append(
                Panel(
                    answer=replace(_answer(mine, rows, grid, model, benchmark), caveats=caveats),
                    charts=names,
                    reading={"device_hours": f"{READING} {calibration_words(rows)}"},
                )
            )
    return shown


def _rows_of(model: str, benchmark: str, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the rows of a model and benchmark in each table that has models."""
    mine = {}
    for name, table in tables.items():
        if "model" not in table:
            continue
        rows = table[table["model"] == model]
        if "benchmark" in table:
            rows = rows[rows["benchmark"] == benchmark]
        mine[name] = rows
    return mine


def _answer(tables: Mapping[str, pd.DataFrame], rows: pd.DataFrame, grid: Grid, model: str, benchmark: str) -> Answer:
    measured = sampling_words(grid.config)
    reward = grid.runs[model]["grpo"].other_reward
    if reward:
        measured += f", trained on {reward}"
    return answer(rows, model, benchmark, measured, grid.config.noninferiority_margin, tables.get("comparisons"))


def mismatch_caveats(training: pd.DataFrame) -> tuple[str, ...]:
    caveats = []
    for (policy, size), rows in training.groupby(["policy", "group_size"], sort=False):
        mean = rows.groupby("measure")["value"].mean()
        if abs(mean.get("ratio", 1.0) - 1) > RATIO_BOUND:
            capped = ""
            if "capped" in mean:
                capped = f"; {percent(mean['capped'], 0)} of the ratios were outside their bounds"
            regime = str(policy).removesuffix("/grpo")
            called = f"{POLICY_NAMES.get(regime, regime)}, G={size}"
            caveats.append(
                f"In the training of {called} the probabilities of trainer and sampler differ: their "
                f"ratio is {mean['ratio']:.2f} on average, off 1 by more than {RATIO_BOUND:g}{capped}."
            )
    return tuple(caveats)


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
        f"{math.ceil(100 * shares.max() - 1e-9)} % of a cost ({called(most['policy'], most['K'])})."
    )


def buttons(panels: Sequence[Panel]) -> dict[str, str]:
    charted = set(chain.from_iterable(panel.charts for panel in panels))
    return {axis: words for axis, words in AXES.items() if axis in charted}


def zero_caveats(main: pd.DataFrame) -> tuple[str, ...]:
    """Name policies without a right answer, if M0 has some. `main` has the rows of one model and benchmark."""
    base = main.loc[main["policy"] == "base", "accuracy"]
    if not (base > 0).any():
        return ()
    broken = [called(at["policy"], at["K"]) for at in main[main["accuracy"] == 0].to_dict("records")]
    if not broken:
        return ()
    return (
        f"Accuracy 0, although M0 has {percent(base.max())}: {listed(broken)}. The training may have broken the model: "
        "check its learning rate and the losses in metrics.jsonl.",
    )


def no_effect_caveats(comparisons: pd.DataFrame) -> tuple[str, ...]:
    """Name policies with right answers to exactly the questions that M0 solves. Rows are of one model and benchmark."""
    with_m0 = comparisons[comparisons["reference"] == "base"]
    same = with_m0[(with_m0["gained"] == 0) & (with_m0["lost"] == 0)]
    if same.empty:
        return ()
    policies = list(dict.fromkeys(called(at["policy"], at["K"]) for at in same.to_dict("records")))
    return (
        f"As M0 on every question, right or wrong: {listed(_few(policies))}. A difference of 0 then means that the "
        "training changed no answer that counts: check its steps, its learning rate and its pairs.",
    )


def verifier_caveats(decomposition: pd.DataFrame) -> tuple[str, ...]:
    """Name the policy on whose answers the user's verifier failed most often.

    Its verdicts on finished answers are right, wrong, or that it failed (`FAILURES`).
    """
    failed = (1 - decomposition["parseable"]).dropna()
    if not (failed > 0).any():
        return ()
    worst = decomposition.loc[[failed.idxmax()]].to_dict("records")[0]
    return (
        f"The verifier failed on {percent(failed.max())} of the finished answers of "
        f"{called(worst['policy'], worst['K'])}, which count as wrong (verdicts error, not_bool, timeout, limit); most "
        "of all policies. The logs of evaluate have the first exception.",
    )


def model_caveats(
    model: str, config: Config, provenance: Provenance, tables: Mapping[str, pd.DataFrame]
) -> tuple[str, ...]:
    """Return the caveats that hold for all answers of a model."""
    caveats: list[str] = []
    caveats += untrained_caveats(provenance.get("untrained", []), model)
    caveats += loss_caveats(provenance.get("lost_losses", {}), model)
    caveats += rounding_caveats(provenance.get("effect_left", {}), model, config)
    if "calibration" in tables:
        levels = tables["calibration"]
        few = few_mixed(levels[levels["model"] == model])
        if few:
            caveats.append(few)
    return tuple(caveats)


def untrained_caveats(untrained: Sequence[str], model: str) -> tuple[str, ...]:
    runs = _runs_of_model(untrained, model)
    if not runs:
        return ()
    return (
        f"The harvest had no data for the training of {listed(_few(runs))}: no gradient step was possible, so "
        "each of these policies is the one that it started from.",
    )


def _runs_of_model(policies: Iterable[str], model: str) -> list[str]:
    return [policy.removeprefix(f"{model}/") for policy in policies if policy.startswith(f"{model}/")]


def _few(runs: list[str]) -> list[str]:
    if len(runs) <= NAMED:
        return runs
    return [*runs[:NAMED], f"{len(runs) - NAMED} more"]


def loss_caveats(lost: Mapping[str, int], model: str) -> tuple[str, ...]:
    runs = [f"{name} ({lost[f'{model}/{name}']} steps)" for name in _runs_of_model(lost, model)]
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
