"""Training on verifiable and open-ended prompts together: exact proportions, each by its own reward, the same bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from g2d.problems import Problem
from g2d.problems.prompts import Prompt, conversation
from g2d.regimes.common.checkpoints import TrainingStoppedError
from g2d.regimes.common.prompt_choice import VERIFIABLE, PromptMix, prompt_indices, prompt_order, times_before
from g2d.rewards.model import RewardModel, Scorer
from g2d.rewards.registry import TRUTH, ByKind
from g2d.rollouts.engine import Decoding
from tests.models import rollouts_of, tiny_policy
from tests.open_ended import requests
from tests.regimes.stops import terminated_after
from tests.regimes.trainings import adapter_digest, easy, rows_of, saving, steps_of, warm_up
from tests.regimes.trainings import semi_online as train_semi_online
from tests.rewards.models import reward_model
from tests.shared import made_once

MIXED = PromptMix(prompts="mixed")


def problems(n_verifiable: int, n_open_ended: int) -> list[Problem]:
    return [*easy(n_verifiable), *requests(n_open_ended)]


@given(
    n_verifiable=st.integers(1, 12),
    n_open_ended=st.integers(1, 12),
    per_update=st.integers(2, 6),
    open_ended=st.integers(1, 5),
    updates=st.integers(0, 8),
    seed=st.integers(0, 9),
)
def test_every_update_has_the_same_proportions_and_each_kind_a_separate_order(
    n_verifiable: int, n_open_ended: int, per_update: int, open_ended: int, updates: int, seed: int
) -> None:
    open_ended = min(open_ended, per_update - 1)
    mix = PromptMix(prompts="mixed", open_ended_share=open_ended / per_update)
    pool = problems(n_verifiable, n_open_ended)
    indices = prompt_indices(mix, pool, updates * per_update, per_update, seed)
    numbers = np.array(indices, dtype=int)
    is_open_ended = numbers >= n_verifiable
    assert (is_open_ended.reshape(updates, per_update).sum(axis=1) == open_ended).all()
    verifiable = numbers[~is_open_ended].tolist()
    others = (numbers[is_open_ended] - n_verifiable).tolist()
    assert verifiable == prompt_order(n_verifiable, len(verifiable), seed)  # the order without open-ended prompts
    assert others == prompt_order(n_open_ended, len(others), seed)
    longer = prompt_indices(mix, pool, (updates + 2) * per_update, per_update, seed)
    assert longer[: len(indices)] == indices
    before = np.array([*times_before(indices)], dtype=int)
    assert before[~is_open_ended].tolist() == [*times_before(verifiable)]
    assert before[is_open_ended].tolist() == [*times_before(others)]


def test_every_pass_has_another_order() -> None:
    order = prompt_order(40, 80, seed=1)
    first = order[:40]
    second = order[40:]
    assert sorted(first) == sorted(second) == [*range(40)]
    assert first != second
    assert prompt_order(5, 10, seed=0) == [0, 1, 4, 3, 2, 0, 1, 2, 3, 4]


def test_a_single_kind_keeps_its_order() -> None:
    pool = problems(10, 3)
    assert prompt_indices(VERIFIABLE, pool[:10], 24, 4, seed=1) == prompt_order(10, 24, seed=1)
    assert [*times_before(prompt_order(10, 24, seed=1))] == [0] * 10 + [1] * 10 + [2] * 4
    alone = prompt_indices(PromptMix(prompts="open_ended"), pool[10:], 7, 7, seed=1)
    assert alone == prompt_order(3, 7, seed=1)
    with pytest.raises(ValueError, match="no problem of the kind open_ended to ask"):
        prompt_indices(MIXED, pool[:10], 8, 4, seed=1)
    with pytest.raises(ValueError, match="is a problem of the training set and of open_ended"):
        prompt_indices(MIXED, [pool[0], replace(pool[-1], problem_id=pool[0].problem_id)], 8, 4, seed=1)


@pytest.mark.parametrize(
    ("share", "per_update", "expected"),
    [(0.5, 4, 2), (0.333, 15, 5), (1 / 3, 3, 1), (0.5, 3, "write 0.3333 for 1"), (0.1, 4, "write 0.25 for 1")],
)
def test_a_share_is_a_whole_number_of_prompts(share: float, per_update: int, expected: int | str) -> None:
    mix = PromptMix(prompts="mixed", open_ended_share=share)
    if isinstance(expected, int):
        assert mix.open_ended_of(per_update) == expected
        return
    with pytest.raises(ValueError, match=expected):
        mix.open_ended_of(per_update)


def judge() -> Path:
    return made_once("reward-of-replies", reward_model)


def reward() -> ByKind:
    return ByKind(verifiable=TRUTH, open_ended=RewardModel(reward="model", path=str(judge())))


def grpo(work: Path, k: int = 4, **kwargs: Any) -> list[dict[str, Any]]:
    """Train on 8 prompts per step, 4 of each kind. There are 6 open-ended ones, so the second step repeats some."""
    options = {"reward": reward(), "prompt_mix": MIXED, "checkpointing": saving(work)} | kwargs
    return steps_of(warm_up(work, problems(10, 6), k=k, **options))


def semi_online(work: Path, k: int = 4, **kwargs: Any) -> list[dict[str, Any]]:
    keys = {"sync_every": 2, "prompts": "mixed", "min_reward_margin": 0.001, "steps": [2, 4]}
    return train_semi_online(work, k, problems=problems(10, 6), reward=reward(), **keys, **kwargs)


@dataclass
class Straight:
    """An uninterrupted training, with the kind of prompt of each rollout."""

    train: Callable[..., list[dict[str, Any]]]
    work: Path
    log: list[dict[str, Any]]
    rows: pd.DataFrame

    @property
    def answers(self) -> pd.DataFrame:
        return self.rows[self.rows["kind"] == "verifiable"]

    @property
    def replies(self) -> pd.DataFrame:
        return self.rows[self.rows["kind"] == "open_ended"]


BY_NAME = {problem.problem_id: problem for problem in problems(10, 6)}


@pytest.fixture(scope="module", params=[grpo, semi_online])
def straight(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Straight:
    work = tmp_path_factory.mktemp("mixed") / "straight"
    log = request.param(work)
    rows = rows_of(work)
    kinds = rows["problem_id"].map(lambda name: BY_NAME[name].kind)
    return Straight(request.param, work, log, rows.assign(kind=kinds))


def test_half_of_each_step_is_open_ended(straight: Straight) -> None:
    steps = straight.rows.groupby("step")["kind"].value_counts().unstack()
    assert steps.nunique().tolist() == [1, 1]  # the same at each step
    assert (steps["open_ended"] == steps["verifiable"]).all()


def test_answers_are_judged_by_the_truth(straight: Straight) -> None:
    answers = straight.answers
    assert (answers["reward"] == (answers["verdict"] == "correct")).all()
    assert "no_reference" not in set(answers["verdict"])


def test_replies_are_judged_by_the_reward_model(straight: Straight) -> None:
    assert set(straight.replies["verdict"]) == {"no_reference"}
    replies = straight.replies.dropna(subset="completion_text")
    texts = [(BY_NAME[row.problem_id].prompt, row.completion_text) for row in replies.itertuples()]
    scores = [score.value for score in Scorer(judge(), batch_size=16)(texts)]
    assert replies["reward"].tolist() == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("kind", ["verifiable", "open_ended"])
def test_rewards_and_lengths_are_logged_by_kind(straight: Straight, kind: str) -> None:
    steps = straight.rows[straight.rows["kind"] == kind].groupby("step")
    rewards = steps["reward"].mean()
    lengths = steps["token_count"].mean()
    for row in straight.log:
        assert row[f"reward/{kind}"] == pytest.approx(rewards[row["step"]], abs=1e-5)
        assert row[f"completions/mean_length/{kind}"] == pytest.approx(lengths[row["step"]])


def test_a_stopped_training_on_both_kinds_resumes_with_the_same_bits(straight: Straight, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    with terminated_after(2), pytest.raises(TrainingStoppedError):
        straight.train(stopped)
    straight.train(stopped)
    assert rows_of(stopped).equals(rows_of(straight.work))
    assert adapter_digest(stopped) == adapter_digest(straight.work)


def test_a_chain_on_both_kinds_has_the_bits_of_one_training(straight: Straight, tmp_path: Path) -> None:
    straight.train(tmp_path / "first", k=2)
    straight.train(tmp_path / "second", resume_from=tmp_path / "first/checkpoint")
    assert adapter_digest(tmp_path / "second") == adapter_digest(straight.work)


def test_both_regimes_ask_in_the_same_order(tmp_path: Path) -> None:
    grpo(tmp_path / "grpo", k=1)
    names = pd.read_parquet(tmp_path / "grpo/rollouts.parquet")["problem_id"]
    pool = problems(10, 6)
    expected = Counter(pool[i].problem_id for i in prompt_indices(MIXED, pool, 8, 8, seed=0))
    assert Counter(names) == expected + expected


BOXED = Prompt(system="Think.", template="{problem} Box it.", open_ended="Kindly: {problem}")


def test_open_ended_prompts_have_no_instructions_about_boxes() -> None:
    """The template and the system message are for verifiable problems."""
    verifiable, reply = problems(1, 1)
    assert conversation(verifiable, BOXED) == [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": f"{verifiable.prompt} Box it."},
    ]
    assert conversation(reply, BOXED) == [{"role": "user", "content": f"Kindly: {reply.prompt}"}]


def test_a_harvest_asks_both_kinds_in_their_way_and_judges_answers() -> None:
    answer, reply = rollouts_of(tiny_policy(), problems(1, 1), BOXED, Decoding(1, 1.0, 1.0, 4, 64, seed=0))
    assert "Box it." in answer.prompt_text
    assert answer.verdict != "no_reference"
    assert "Box it." not in reply.prompt_text
    assert reply.verdict == "no_reference"
