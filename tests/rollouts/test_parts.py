"""Parts of a generation: dealt out and merged, the rows are those of one part."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from g2d.problems import Problem
from g2d.problems.synthetic import generate
from g2d.rollouts.rollout import Rollout, merge_parts, part_of, read_rollouts, to_frame, write_rollouts
from tests.frames import group


def problems(n: int) -> list[Problem]:
    return generate("arithmetic", "train", n, seed=0)


def answered(asked: list[Problem]) -> list[Rollout]:
    rows = []
    for problem in asked:
        rows += group(problem.problem_id, 1, 3, level=problem.level)
    return rows


def write_parts(folder: Path, asked: list[Problem], count: int) -> list[Path]:
    files = []
    for number in range(1, count + 1):
        files.append(folder / f"{number}-of-{count}.parquet")
        write_rollouts(files[-1], answered(part_of(asked, number, count)))
    return files


def test_parts_are_dealt_out_like_cards() -> None:
    asked = problems(7)
    assert part_of(asked, 1, 3) == asked[0::3]
    assert part_of(asked, 2, 3) == asked[1::3]
    assert part_of(asked, 3, 3) == asked[2::3]
    assert part_of(asked, 1, 1) == asked


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(n=st.integers(1, 12), data=st.data())
def test_merging_undoes_dealing_whatever_the_number(tmp_path: Path, n: int, data: st.DataObject) -> None:
    asked = problems(n)
    count = data.draw(st.integers(1, n))
    whole = to_frame(answered(asked))
    merged = merge_parts(write_parts(tmp_path, asked, count), asked)
    pd.testing.assert_frame_equal(merged, whole)
    write_rollouts(tmp_path / "whole.parquet", whole)
    write_rollouts(tmp_path / "merged.parquet", merged)
    assert (tmp_path / "whole.parquet").read_bytes() == (tmp_path / "merged.parquet").read_bytes()


def test_a_part_with_other_problems_is_named(tmp_path: Path) -> None:
    asked = problems(6)
    files = write_parts(tmp_path, asked, 2)
    with pytest.raises(ValueError, match=r"2-of-2\.parquet: not the rollouts of part 1 of 2"):
        merge_parts(files[::-1], asked)
    short = read_rollouts(files[1])
    short[short["problem_id"] != asked[1].problem_id].to_parquet(files[1])
    with pytest.raises(ValueError, match=r"2-of-2\.parquet: not the rollouts of part 2 of 2"):
        merge_parts(files, asked)
