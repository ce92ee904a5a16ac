"""All tables and figures: nothing in it without a place and a caption."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import yaml

from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.jobs.cost import Cost, CostFile
from g2d.tables import all_tables
from g2d.tables.all_tables import FIGURES, SECTIONS, TABLES, Table, tables_of
from g2d.tables.captions import FILE
from g2d.tables.evaluations import Evaluations
from g2d.tables.frames import TYPE_OF, columns
from g2d.tables.inputs import Inputs
from g2d.tables.reads import ANSWER_COSTS, ANSWERS, COSTS, RECORDS, REPLIES, REPLY_COSTS, SAMPLE_COSTS
from tests import open_ended
from tests.configs import OPEN_ENDED, SMALL, SYNTHETIC
from tests.frames import solved

BY_NAME = {table.name: table for table in TABLES}
ALWAYS = BY_NAME.keys() - {"factorial", "auto", "selection", "samples", "win_rates"}


def test_every_table_and_figure_has_a_name_a_place_and_a_caption() -> None:
    assert len(BY_NAME) == len(TABLES)
    assert {table.section for table in TABLES} == set(SECTIONS)
    assert yaml.safe_load(FILE.read_text()).keys() == BY_NAME.keys() | {figure.name for figure in FIGURES}


def test_left_over_are_tables_of_other_configurations(tmp_path: Path) -> None:
    grid = Grid(Config.model_validate(SMALL))
    for name in ("main.csv", "selection.csv", "mine.csv"):
        (tmp_path / name).touch()
    [file] = all_tables.left_over(grid, tmp_path)
    assert file.name == "selection.csv"


def test_a_column_has_one_type_but_where_a_table_says_otherwise() -> None:
    assert columns("K accuracy", "model") == {"K": "int64", "accuracy": "float64", "model": "object"}
    assert columns("K", K="Int64") == {"K": "Int64"}
    unused = {*TYPE_OF}
    for table in TABLES:
        unused -= {*getattr(table.build, "columns", {})}
    assert not unused


TABLES_OF_KEYS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "plain": ({}, set()),
    "factorial": ({"calibration": {"factorial_temperatures": [0.5, 0.9]}}, {"factorial"}),
    "auto": ({"warmup": {"steps": [0, 10], "auto": {"every": 2, "patience": 1}}}, {"auto"}),
    "regimes": ({"regimes": {"rft": {"regime": "rft"}}}, set()),
    "one K of GRPO": ({"warmup": {"steps": [0, 2, 4, 6, 8]}}, set()),
    "selection": (
        {
            "benchmarks": {
                "easy": {**SYNTHETIC, "split": "test"},
                "picks": {**SYNTHETIC, "split": "development", "select_by": True},
            }
        },
        {"selection"},
    ),
    "samples": ({"evaluation": {"sampled": {"n": 4}}}, {"samples"}),
    "one sample": ({"evaluation": {"sampled": {"n": 1}}}, set()),
    "rewards": ({"rewards": {"coin": {"reward": "random"}}}, set()),
    "open_ended": ({"rewards": {"polite": open_ended.JUDGE}, "open_ended": OPEN_ENDED}, {"win_rates"}),
}


@pytest.mark.parametrize(("keys", "more"), TABLES_OF_KEYS.values(), ids=TABLES_OF_KEYS)
def test_a_grid_has_the_tables_of_its_configuration(keys: dict[str, Any], more: set[str]) -> None:
    assert set(tables_of(Grid(Config.model_validate(SMALL | keys)))) == ALWAYS | more


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_arguments_of_a_table_are_attributes_of_inputs(table: Table) -> None:
    module, function = table.function.split(":")
    build = getattr(import_module(f"g2d.tables.{module}"), function)
    inspect.signature(build).bind(*table.arguments.split())
    assert set(table.arguments.split()) <= set(dir(Inputs(Grid(Config.model_validate(SMALL)))))


def right_answers(answers: Evaluations) -> pd.DataFrame:
    table = []
    for (key, _), rows in answers.items():
        table.append({"policy": key.label, "K": key.shown_k, "right": rows["reward"].sum()})
    return pd.DataFrame(table)


def test_a_new_table_is_a_function_and_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CONTRIBUTING.md: its rule's inputs and outputs, its place in the reports and its rows follow."""
    module = ModuleType("g2d.tables.toy")
    module.right_answers = right_answers  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "g2d.tables.toy", module)
    toy = Table("toy", "How many answers are right", "toy:right_answers", "answers", (ANSWERS, RECORDS))
    monkeypatch.setattr(all_tables, "TABLES", (*TABLES, toy))
    grid = Grid(Config.model_validate(SMALL))
    answers = [f"results/{policy.folder}/eval/easy.parquet" for policy in grid.policies]
    records = [f"results/{policy.folder}/policy.json" for policy in grid.policies]
    reads = all_tables.reads_of([toy])
    assert reads.keys() == {"answers", "records"}
    assert reads["answers"].files(grid) == answers
    assert reads["records"].files(grid) == records
    assert tables_of(grid)["toy"] is toy
    for file in answers[:2]:
        (tmp_path / file).parent.mkdir(parents=True)
        solved(3).to_parquet(tmp_path / file)
    table = Inputs(grid, tmp_path / "results").build("toy")
    assert table.to_dict("records") == [
        {"policy": "base", "K": 0, "right": 3.0},
        {"policy": "dpo", "K": 0, "right": 3.0},
    ]
    with pytest.raises(ValueError, match=r"eval/easy\.parquet"):
        Inputs(grid, given={"answers": answers, "records": records}).build("toy")


