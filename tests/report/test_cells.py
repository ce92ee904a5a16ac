"""Any CSV as a table of the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from g2d.report.cells import MAX_CELL, MAX_ROWS, cells_of, decimals, number, qualifiers
from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.families import COMPARISON_COLUMNS
from g2d.tables.frames import read_table, write_table
from g2d.tables.paper import PUBLISHED_COLUMNS
from g2d.tables.samples import SAMPLE_COLUMNS


def texts_of(table: pd.DataFrame) -> list[list[str]]:
    """Return the rows of a table as a reader sees them."""
    return [[cell.text.striptags() for cell in row] for row in cells_of(table).rows]


def test_bounds_and_deviations_are_shown_in_the_cell_they_belong_to() -> None:
    table = pd.DataFrame(
        {
            **{"K": [0, 25], "std_over_seeds": [None, 0.01], "accuracy": [0.5, 0.9525]},
            **{"ci_low": [0.4, 0.92], "ci_high": [0.6, 0.98], "rho": [0.5, 0.7], "rho_std": [0.1, 0.2]},
            **{"mu": [0.1, None], "mu_low": [0.0, None], "mu_high": [0.2, None]},
        }
    )
    assert cells_of(table).columns == ("accuracy", "K", "std_over_seeds", "rho", "mu")
    assert texts_of(table) == [
        ["0.500 [0.400, 0.600]", "0", "–", "0.500 ± 0.100", "0.100 [0.000, 0.200]"],
        ["0.953 [0.920, 0.980]", "25", "0.0100", "0.700 ± 0.200", "–"],
    ]


def test_policies_come_first_in_one_column_then_what_the_table_is_about() -> None:
    table = pd.DataFrame(
        {
            **{"model": ["m", "n"], "policy": ["g2d", "grpo"], "K": [25, 100], "group_size": [2, 4], "n": [1, 2]},
            **{"reference": ["dpo", None], "reference_K": [0, None], "reference_group_size": [None, None]},
            **{"difference": [0.1, 0.2], "ci_low": [0.0, 0.1], "ci_high": [0.2, 0.3], "p_value": [0.01, 0.5]},
        }
    )
    assert cells_of(table).columns == ("policy", "reference", "difference", "p_value", "model", "n")
    first, second = texts_of(table)
    assert first[:3] == ["G2D (K=25)", "DPO (K=0)", "0.100 [0.000, 0.200]"]
    assert second[:2] == ["GRPO (K=100)", "–"]


def test_p_values_beside_the_level_differ_from_it() -> None:
    table = pd.DataFrame({"p_value": [0.0451, 0.0549, 1.0, 0.00012, 0.050004, 0.05]})
    assert texts_of(table) == [["0.0451"], ["0.0549"], ["1"], ["0.00012"], ["0.050004"], ["0.05"]]


def test_a_value_has_the_digits_of_its_measure() -> None:
    table = pd.DataFrame({"measure": ["reward", "reward", "tokens"], "value": [0.431, 0.5, 412.0]})
    assert texts_of(table) == [["reward", "0.431"], ["reward", "0.500"], ["tokens", "412"]]


def test_bounds_of_a_text_have_the_digits_of_the_largest() -> None:
    table = pd.DataFrame({"family": ["DPO", "GRPO"], "family_low": [-0.0391, 0.1], "family_high": [0.3412, 0.2]})
    cells = cells_of(table).rows
    assert "[-0.039, 0.341]" in cells[0][0].text


def test_sorting_compares_the_values_of_the_file() -> None:
    [first], [second] = cells_of(pd.DataFrame({"x": [0.123456789, None]})).rows
    assert first.key == "0.123456789"
    assert second.key == ""


def test_an_interval_belongs_to_the_column_before_it() -> None:
    table = pd.DataFrame({"a": [0.1], "difference": [0.1], "ci_low": [0.0], "ci_high": [0.2], "b": [0.1]})
    assert qualifiers(table) == {"difference": ("ci_low", "ci_high")}


@pytest.mark.parametrize(
    ("columns", "estimate"),
    [
        (MAIN_COLUMNS, "accuracy"),
        (COMPARISON_COLUMNS, "difference"),
        (PUBLISHED_COLUMNS, "accuracy"),
        (SAMPLE_COLUMNS, "share"),
    ],
)
def test_every_table_has_its_estimate_before_the_interval(columns: Mapping[str, str], estimate: str) -> None:
    assert qualifiers(pd.DataFrame(columns=list(columns)))[estimate] == ("ci_low", "ci_high")


def test_what_is_the_same_in_every_row_is_said_once() -> None:
    table = pd.DataFrame({"model": ["m", "m"], "x": [1, 2], "empty": [None, None]})
    cells = cells_of(table)
    assert cells.constant == (("model", "m"),)
    assert cells.columns == ("x",)
    assert cells_of(table.head(1)).constant == ()


def test_text_of_a_table_is_escaped() -> None:
    [attack], [reversed_] = cells_of(pd.DataFrame({"answer": ["<img src=x onerror=alert(1)>", "\u202e1"]})).rows
    assert str(attack.text) == "&lt;img src=x onerror=alert(1)&gt;"
    assert str(reversed_.text) == '<span class="control">U+202E</span>1'


def test_a_long_table_is_cut_and_counted() -> None:
    cells = cells_of(pd.DataFrame({"x": range(MAX_ROWS + 5)}))
    assert (len(cells.rows), cells.n_rows) == (MAX_ROWS, MAX_ROWS + 5)


def test_a_table_without_rows_keeps_its_columns() -> None:
    assert cells_of(pd.DataFrame(columns=["a", "b"])).columns == ("a", "b")


def test_a_file_that_is_no_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("")
    with pytest.raises(ValueError, match=r"table\.csv: empty; delete it"):
        read_table(tmp_path / "table.csv", {})


@pytest.mark.parametrize(
    ("values", "digits"), [([1, 2], 0), ([0.5, 0.95], 3), ([199.5, 200], 1), ([0.0123], 4), ([0.0], 0), ([], 0)]
)
def test_a_column_has_the_digits_of_its_largest_value(values: list[float], digits: int) -> None:
    assert decimals(pd.Series(values, dtype=float)) == digits


def test_a_small_number_is_not_rounded_to_nothing() -> None:
    assert number(2.1e-7, 3) == "2.1e-07"
    assert number(0.0, 3) == "0.000"


def test_a_page_shows_texts_as_they_were_and_not_to_the_end(tmp_path: Path) -> None:
    write_table(tmp_path / "table.csv", pd.DataFrame({"extracted_answer": ["=1+1", "x" * 10**6], "n": [1, 2]}))
    shown = texts_of(read_table(tmp_path / "table.csv", {}))
    assert shown == [["=1+1", "1"], ["x" * MAX_CELL + "… 998,000 more characters", "2"]]
