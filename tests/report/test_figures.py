"""Figures: contents and labels, small and incomplete grids, identical bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from g2d.experiment.config import read
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.report import charts
from g2d.report.figures import Panels, below_each_other, panels, save_figure
from g2d.report.styles import series_styles
from g2d.rollouts.rollout import to_frame
from g2d.tables.accuracy import MAIN_COLUMNS, main_table
from g2d.tables.frames import read_table, write_table
from g2d.tables.harvest import harvest_table
from g2d.tables.parts import budget_table, decomposition_table
from g2d.verifier import Verdict
from tests.experiment.test_config import CONFIG
from tests.frames import answers, groups, rollout, summarised


def tables(
    ks: Sequence[int] = (0, 150, 300),
    models: Sequence[str] = ("m",),
    seeds: Sequence[int] = (0, 1),
    grpo: Sequence[int] = (2, 4),
    successes: Sequence[tuple[int, int]] = ((4, 8), (1, 8), (8, 8)),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    evaluations, harvests = {}, {}
    for model in models:
        keys = [PolicyKey(model, "base", 0, 0, None)]
        keys += [PolicyKey(model, "dpo", 2 if k else 0, k, seed) for k in ks for seed in seeds]
        keys += [PolicyKey(model, "grpo", g, max(ks), seed) for g in grpo for seed in seeds]
        for i, key in enumerate(keys):
            evaluations[key, "id"] = answers({f"q{j}": [float(j < 5 + i % 4)] for j in range(10)})
        harvests |= {HarvestKey(model, 2 if k else 0, k, seed): groups(successes) for k in ks for seed in seeds}
    return main_table(evaluations, {}), harvest_table(*summarised(harvests))


KNOWN = series_styles(read(CONFIG / "paper.yaml"))


def accuracy_figure(main: pd.DataFrame) -> Panels:
    return panels(charts.accuracy_by_k, main, KNOWN)


def informativeness_figure(main: pd.DataFrame, harvest: pd.DataFrame) -> Panels:
    return below_each_other(accuracy_figure(main), panels(charts.informativeness_by_k, harvest))


def gain_figure(table: pd.DataFrame) -> Panels:
    return panels(charts.gains, table)


def svg(panels: Panels, path: Path, note: str | None = None, nothing: str = "Nothing was evaluated.") -> str:
    save_figure(path, panels, note, nothing)
    return path.read_text()


def labels(text: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", text)


def test_accuracy_has_a_panel_for_each_model_and_carries_the_note(tmp_path):
    main, _ = tables(models=["first", "second"])
    text = svg(accuracy_figure(main), tmp_path / "accuracy.svg", note="Synthetic demonstration")
    expected = {"first", "second", "M0", "GRPO alone, G=2", "GRPO alone, G=4", "G2D (at K=0: DPO)", "150"}
    assert expected | {"accuracy (pass@1)", "Synthetic demonstration"} <= set(labels(text))


def test_informativeness_stands_below_accuracy(tmp_path):
    text = svg(informativeness_figure(*tables()), tmp_path / "informativeness.svg")
    for label in ("accuracy (pass@1)", "entropy H (bits)", "middle band μ", "pairability ρ"):
        assert label in labels(text)


def test_two_runs_give_identical_bytes(tmp_path):
    for draw in (lambda: accuracy_figure(tables()[0]), lambda: informativeness_figure(*tables())):
        assert svg(draw(), tmp_path / "first.svg") == svg(draw(), tmp_path / "second.svg")


def test_tables_read_from_csv_give_the_same_figure(tmp_path):
    main, _ = tables()
    write_table(tmp_path / "main.csv", main)
    again = svg(accuracy_figure(read_table(tmp_path / "main.csv", MAIN_COLUMNS)), tmp_path / "again.svg")
    assert labels(again) == labels(svg(accuracy_figure(main), tmp_path / "main.svg"))


def verdicts(*share: tuple[Verdict, int], budgets: Sequence[int] = (8, 16)) -> pd.DataFrame:
    judged = [verdict for verdict, n in share for _ in range(n)]
    rows = []
    for i, verdict in enumerate(judged):
        early: Verdict = "truncated" if verdict == "correct" else verdict
        by_budget = {budget: early if budget <= 8 else verdict for budget in budgets}
        rows.append(rollout(f"q{i}", 0, verdict, budget_verdicts=json.dumps(by_budget)))
    return to_frame(rows)


def judged_grid(budgets: Sequence[int] = (8, 16)) -> dict[tuple[PolicyKey, str], pd.DataFrame]:
    base = verdicts(("correct", 4), ("truncated", 8), ("no_boxed", 4), ("incorrect", 4), budgets=budgets)
    better = verdicts(("correct", 12), ("truncated", 2), ("no_boxed", 1), ("incorrect", 5), budgets=budgets)
    keys = [PolicyKey("m", "dpo", 2 if k else 0, k, 0) for k in (0, 150, 300)] + [PolicyKey("m", "grpo", 4, 300, 0)]
    return {(PolicyKey("m", "base", 0, 0, None), "id"): base} | {(key, "id"): better for key in keys}


def test_a_waterfall_goes_from_m0_to_the_policys_accuracy(tmp_path):
    panels = gain_figure(decomposition_table(judged_grid()))
    text = svg(panels, tmp_path / "gains.svg", note="Synthetic demonstration")
    expected = {"finishing", "format", "reasoning", "DPO (K=0)", "G2D (K=150)", "GRPO (K=300)", "accuracy (pass@1)"}
    assert expected <= set(labels(text))
    (spec,) = panels["m"]
    steps = [row for rows in spec["datasets"].values() for row in rows if row.get("name") == "DPO (K=0)"]
    steps = [row for row in steps if "factor" in row][:3]
    assert [row["factor"] for row in steps] == ["finishing", "format", "reasoning"]
    assert steps[0]["start"] == pytest.approx(0.2)
    assert [row["start"] for row in steps[1:]] == pytest.approx([row["end"] for row in steps[:2]])
    assert steps[2]["end"] == pytest.approx(0.6)


def test_accuracy_against_the_token_budget(tmp_path):
    text = svg(panels(charts.budgets, budget_table(judged_grid()), KNOWN), tmp_path / "budgets.svg")
    assert {"M0", "DPO (K=0)", "G2D (K=300)", "GRPO (K=300)", "token budget", "8", "16"} <= set(labels(text))
    none = panels(charts.budgets, budget_table(judged_grid(budgets=())), KNOWN)
    assert "No budgets." in svg(none, tmp_path / "none.svg", nothing="No budgets.")


def test_nothing_evaluated_has_no_gain(tmp_path):
    assert "Nothing was evaluated." in svg(gain_figure(decomposition_table({})), tmp_path / "gains.svg")


@pytest.mark.parametrize(
    "grid",
    [
        {"ks": [150]},
        {"ks": [0], "grpo": []},
        {"seeds": [0]},
        {"grpo": []},
        {"successes": [(0, 8), (8, 8)]},  # nothing pairable: mu and H are null
        {"ks": [0, 1, 2, 3, 1000]},
    ],
)
def test_small_grids_are_drawn(tmp_path, grid):
    main, harvest = tables(**grid)
    assert "accuracy (pass@1)" in labels(svg(accuracy_figure(main), tmp_path / "accuracy.svg"))
    figure = informativeness_figure(main, harvest)
    assert "GRPO warm-up steps K" in labels(svg(figure, tmp_path / "informativeness.svg"))


def test_recorded_completions_have_informativeness_but_no_accuracy(tmp_path):
    main, (_, harvest) = main_table({}, {}), tables(ks=[0])
    assert "Nothing was evaluated." in svg(accuracy_figure(main), tmp_path / "accuracy.svg")
    text = svg(informativeness_figure(main, harvest), tmp_path / "informativeness.svg")
    assert "pairability ρ" in text
    assert "pass@1" not in text