def test_replies_and_answers_have_the_k_that_tables_show(tmp_path: Path) -> None:
    grid = Grid(Config.model_validate(SMALL | {"warmup": {"steps": [0, 10], "auto": {"every": 2, "patience": 1}}}))
    [key] = [key for key in grid.policies if key.role == "auto" and key.seed == 0]
    inputs = Inputs(grid, tmp_path)
    inputs.records = {key: SimpleNamespace(k=4)}  # type: ignore[dict-item]
    inputs.read = lambda read, *_: {key: read} if read is REPLIES else {(key, "easy"): read}  # type: ignore[method-assign]
    [of_replies] = inputs.replies
    [(of_answers, _)] = inputs.answers
    assert of_replies.shown_k == of_answers.shown_k == 4


def test_the_benchmark_that_selects_is_not_tested(tmp_path: Path) -> None:
    grid = Grid(Config.model_validate(SMALL | TABLES_OF_KEYS["selection"][0]))
    inputs = Inputs(grid, tmp_path)
    base = grid.policies[0]
    inputs.answers = {(base, "easy"): pd.DataFrame(), (base, "picks"): pd.DataFrame()}
    assert [*inputs.tested] == [(base, "easy")]


def test_each_policy_is_charged_its_training_and_all_that_it_answered(tmp_path: Path) -> None:
    grid = Grid(Config.model_validate(SMALL))
    base, policy = grid.policies[:2]
    bills = {
        COSTS: {policy: bill("training")},
        ANSWER_COSTS: {(base, "easy"): bill("answers"), (policy, "easy"): bill("answers")},
        SAMPLE_COSTS: {(policy, "easy"): bill("samples")},
        REPLY_COSTS: {base: bill("replies")},
    }
    inputs = Inputs(grid, tmp_path)
    inputs.records = {}
    inputs.read = lambda read, *_: bills[read]  # type: ignore[method-assign,assignment,return-value]
    assert inputs.charged == {
        policy: [cost("training"), cost("answers"), cost("samples")],
        base: [cost("answers"), cost("replies")],
    }


def cost(job: str) -> Cost:
    return Cost(job, "stage", 1.0, 1.0, 1, "cpu", 1.0, 0, 0)


def bill(job: str) -> CostFile:
    return CostFile(cost(job), ())
