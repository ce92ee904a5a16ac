"""`g2d config docs` writes into a folder that a user names."""

from __future__ import annotations

from pathlib import Path

import pytest

from g2d.cli import main


@pytest.mark.parametrize("name", ["README.md", "schema.json"])
def test_a_file_that_it_did_not_make_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    docs = ["config", "docs", "--folder", str(tmp_path)]
    assert main(docs) == main(docs) == 0
    (tmp_path / name).write_text("mine")
    assert main(docs) == 2
    assert f"{name}: not made by g2d config docs" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "mine"
