"""Contents of the record of training rollouts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd

from g2d.regimes.common.training_rollouts import TrainingRollouts, read_ages
from g2d.rewards.reward import Judgement
from g2d.verifier import Verification


def test_every_completion_has_a_row_and_those_of_the_first_group_a_text(tmp_path: Path) -> None:
    rollouts = TrainingRollouts([9])
    verdicts = [Verification("correct", "4"), Verification("incorrect", "5"), *[Verification("truncated", None)] * 2]
    rollouts.record(
        verdicts,
        rewards=[Judgement(verification.reward) for verification in verdicts],
        completions=["one", "two", "three", "four"],
        completion_ids=[[1, 9], [1, 9], [1, 2, 9], [1, 2, 3]],
        problem_id=["a", "a", "b", "b"],
        trainer_state=SimpleNamespace(global_step=0),
    )
    rollouts.save(tmp_path / "rollouts.parquet")
    frame = pd.read_parquet(tmp_path / "rollouts.parquet")
    assert frame["completion_text"].dropna().to_dict() == {0: "one", 1: "two"}
    columns = ["sample", "finish_reason", "reward"]
    assert frame[columns].values.tolist() == [[0, "stop", 1], [1, "stop", 0], [0, "stop", 0], [1, "length", 0]]


def recorded(rollouts: TrainingRollouts, steps_before: int) -> None:
    rollouts.record(
        [Verification("correct", "4")],
        rewards=[Judgement(1.0)],
        completions=["one"],
        completion_ids=[[1, 9]],
        problem_id=["a"],
        trainer_state=SimpleNamespace(global_step=steps_before),
    )


def test_a_row_has_the_step_from_which_its_weights_sampled(tmp_path: Path) -> None:
    rollouts = TrainingRollouts([9], period=4)  # weights are synchronised before steps 1, 5 and 9
    for steps_before in range(9):
        recorded(rollouts, steps_before)
    rollouts.save(tmp_path / "rollouts.parquet")
    ages = read_ages(tmp_path / "rollouts.parquet")
    assert list(ages["step"]) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert list(ages["generated_at"]) == [1, 1, 1, 1, 5, 5, 5, 5, 9]
