"""Changed keys, and what they replace, in words."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from g2d.jobs.cost import Cost
from g2d.status.changes import Rerun, changed_keys, report


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"beta": 0.1, "epochs": 3}, {"beta": 0.3, "epochs": 3}, ["dpo.beta 0.1 -> 0.3"]),
        ({"beta": 0.1}, {"beta": 0.1, "nll_weight": 1.0}, ["dpo.nll_weight default -> 1.0"]),
        ({"max_steps": 5}, {"max_steps": None}, ["dpo.max_steps 5 -> null"]),
        ({"beta": 0.1}, {"beta": 0.1}, []),
    ],
)
def test_keys_with_their_values(old: dict[str, object], new: dict[str, object], changes: list[str]) -> None:
    assert changed_keys([repr({"dpo": old})], [repr({"dpo": new})]) == changes


def test_a_version_an_engine_and_a_long_text() -> None:
    assert changed_keys(["1"], ["2"]) == ["version 1 -> 2"]
    assert changed_keys(["'transformers'"], ["'vllm'"]) == ["engine.name transformers -> vllm"]
    [change] = changed_keys(
        [repr({"prompt": {"system": None}})], [repr({"prompt": {"system": "a\x1b[31m" + "b" * 99}})]
    )
    assert change.startswith("prompt.system null -> abbb")
    assert change.endswith("b...")
    assert len(change) < 70


def test_a_param_that_is_no_literal_is_left_out() -> None:
    assert changed_keys(["{'a': nan}"], ["{'a': 1}"]) == ["a default -> 1"]


def test_changes_are_counted_by_rule_with_what_they_replace(tmp_path: Path) -> None:
    cost = Cost("job", "train_dpo", 1800.0, 1800.0, 1, "cpu", 1800.0, 0, 0)
    (tmp_path / "cost.json").write_text(json.dumps(asdict(cost) | {"ancestry": []}))
    old = [repr({"dpo": {"beta": 0.1}})]
    new = [repr({"dpo": {"beta": 0.3}})]
    costs = [str(tmp_path / "cost.json")]
    reruns = [Rerun("train_dpo", old, new, costs)] * 2 + [Rerun("evaluate", [], [], [str(tmp_path / "lost.json")])]
    assert report(reruns).splitlines() == [
        "dpo.beta 0.1 -> 0.3: 2 finished jobs run again (train_dpo)",
        "1 more finished job runs again",
        "What they replace took 1 device-hours",
    ]
    assert report(reruns[2:]) == report([]) == ""
