"""Captions are short and have only the settings of the grid."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from g2d.config.sections import Config
from g2d.tables.captions import FILE, captions
from tests.configs import OPEN_ENDED, SMALL
from tests.open_ended import JUDGE

NAMES = list(yaml.safe_load(FILE.read_text(encoding="utf-8")))
RICH: dict[str, Any] = SMALL | {
    "training_set": {"n": 10},
    "evaluation": {"sampled": {"n": 4, "beside_greedy": True}},
    "rewards": {"polite": JUDGE},
    "open_ended": OPEN_ENDED,
    "benchmarks": SMALL["benchmarks"]
    | {"picks": SMALL["benchmarks"]["easy"] | {"split": "development", "select_by": True}},
}


def caption(name: str, **keys: Any) -> str:
    config = keys.pop("config", None) or Config.model_validate(RICH | keys)
    return str(captions(config, [name])[name]["caption"])


@pytest.mark.parametrize("name", NAMES)
def test_a_caption_has_at_most_three_sentences_and_is_filled_in(name: str) -> None:
    [caption] = captions(Config.model_validate(RICH), [name]).values()
    text = caption["caption"]
    assert len(re.findall(r"\.(?= [A-Z`]|$)", text)) <= 3
    for filled in (text, *caption["definitions"].values()):
        assert filled.endswith(".")
        assert filled.count("`") % 2 == 0
        assert not re.search(r"[{}]|None|\(s\)", filled)


@pytest.mark.parametrize("name", NAMES)
def test_with_one_seed_no_caption_speaks_of_other_seeds(name: str) -> None:
    one = caption(name, seeds=[3])
    two = caption(name, seeds=[3, 4])
    assert not re.search(r"seeds and (problems|questions|prompts)", one)
    if "over seeds and " in two:
        assert "for these weights" in one


@pytest.mark.parametrize(
    ("sampled", "expected"),
    [
        (None, "greedy answers"),
        ({"n": 4, "beside_greedy": True}, "greedy answers"),
        ({"n": 4}, "mean of 4 samples at temperature"),
        ({"n": 1}, "one sample at temperature"),
    ],
)
def test_table_1_says_which_answers_its_accuracies_are_of(sampled: dict[str, Any] | None, expected: str) -> None:
    assert expected in caption("main", evaluation={"sampled": sampled})


@pytest.mark.parametrize(("levels", "expected"), [([2], "level 2."), ([2, 3], "levels 2, 3.")])
def test_one_level_is_one_level(levels: list[int], expected: str) -> None:
    assert caption("calibration", calibration={"levels": levels}).endswith(expected)
