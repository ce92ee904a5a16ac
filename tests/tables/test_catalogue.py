"""The catalogue of tables and figures: nothing in it without a place and a caption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from g2d.experiment.config import Config
from g2d.tables.catalogue import FIGURES, SECTIONS, TABLES, section_of, tables_of

CAPTIONS = Path(__file__).parents[2] / "workflow/report"
SYNTHETIC = {"source": "synthetic", "family": "arithmetic", "n": 10}
SMALL: dict[str, Any] = {
    "models": {"tiny": {"source": "scratch"}},
    "pool": {**SYNTHETIC, "split": "train"},
    "benchmarks": {"easy": {**SYNTHETIC, "split": "test"}},
    "warmup": {"steps": [0, 10]},
}
REPLIES = {"source": "synthetic", "family": "replies", "n": 5}
OPEN_ENDED = {"reward": "polite", "pool": REPLIES | {"split": "train"}, "held_out": REPLIES | {"split": "test"}}
ALWAYS = {table.name for table in TABLES} - {
    *("factorial", "factorial_effects", "equal_compute", "auto", "regimes", "frontier", "matched", "sweep", "controls"),
    *("selection", "synthesis"),
    *("contamination", "samples", "training", "collapses", "win_rates", "scenarios", "bridging"),
    *("advice", "advice_levels", "advice_hours", "advice_check"),
}


def test_every_table_and_figure_has_a_name_a_place_and_a_caption() -> None:
    assert len({table.name for table in TABLES}) == len(TABLES)
    assert {table.section for table in TABLES} == set(SECTIONS)
    captions = {table.name for table in TABLES} | {figure.caption_name for figure in FIGURES} | {"workflow"}
    assert {path.stem for path in CAPTIONS.glob("*.rst")} == captions


def test_a_table_that_the_catalogue_does_not_have_stands_with_the_others() -> None:
    assert (section_of("cost"), section_of("a table of somebody else's")) == ("The bill", "Tables")


@pytest.mark.parametrize(
    ("keys", "more"),
    [
        ({}, set()),
        ({"probe": {"compare": True}}, {"advice", "advice_levels", "advice_hours", "advice_check"}),
        ({"calibration": {"factorial_temperatures": [0.5, 0.9]}}, {"factorial", "factorial_effects"}),
        ({"warmup": {"steps": [0, 10], "auto": {"every": 2, "patience": 1}}}, {"auto"}),
        (
            {"ablations": {"hot": {"warmup": {"temperature": 1.2}, "policies": ["grpo"], "steps": [10]}}},
            {"equal_compute"},
        ),
        (
            {"regimes": {"rft": {"regime": "rft"}}},
            {"equal_compute", "regimes", "frontier", "matched", "training", "collapses"},
        ),
        ({"benchmarks": {name: {**SYNTHETIC, "split": "test"} for name in ("a", "b", "c")}}, {"synthesis"}),
        ({"collapse": {"share": 0.3}}, {"training", "collapses"}),
        ({"frontier": {"margin": 0.05}}, {"frontier", "matched"}),
        (
            {
                "warmup": {"steps": [0, 5, 10]},
                "ablations": {"best": {"steps": "all", "select": True, "policies": ["grpo"]}},
                "sweep": {"development": 5},
                "pool": {**SYNTHETIC, "split": "train", "n": 2000},
            },
            {"selection", "equal_compute"},
        ),
        ({"contamination": {}}, {"contamination"}),
        ({"evaluation": {"sampled": {"n": 4}}}, {"samples"}),
        ({"evaluation": {"sampled": {"n": 1}}}, set()),
        ({"rewards": {"coin": {"reward": "random"}}}, set()),
        ({"rewards": {"polite": {"reward": "scratch_model"}}, "open_ended": OPEN_ENDED}, {"win_rates", "scenarios"}),
        (
            {
                "rewards": {"coin": {"reward": "random"}},
                "ablations": {"on-coin": {"reward": "coin", "steps": [10]}},
            },
            {"controls"},
        ),
    ],
    ids=[
        "plain",
        "advice",
        "factorial",
        "auto",
        "equal_compute",
        "regimes",
        "synthesis",
        "collapse",
        "frontier",
        "selection",
        "contamination",
        "samples",
        "one sample",
        "rewards",
        "open_ended",
        "controls",
    ],
)
def test_a_grid_has_the_tables_of_its_configuration(keys: dict[str, Any], more: set[str]) -> None:
    assert set(tables_of(Config.model_validate(SMALL | keys))) == ALWAYS | more
