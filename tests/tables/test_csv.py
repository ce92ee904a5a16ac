"""Tables as CSV: safe to open in a spreadsheet, and read back as they were written."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.frames import read_table, write_table
from g2d.tables.results import read_by_name

HOSTILE = [
    *("=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "'=1", "''@x"),
    '=HYPERLINK("http://x",1)',
]
HARMLESS = [
    *("-5", "+0.5", "-0.25", "'-5", "'tis", "x=1", "a\rb", "a\r\nb", 'say "=1"', "NA", "nan", "1,5", "\u2028", " =1")
]


@pytest.mark.parametrize("text", [*HOSTILE, *HARMLESS])
def test_texts_are_no_formulas_in_a_spreadsheet_and_come_back_as_they_were(tmp_path: Path, text: str) -> None:
    table = pd.DataFrame(
        {"extracted_answer": [text, "x", math.nan], "n_rollouts": [-3, 2, 1], "difference": [-0.5, None, 1]}
    )
    write_table(tmp_path / "t.csv", table)
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        cells = [row[0] for row in csv.reader(file)][1:]
    assert cells[0] == (f"'{text}" if text in HOSTILE else text)
    numbers = (tmp_path / "t.csv").read_text().replace('"', "")
    assert ",-3,-0.5\n" in numbers  # numbers stay numbers
    assert_frame_equal(read_table(tmp_path / "t.csv", {"extracted_answer": "object"}), table, check_dtype=False)


def test_a_character_that_ends_a_cell_is_shown_by_its_picture(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", pd.DataFrame({"extracted_answer": ["=a\0b"]}))
    assert read_table(tmp_path / "t.csv", {"extracted_answer": "object"})["extracted_answer"][0] == "=a\u2400b"


def test_a_model_whose_name_is_a_number_stays_text(tmp_path: Path) -> None:
    file = tmp_path / "main.csv"
    write_table(file, pd.DataFrame([dict.fromkeys(MAIN_COLUMNS, 1) | {"model": "7", "benchmark": "500"}]))
    row = read_by_name(file).iloc[0]
    assert (row["model"], row["benchmark"]) == ("7", "500")
