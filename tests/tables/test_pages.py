"""Tables as pages: what is in the CSV is on the page, escaped, and the CSV itself can be taken from it."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pandas as pd

from g2d.tables.frames import write_table
from g2d.tables.pages import table_page


def test_a_page_shows_the_table_and_carries_it(tmp_path: Path) -> None:
    csv = tmp_path / "main.csv"
    csv.write_text('model,levels,accuracy,std\n"<script>alert(1)</script>",2-4,0.123456,\n')
    page = table_page(csv, "Table <1>", "A demonstration & nothing else.")
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "Table &lt;1&gt;" in page
    assert "A demonstration &amp; nothing else." in page
    assert "<td>0.1235</td>" in page
    assert "<td>–</td>" in page
    [data] = re.findall(r"data:text/csv;base64,([^\"]+)", page)
    assert base64.b64decode(data) == csv.read_bytes()


def test_texts_are_shown_without_what_guards_a_spreadsheet(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", pd.DataFrame({"extracted_answer": ["=1+1"]}))
    assert "<td>=1+1</td>" in table_page(tmp_path / "t.csv", "T", None)


def test_a_real_experiment_carries_no_note(tmp_path: Path) -> None:
    (tmp_path / "main.csv").write_text("a\n1\n")
    assert 'class="note"' not in table_page(tmp_path / "main.csv", "T", None)


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "main.csv").write_text("a\n1\n")
    page = table_page(tmp_path / "main.csv", "T", None)
    assert not re.search(r"https?://|src=|@import", page)
