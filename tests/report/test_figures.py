"""Figures: contents and labels, small and incomplete grids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from g2d.checks.load import read
from g2d.grid.grid import Grid
from g2d.grid.runs import Harvest, Policy
from g2d.report import charts
from g2d.report.styles import series_styles
from g2d.report.vega import Panels, below_each_other, panels, save_figure
from g2d.rollouts.rollout import to_frame
from g2d.tables.accuracy import decomposition_table, main_table
from g2d.tables.harvest import harvest_table
from g2d.verifier import Verdict
from tests.configs import CONFIG
from tests.frames import groups, rollout, solved, summarised
from tests.main_policies import policy
from tests.report.rows import rows


def tables(
    ks: Sequence[int] = (0, 150, 300),
    models: Sequence[str] = ("m",),
    seeds: Sequence[int] = (0, 1),
    grpo: Sequence[int] = (2, 4),
    successes: Sequence[tuple[int, int]] = ((4, 8), (1, 8), (8, 8)),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    evaluations = {}
    harvests = {}
    for model in models:
        evaluations[Policy(model), "id"] = solved(5, of=10)
        for seed in seeds:
            for k in ks:
                trained = policy("dpo", k, seed, model=model)
                evaluations[trained, "id"] = solved(6, of=10)
                harvests[Harvest(model, trained.group_size, k, seed)] = groups(successes)
            for g in grpo:
                evaluations[policy("grpo", max(ks), seed, g, model), "id"] = solved(7, of=10)
    return main_table(evaluations, {}), harvest_table(*summarised(harvests))


KNOWN = series_styles(Grid(read(CONFIG / "paper.yaml")))


def figure(main: pd.DataFrame, harvest: pd.DataFrame) -> Panels:
    """Return accuracy above informativeness."""
    return below_each_other(panels(charts.accuracy_by_k, main, KNOWN), panels(charts.informativeness_by_k, harvest))


def labels(panels: Panels, path: Path, note: str | None = None) -> set[str]:
    """Return the texts of the saved figure."""
    save_figure(path / "figure.svg", panels, note, nothing="Nothing was evaluated.")
    return set(re.findall(r">([^<>]+)</text>", (path / "figure.svg").read_text()))


def test_a_figure_has_a_panel_for_each_model_and_carries_the_note(tmp_path):
    shown = labels(figure(*tables(models=["first", "second"])), tmp_path, note="Synthetic demonstration")
    expected = {"first", "second", "M0", "GRPO alone, G=2", "GRPO alone, G=4", "G2D (at K=0: DPO)", "150"}
    expected |= {"accuracy (pass@1)", "entropy H (bits)", "middle band μ", "pairability ρ", "Synthetic demonstration"}
    assert expected <= shown


def verdicts(*share: tuple[Verdict, int]) -> pd.DataFrame:
    judged: list[Verdict] = []
    for verdict, n in share:
        judged += [verdict] * n
    return to_frame([rollout(f"q{i}", 0, verdict) for i, verdict in enumerate(judged)])


def judged_grid() -> dict[tuple[Policy, str], pd.DataFrame]:
    base = verdicts(("correct", 4), ("truncated", 8), ("no_boxed", 4), ("incorrect", 4))
    better = verdicts(("correct", 12), ("truncated", 2), ("no_boxed", 1), ("incorrect", 5))
    trained = [policy("dpo", 0), policy("dpo", 150), policy("dpo", 300), policy("grpo", 300, group_size=4)]
    return {(Policy("m"), "id"): base} | {(key, "id"): better for key in trained}


def test_a_waterfall_goes_from_m0_to_the_policys_accuracy(tmp_path):
    gains = panels(charts.gains, decomposition_table(judged_grid()))
    expected = {"finishing", "format", "reasoning", "DPO (K=0)", "G2D (K=150)", "GRPO (K=300)", "accuracy (pass@1)"}
    assert expected <= labels(gains, tmp_path)
    (spec,) = gains["m"]
    steps = rows(spec, "factor").query("name == 'DPO (K=0)'").head(3)
    assert steps["factor"].tolist() == ["finishing", "format", "reasoning"]
    first, second, third = steps["end"]
    assert steps["start"].tolist() == pytest.approx([0.2, first, second])
    assert third == pytest.approx(0.6)


def test_without_panels_a_figure_says_why(tmp_path):
    assert labels(panels(charts.gains, decomposition_table({})), tmp_path) == {"Nothing was evaluated."}


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
    assert {"accuracy (pass@1)", "GRPO warm-up steps K"} <= labels(figure(*tables(**grid)), tmp_path)


def test_recorded_completions_have_informativeness_but_no_accuracy(tmp_path):
    shown = labels(figure(main_table({}, {}), tables(ks=[0])[1]), tmp_path)
    assert "pairability ρ" in shown
    assert "accuracy (pass@1)" not in shown
