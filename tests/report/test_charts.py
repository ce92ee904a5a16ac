"""What the interactive figures hold; that they draw is tested in the browser."""

from __future__ import annotations

import json
from itertools import pairwise

import pandas as pd
import pytest

from g2d.report import charts
from g2d.report.vega import series_channels
from tests.report.test_answer import main

GRID = main(
    *(("base", 0, 0.3, 0.0), ("dpo", 0, 0.5, 1.0), ("g2d", 10, 0.6, 2.0), ("grpo", 20, 0.4, 3.0)), half_width=0.05
)


def rows(spec: charts.Spec) -> list[dict]:
    """All rows that a specification carries."""
    return [row for data in spec["datasets"].values() for row in data]


@pytest.mark.parametrize("draw", [charts.accuracy_by_k, charts.accuracy_by_hours])
def test_every_policy_is_in_the_figure_with_its_interval(draw) -> None:
    shown = {(row["accuracy"], row["ci_low"], row["ci_high"]) for row in rows(draw(GRID))}
    assert shown == set(zip(GRID["accuracy"], GRID["ci_low"], GRID["ci_high"], strict=True))


@pytest.mark.parametrize("draw", [charts.accuracy_by_k, charts.accuracy_by_hours])
def test_a_warmup_that_stopped_by_itself_is_a_series_of_one_point(draw) -> None:
    more = pd.concat([GRID, main(("g2d-auto", 15, 0.61, 5.0))])
    points = {(row["series"], row["K"]) for row in rows(draw(more)) if row.get("policy") == "g2d-auto"}
    assert points == {("G2D auto, G=2", 15)}


def test_equal_tables_give_equal_figures() -> None:
    assert json.dumps(charts.accuracy_by_k(GRID)) == json.dumps(charts.accuracy_by_k(GRID.copy()))


def test_series_differ_by_more_than_their_colour() -> None:
    spec = charts.accuracy_by_k(GRID)
    channels = [layer["encoding"] for layer in spec["layer"] if "shape" in layer["encoding"]]
    assert channels and all("strokeDash" in encoding for encoding in channels)


def test_sixteen_lines_differ_in_colour_or_dash() -> None:
    names = [f"series {i}" for i in range(16)]
    channels = {name: channel.to_dict()["scale"]["range"] for name, channel in series_channels(names).items()}
    looks = {(color, tuple(dash)) for color, dash in zip(channels["color"], channels["strokeDash"], strict=True)}
    assert len(looks) == 16


def test_names_of_baselines_do_not_overlap() -> None:
    close = main(*(("base", 0, 0.5, 0.0), ("grpo", 10, 0.501, 1.0), ("grpo", 20, 0.502, 1.0))).assign(
        group_size=[None, 2, 4]
    )
    heights = charts._baselines(close)["label_at"].to_list()
    low, high = charts._range(close)
    assert all(b - a >= 0.0599 * (high - low) for a, b in pairwise(heights))


def test_grpo_at_several_k_is_a_curve_from_m0_and_its_last_k_the_baseline() -> None:
    several = main(*(("base", 0, 0.3, 0.0), ("dpo", 0, 0.5, 1.0), ("grpo", 10, 0.45, 2.0), ("grpo", 20, 0.4, 3.0)))
    assert charts._baselines(several)["name"].to_list() == ["M0", "GRPO, K=20"]
    curve = {
        (row["K"], row["accuracy"]) for row in rows(charts.accuracy_by_k(several)) if "GRPO" in row.get("series", "")
    }
    assert curve == {(0, 0.3), (10, 0.45), (20, 0.4)}
    joined = [
        (row["time"], row["accuracy"]) for row in rows(charts.accuracy_by_hours(several)) if row.get("group") == "2"
    ]
    assert joined == [(0.0, 0.3), (2.0, 0.45), (3.0, 0.4)]


def test_equal_baselines_share_a_line() -> None:
    equal = main(("base", 0, 0.5, 0.0), ("grpo", 20, 0.5, 1.0))
    assert charts._baselines(equal)["name"].to_list() == ["M0; GRPO, K=20"]


def test_small_times_are_shown_in_small_units() -> None:
    quick = GRID.assign(device_hours=GRID["device_hours"] / 1000)
    assert "device-seconds per seed" in json.dumps(charts.accuracy_by_hours(quick))
    assert "device-hours per seed" in json.dumps(charts.accuracy_by_hours(GRID))


def test_a_metric_without_an_interval_has_no_bar() -> None:
    harvest = pd.DataFrame(
        {"model": "m", "group_size": [None, 2.0], "K": [0, 10], "pairability": [0.5, 0.6], "entropy": [0.8, 0.7]}
    ).assign(mid_band=0.3)
    assert len(charts.informativeness_by_k(harvest)["layer"]) == 2
    bounded = harvest.assign(pairability_low=0.4, pairability_high=0.7)
    assert len(charts.informativeness_by_k(bounded)["layer"]) == 3


def test_contributions_of_a_gain_are_taken_from_the_table() -> None:
    table = GRID.assign(gain=[None, 0.2, 0.3, 0.1])
    for name, share in (("from_finishing", 0.5), ("from_reasoning", 0.5)):
        table = table.assign(**{name: table["gain"] * share, f"{name}_low": 0.0, f"{name}_high": 1.0})
    shown = [row for row in rows(charts.gains(table)) if "factor" in row]
    assert {row["factor"] for row in shown} == {"finishing", "reasoning"}
    assert {row["name"] for row in shown} == {"DPO, K=0", "G2D, K=10", "GRPO, K=20"}
    assert sum(row["points"] for row in shown) == pytest.approx(0.6)
