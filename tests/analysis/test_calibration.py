"""Table 4: its counts reproduce its printed percentages, and levels are chosen from its pass@1."""

from __future__ import annotations

import pandas as pd
import pytest

from g2d.analysis.calibration import choose_levels, few_mixed, format_levels, level_table, with_mixes
from g2d.rollouts.rollout import to_frame
from g2d.rollouts.rollout_keys import Calibration
from tests.frames import group, groups, published

OUTCOMES = ["pairable", "all_wrong", "all_correct"]


def from_counts(rows: pd.DataFrame) -> pd.DataFrame:
    """Rollouts with the published numbers of pairable, all-wrong and all-correct prompts per level."""
    rollouts = []
    for row in rows.itertuples():
        outcomes = [(1, row.pairable), (0, row.all_wrong), (2, row.all_correct)]  # groups of two are enough
        for correct, n in outcomes:
            for i in range(n):
                rollouts += group(f"{row.levels}/{correct}/{i}", correct, n=2, level=int(row.levels))
    return to_frame(rollouts)


def test_published_counts_give_the_published_percentages():
    paper = published("table4").set_index("levels")
    levels = level_table(from_counts(paper.loc[["3", "4", "5"]].reset_index()))
    table = with_mixes(levels, [3, 4, 5]).set_index("levels")
    assert list(table.index) == ["3", "4", "5", "3-5", "all"]
    for levels in ("3", "4", "5", "3-5"):
        assert list(table.loc[levels, ["n", *OUTCOMES]]) == list(paper.loc[levels, ["n", *OUTCOMES]])
        for outcome in OUTCOMES:
            share = 100 * table.loc[levels, f"{outcome}_share"]
            assert share == pytest.approx(paper.loc[levels, f"{outcome}_share"], abs=0.5 + 1e-9)
    assert table["selected"].all()


def test_every_mix_lies_between_its_levels():
    rollouts = [
        *group("easy", 2, level=1),
        *group("middle", 4, level=2),
        *group("another middle", 4, level=2),
        *group("hard", 6, level=3),
        *group("another hard", 6, level=3),
        *group("a third hard", 6, level=3),
    ]
    table = with_mixes(level_table(to_frame(rollouts)), [2, 3]).set_index("levels")
    assert list(table["pass_at_1"]) == pytest.approx([0.25, 0.5, 0.75, (2 * 0.5 + 3 * 0.75) / 5, (0.25 + 1 + 2.25) / 6])
    assert list(table["selected"]) == [False, True, True, True, False]
    assert list(table["n"]) == [1, 2, 3, 5, 6]


@pytest.fixture
def table() -> pd.DataFrame:
    """pass@1 of 7/8, 4/8, 3/8 and 1/8 at levels 1 to 4, and a problem without a level at 4/8."""
    rollouts = [
        *group("p1", 7, level=1),
        *group("p2", 4, level=2),
        *group("p3", 3, level=3),
        *group("p4", 1, level=4),
        *group("p", 4, level=None),
    ]
    return level_table(to_frame(rollouts))


def test_levels_in_the_window_or_pinned_ones_are_chosen(table):
    assert choose_levels(table, Calibration(window=(0.3, 0.6))) == [2, 3]
    assert choose_levels(table, Calibration(window=(0.375, 0.5))) == [2, 3], "both ends belong to the window"
    assert choose_levels(table, Calibration(levels=[4, 1])) == [1, 4]
    with pytest.raises(ValueError, match=r"calibration\.levels: level 7 .* 1-4"):
        choose_levels(table, Calibration(levels=[2, 7]))
    with pytest.raises(ValueError, match=r"level 1: 87\.5%, .*level 4: 12\.5%.*calibration\.window"):
        choose_levels(table, Calibration(window=(0.9, 0.95)))


def test_a_pool_without_levels_is_one_level():
    table = level_table(groups([(4, 8)] * 3, level=None))
    assert choose_levels(table, Calibration()) == [None]
    assert list(with_mixes(table, [None])["levels"]) == ["none", "all"]


def test_nothing_calibrated_gives_an_empty_table():
    table = with_mixes(level_table(to_frame([])), [])
    assert list(table["levels"]) == ["all"]
    assert table["pass_at_1"].isna().all()


@pytest.mark.parametrize(
    ("levels", "text"),
    [([2, 3, 4], "2-4"), ([3], "3"), ([2, 4], "2, 4"), ([6, 1, 2, 3], "1-3, 6"), ([1, None], "1, none"), ([], "")],
)
def test_levels_are_written_as_ranges(levels, text):
    assert format_levels(levels) == text


@pytest.mark.parametrize(
    ("successes", "keys"),
    [
        ([0] * 19 + [4], ["calibration.levels", "prompt.examples", "temperature"]),
        ([8] * 19 + [4], ["harder level", "temperature"]),
        ([0] * 8 + [4] * 2, None),
    ],
)
def test_prompts_without_mixed_outcomes_are_a_warning_that_says_what_to_change(
    successes: list[int], keys: list[str] | None
) -> None:
    """Only levels that are trained on count: all outcomes of level 2, which is not trained on, are mixed."""
    rows = []
    for i, correct in enumerate(successes):
        rows += group(f"p{i}", correct, level=1)
    for i in range(20):
        rows += group(f"other{i}", 4, level=2)
    warning = few_mixed(with_mixes(level_table(to_frame(rows)), [1]))
    assert (warning is None) == (keys is None)
    for key in keys or []:
        assert key in str(warning)
