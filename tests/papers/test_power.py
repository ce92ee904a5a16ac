"""The reach of the papers' own designs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from g2d.tables.frames import read_table
from papers.power import POWER_COLUMNS, power

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return power()


def test_the_written_table_is_up_to_date(table: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        read_table(REPOSITORY / "papers/power.csv", POWER_COLUMNS), table, rtol=1e-5, atol=1e-5
    )


def test_differences_are_those_of_the_printed_tables(table: pd.DataFrame) -> None:
    rows = table.set_index(["paper", "model", "benchmark", "reference", "policy"])["difference"]
    of_g2d = ("arXiv 2605.21266", "Qwen2.5-7B-Instruct", "math500")
    assert rows[(*of_g2d, "GRPO (G=2)", "G2D (K=150)")] == pytest.approx(10.8)
    assert rows[(*of_g2d, "DPO (K=0)", "G2D (K=150)")] == pytest.approx(6.2)
    assert rows[("arXiv 2506.21495", "Llama-3.1-8B-Instruct", "amc23", "GRPO (s=1)", "Online DPO (s=1)")] == (
        pytest.approx(-0.7)
    )
