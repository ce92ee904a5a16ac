"""Rejection-sampling fine-tuning: training data, a loss on completion tokens only, and resuming."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
import pytest

from g2d.problems.prompts import Prompt
from g2d.regimes.offline.rft import Rft, RightCompletion, chosen_completions, right_completions, train_rft
from g2d.rollouts.pairs import build_pairs
from tests.frames import harvest_of, text_of
from tests.models import completion_logprobs, tiny_policy
from tests.regimes.stops import assert_resumes
from tests.regimes.test_groups import PROBLEMS
from tests.regimes.trainings import losses, metric, pairs


def harvest() -> pd.DataFrame:
    """Rollouts a: a right text twice, another, a wrong and a cut-off one; b: wrong; c: one right."""
    return harvest_of(
        ("c", 0, "C", 1.0, "stop"),
        ("a", 3, "cut \\boxed{1} off", 1.0, "length"),
        ("a", 2, "A2", 1.0, "stop"),
        ("a", 1, "A1", 1.0, "stop"),
        ("a", 0, "A1", 1.0, "stop"),
        ("a", 4, "wrong", 0.0, "stop"),
        ("b", 0, "wrong", 0.0, "stop"),
    )


def test_it_trains_on_every_different_right_completion_that_is_not_truncated() -> None:
    examples = right_completions(harvest(), PROBLEMS)
    texts = [(text_of(example["prompt_ids"]), text_of(example["completion_ids"])) for example in examples]
    assert texts == [("What is a?", "A1"), ("What is a?", "A2"), ("What is c?", "C")]


def test_of_equal_texts_the_tokens_of_the_first_sample_are_kept() -> None:
    """A text can have several tokenisations."""
    rollouts = harvest()
    rollouts.at[3, "completion_ids"] = np.array([1, 2], dtype=np.int32)
    rollouts.at[4, "completion_ids"] = np.array([3, 4], dtype=np.int32)  # sample 0
    assert list(rollouts["completion_text"].iloc[[3, 4]]) == ["A1", "A1"]
    assert right_completions(rollouts, PROBLEMS)[0]["completion_ids"] == [3, 4]


def test_a_harvest_may_have_no_right_completion_but_no_foreign_ones() -> None:
    assert right_completions(harvest().query("reward == 0"), PROBLEMS) == []
    with pytest.raises(ValueError, match="rollouts of 'c', which is not among the 2 problems given"):
        right_completions(harvest(), PROBLEMS[:2])


def test_chosen_completions_equal_those_of_dpo() -> None:
    """Only prompt a is pairable. Over the seeds, every completion is chosen that a pair may have."""
    seen = set()
    for seed in range(40):
        built = build_pairs(harvest(), PROBLEMS, Prompt(), seed)
        (example,) = chosen_completions(built)
        assert (example["prompt_ids"], example["completion_ids"]) == (built[0]["prompt_ids"], built[0]["chosen_ids"])
        seen.add(text_of(example["completion_ids"]))
    assert seen == {"A1", "A2", "cut \\boxed{1} off"}


def examples(n: int) -> list[RightCompletion]:
    return chosen_completions(pairs(n))


def rft(work: Path, n: int = 22, **settings: Any) -> list[dict[str, Any]]:
    values = {"regime": "rft", "learning_rate": 2e-3, "gradient_accumulation_steps": 2} | settings
    return losses(train_rft, examples(n), Rft.model_validate(values), work)


def test_its_first_loss_is_the_nll_of_completion_tokens_under_m0(tmp_path: Path) -> None:
    """The loss is minus the mean log-probability of all completion tokens and the end of the turn."""
    log = rft(tmp_path, n=8, epochs=2)
    scores = []
    for example in examples(8):
        scores += completion_logprobs(tiny_policy(), example["prompt_ids"], example["completion_ids"])
    assert log[0]["loss"] == pytest.approx(-mean(scores), rel=1e-3)
    assert log[-1]["loss"] < log[0]["loss"]


def test_max_steps_counts_steps_whatever_the_epochs_take(tmp_path: Path) -> None:
    assert metric(rft(tmp_path, n=8, epochs=1, max_steps=3), "step") == [1, 2, 3]


def test_a_stopped_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    log = assert_resumes(rft, tmp_path, 3, 5)  # at the end of an epoch, and inside the next
    assert metric(log, "step") == [*range(1, 10)]
