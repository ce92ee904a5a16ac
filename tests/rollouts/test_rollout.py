"""The format of rollouts."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from g2d.rollouts.rollout import read_rollouts, to_frame, write_rollouts
from tests.frames import rollout


def test_a_file_with_a_column_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    frame = to_frame([rollout("p", 0), rollout("p", 1, "incorrect")])
    write_rollouts(tmp_path / "new.parquet", frame)
    frame.assign(disputed=False).to_parquet(tmp_path / "old.parquet")
    pd.testing.assert_frame_equal(read_rollouts(tmp_path / "old.parquet"), read_rollouts(tmp_path / "new.parquet"))
