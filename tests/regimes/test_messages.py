"""Messages between the processes of a training are read back unchanged, and are no pickles."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.cost import Meter, Progress
from g2d.policies import PolicyRecord
from g2d.policies.model_keys import Lora
from g2d.problems.problem import Problem
from g2d.regimes.distributed.messages import TYPE, read_message, write_message
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.offline.rft import right_completions
from g2d.regimes.on_policy.group_trainer import Group, groups
from g2d.regimes.run.regime import Trained, TrainingJob
from g2d.rewards.registry import reward_settings
from tests.regimes.test_groups import PROBLEMS, rollouts

JOB = TrainingJob(
    PolicyRecord("tiny/base", "tiny", "base", base="results/tiny/base/model", settings={"source": "local", "n": 3}),
    [Problem("p1", "2 + 2?", "4", 1, None, "here")],
    Dpo(learning_rate=0.1 + 0.2),
    seed=3,
    work=Path("results/tiny/work"),
    lora=Lora(dropout=0.0),
    meter=Meter("job", "train", progress=Progress(2, 3, 0)),
    reward=reward_settings({"verifiable": {"reward": "random"}, "open_ended": {"reward": "random"}}),
)


@pytest.mark.parametrize(
    "value",
    [
        JOB,
        replace(JOB, data=[Group("p1", (1, 2), ((3,), (4, 5)), ((0, 1),), (0.5, -0.5))]),
        replace(JOB, data=[{"prompt_ids": [1, 2], "completion_ids": [3], "label": True}], tracking={"report_to": []}),
        Trained([{"loss": 1 / 3, "step": 1}], recorded={"n": 3}),
    ],
)
def test_messages_arrive_unchanged(tmp_path: Path, value: Any) -> None:
    write_message(tmp_path / "message.json", value)
    assert read_message(tmp_path / "message.json") == value


@pytest.mark.parametrize(
    "read",
    [
        lambda frame: groups(frame, ["a", "b"], which="all", seed=0),
        lambda frame: right_completions(frame, PROBLEMS),
    ],
)
def test_rows_of_a_harvest_can_be_sent(tmp_path: Path, read: Callable[[pd.DataFrame], Any]) -> None:
    """A Parquet file returns tokens as numpy arrays."""
    rollouts(a="1100", b="1000").to_parquet(tmp_path / "rollouts.parquet")
    data = read(pd.read_parquet(tmp_path / "rollouts.parquet"))
    write_message(tmp_path / "message.json", data)
    assert read_message(tmp_path / "message.json") == data


def test_a_loss_that_is_not_a_number_can_be_sent(tmp_path: Path) -> None:
    write_message(tmp_path / "message.json", [math.nan, math.inf])
    lost, infinite = read_message(tmp_path / "message.json")
    assert math.isnan(lost)
    assert infinite == math.inf


@pytest.mark.parametrize("value", [{1: 2}, {TYPE: "path"}, {1, 2}, object(), print])
def test_values_without_json_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        write_message(tmp_path / "message.json", value)


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:Popen", "g2d.jobs.files:sha256", "g2d.jobs.files:Path", "g2d.nowhere:Class"]
)
def test_a_foreign_file_runs_no_code(tmp_path: Path, name: str) -> None:
    (tmp_path / "message.json").write_text(json.dumps({TYPE: name, "args": "true"}))
    with pytest.raises((ValueError, ModuleNotFoundError)):
        read_message(tmp_path / "message.json")
    (tmp_path / "message.json").write_bytes(pickle.dumps(Path))
    with pytest.raises(ValueError, match=r"codec|JSON|Expecting"):
        read_message(tmp_path / "message.json")
