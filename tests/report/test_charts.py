"""Specifications of the interactive figures; test_page.py draws them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import altair as alt
import pandas as pd
import pytest

from g2d.checks.load import read
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.grid.versions import GPU_STAGES
from g2d.report import charts
from g2d.report.page import build
from g2d.report.provenance import provenance
from g2d.report.styles import OKABE_ITO, Styles, legend, series_styles, style_of
from g2d.report.vega import Spec, finished
from g2d.tables import all_tables
from g2d.tables.captions import captions
from g2d.tables.frames import columns, table_of, write_table
from tests.configs import CONFIG, MINIMAL
from tests.report.conftest import write_tables
from tests.report.rows import main, rows

GRID = main(
    *(("base", 0, 0.3, 0.0), ("dpo", 0, 0.5, 1.0), ("g2d", 10, 0.6, 2.0), ("grpo", 20, 0.4, 3.0)), half_width=0.05
)


def tuples(table: pd.DataFrame, *columns: str) -> set[tuple]:
    return set(table[list(columns)].itertuples(index=False, name=None))


KNOWN = series_styles(Grid(read(CONFIG / "config.yaml")))
DRAWN = (charts.accuracy_by_k, charts.accuracy_by_hours)


@pytest.mark.parametrize("draw", DRAWN)
def test_every_policy_is_in_the_figure_with_its_interval(draw) -> None:
    estimate = ("accuracy", "ci_low", "ci_high")
    assert tuples(rows(draw(GRID, KNOWN), "accuracy"), *estimate) == tuples(GRID, *estimate)


@pytest.mark.parametrize("draw", DRAWN)
def test_a_warmup_that_stopped_by_itself_is_a_series_of_one_point(draw) -> None:
    more = pd.concat([GRID, main(("g2d-auto", 15, 0.61, 5.0))])
    points = rows(draw(more, KNOWN)).query("policy == 'g2d-auto'")
    assert tuples(points, "series", "K") == {("G2D auto", 15)}


def test_small_times_are_shown_in_small_units() -> None:
    for hours, unit, largest in ((1.0, "hours", 3), (0.001, "seconds", 10.8)):
        figure = charts.accuracy_by_hours(GRID.assign(device_hours=GRID["device_hours"] * hours), KNOWN)
        assert f"device-{unit} per seed" in str(figure)
        assert rows(figure)["cost"].max() == pytest.approx(largest)


def test_a_legend_has_policies_that_the_grid_lacks_in_the_order_of_the_table() -> None:
    policies = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"]
    assert list(legend(pd.DataFrame({"policy": policies, "group_size": 2}), KNOWN)) == policies


def looks(spec: Spec) -> pd.DataFrame:
    """Colour and shape of every series of a figure."""
    encoding = next(layer["encoding"] for layer in spec["layer"] if "shape" in layer["encoding"])
    color = encoding["color"]["scale"]
    shape = encoding["shape"]["scale"]
    assert color["domain"] == shape["domain"]
    return pd.DataFrame({"color": color["range"], "shape": shape["range"]}, index=color["domain"])


def test_a_policy_looks_the_same_in_all_figures() -> None:
    by_k = looks(charts.accuracy_by_k(GRID, KNOWN))
    by_hours = looks(charts.accuracy_by_hours(GRID, KNOWN))
    shared = by_k.index.intersection(by_hours.index)
    assert by_k.loc[shared].equals(by_hours.loc[shared])
    assert {"G2D (at K=0: DPO)", "GRPO alone"} <= set(shared.str.partition(",").get_level_values(0))


@pytest.mark.parametrize("file", ["config.yaml", "paper.yaml", "bridging.yaml", "off_policy.yaml"])
def test_every_series_of_a_grid_has_another_style(file: str) -> None:
    """Each family has one colour and one first shape; policies of a family differ by shape."""
    styles = pd.DataFrame(list(series_styles(Grid(read(CONFIG / file))).values())).drop_duplicates("series")
    assert not styles.duplicated(["color", "shape"]).any()
    assert set(styles["color"]) <= set(OKABE_ITO)
    assert styles.drop_duplicates("color")["shape"].is_unique


def test_policies_without_a_warmup_stand_on_an_axis_of_their_own() -> None:
    more = pd.concat([GRID, main(("online", 20, 0.7, 1.0), ("rft", 10, 0.55, 1.0))])
    spec = charts.accuracy_by_k(more, KNOWN)
    points = rows(spec, "at", "policy").set_index("policy")["at"]
    assert points["online"].min() > 20 + 0.1 * 20  # behind the divider
    assert points["rft"].sub(10).abs().max() < 1
    axes = [layer["encoding"]["x"]["axis"] for layer in spec["layer"] if "axis" in layer["encoding"].get("x", {})]
    for axis in axes:
        assert axis["values"] == [0, 10, 20]


def test_no_mark_hides_another() -> None:
    same = main(("g2d", 10, 0.6, 2.0), ("rft", 10, 0.6, 2.0), ("grpo", 10, 0.6, 2.0), ("online", 10, 0.6, 2.0))
    assert rows(charts.accuracy_by_k(same, KNOWN), "at", "policy")["at"].nunique() == 4
    crowd = pd.DataFrame({"cost": [50.0] * 6 + [50.1], "accuracy": [0.5] * 6 + [0.501]})
    apart = charts.side_by_side(crowd, span=100, height=0.4)["at"]
    assert apart.sort_values().diff().min() >= 0.0119 * 100
    assert apart.iloc[0] == 50


def test_grpo_at_several_k_is_a_curve_from_m0() -> None:
    several = main(*(("base", 0, 0.3, 0.0), ("dpo", 0, 0.5, 1.0), ("grpo", 10, 0.45, 2.0), ("grpo", 20, 0.4, 3.0)))

    def curve(spec: Spec, cost: str) -> set[tuple]:
        drawn = rows(spec, "series")
        return tuples(drawn[drawn["series"].str.contains("GRPO")], cost, "accuracy")

    assert curve(charts.accuracy_by_k(several, KNOWN), "K") == {(0, 0.3), (10, 0.45), (20, 0.4)}
    assert curve(charts.accuracy_by_hours(several, KNOWN), "cost") == {(0, 0.3), (2, 0.45), (3, 0.4)}


@pytest.mark.parametrize("draw", DRAWN)
def test_g2d_of_every_group_size_begins_at_dpo(draw) -> None:
    sizes = Config.model_validate(MINIMAL | {"warmup": {"steps": [0, 10], "group_sizes": [2, 4], "horizon": 10}})
    table = main(("base", 0, 0.3, 0.0), ("dpo", 0, 0.5, 1.0), ("g2d", 10, 0.6, 2.0), ("g2d", 10, 0.7, 2.0))
    table.loc[3, "group_size"] = 4
    spec = draw(table, series_styles(Grid(sizes)))
    [lines] = [layer for layer in spec["layer"] if layer["mark"].get("type") == "line"]
    joined = pd.DataFrame(spec["datasets"][lines["data"]["name"]]).query("policy in ('dpo', 'g2d')")
    curves = tuples(joined.assign(g=joined["series"].str[-3:]), "g", "accuracy")
    assert curves == {("G=2", 0.5), ("G=2", 0.6), ("G=4", 0.5), ("G=4", 0.7)}


def test_a_stage_has_one_colour_and_no_other_has_it() -> None:
    stages = ["calibrate", "train_grpo", "harvest_rollouts", "train_dpo", "train_rft", "train_semi_online_dpo"]
    cost = pd.DataFrame({"model": "m", "policy": "g2d", "K": 10, "group_size": 2, "seed": 0, "stage": stages})
    spec = charts.cost_by_stage(cost.assign(device_hours=1.0))
    in_order = ["calibrate", "train_grpo", "train_semi_online_dpo", "harvest_rollouts", "train_dpo", "train_rft"]
    assert spec["encoding"]["color"]["scale"]["domain"] == in_order
    assert len(set(spec["encoding"]["color"]["scale"]["range"])) == len(stages)
    # An automatic warm-up has the colour of its training; no policy is charged further temperatures.
    every = set(GPU_STAGES) - {"train_grpo_auto", "calibrate_temperature"}
    assert len({charts.STAGE_COLORS[stage] for stage in every}) == len(every)


def test_a_metric_without_an_interval_has_no_bar() -> None:
    harvest = pd.DataFrame(
        {"model": "m", "group_size": [None, 2.0], "K": [0, 10], "pairability": [0.5, 0.6], "entropy": [0.8, 0.7]}
    ).assign(mid_band=0.3)
    assert len(charts.informativeness_by_k(harvest)["layer"]) == 2
    bounded = harvest.assign(pairability_low=0.4, pairability_high=0.7)
    assert len(charts.informativeness_by_k(bounded)["layer"]) == 3


def test_a_difference_is_drawn_with_its_interval() -> None:
    pair = {"policy": "g2d", "K": 10, "group_size": 8, "reference": "dpo", "reference_K": 0}
    table = pd.DataFrame([pair | {"family": "primary", "difference": 0.1, "p_value": 0.02}]).assign(
        reference_group_size=None, ci_low=0.02, ci_high=0.18
    )
    drawn = rows(charts.differences_of_k(table), "family")
    assert tuples(drawn, "low", "difference", "high") == {(0.02, 0.1, 0.18)}
    [name] = drawn["name"]
    assert name.startswith("G2D (K=10)")
    assert name.endswith("DPO (K=0)")


def test_primary_differences_have_a_chart_of_their_own() -> None:
    families = ["primary", "exploratory", "primary"]
    table = pd.DataFrame({"family": families, "policy": "g2d", "K": 10, "group_size": 8, "reference": "dpo"}).assign(
        reference_K=range(3), reference_group_size=None, difference=0.1, p_value=0.02, ci_low=0.0, ci_high=0.2
    )

    assert rows(charts.differences_of_k(table), "family")["family"].tolist() == ["primary", "primary"]
    assert rows(charts.other_differences(table), "family")["family"].tolist() == ["exploratory"]
    assert charts.other_differences(table[:1]) is None


@pytest.mark.parametrize(
    "files",
    [["config.yaml"], ["off_policy.yaml"], ["bridging.yaml"], ["smollm2.yaml", "overlays/smollm2_exploratory.yaml"]],
    ids=lambda files: files[-1],
)
def test_training_curves_of_a_model_differ_in_colour_or_dash(files: list[str]) -> None:
    grid = Grid(read(*(CONFIG / file for file in files)))
    model = next(iter(grid.runs))
    trainings = {last.over_seeds for last in grid.chains if last.model == model}
    styles = [style_of(series_styles(grid), training.label, training.group_size) for training in trainings]
    assert len({(style.color, style.dash) for style in styles}) == len(trainings)


def right_by_k(rows: pd.DataFrame, _: Styles) -> Spec:
    return finished(alt.Chart(rows).mark_line().encode(x="K:Q", y="right:Q"))


def test_the_chart_of_a_new_table_is_a_function_and_a_part_of_its_line(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for room in ("tables", "report"):
        module = ModuleType(f"g2d.{room}.toy")
        module.right_by_k = right_by_k  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules["g2d.tables.toy"].right_by_k = table_of(columns("model K right"))(right_by_k)  # type: ignore[attr-defined]
    chart = all_tables.Chart("toy:right_by_k", "model")
    toy = all_tables.Table("toy", "How many answers are right", "toy:right_by_k", "answers", (), charts=(chart,))
    monkeypatch.setattr(all_tables, "TABLES", (*all_tables.TABLES, toy))
    files = {"main": write_tables(tmp_path, config)["main"], "toy": tmp_path / "toy.csv"}
    write_table(files["toy"], pd.DataFrame({"model": ["a", "a", "b"], "K": [0, 10, 0], "right": [1, 2, 3]}))
    page = build(
        tables=files,
        figures={},
        captions=captions(config, ["main"]) | {"toy": {"caption": "Right answers.", "definitions": {}}},
        grid=Grid(config),
        series=[],
        answered=[],
        provenance=provenance(config, [], {}, [], __file__),
        folder=tmp_path,
    )
    assert "How many answers are right" in page
    for model in ("a", "b"):
        assert f'data-spec="toy/right_by_k/{model}"' in page
        assert f'"toy/right_by_k/{model}":{{' in page
