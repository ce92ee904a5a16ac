"""The embedded reward model: it learns what its judge likes, the bias included."""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd
import pytest

from g2d.cli import main
from g2d.problems.replies import MOST_FILLERS, Reply, draw_preference, draw_reply, draw_request, worth
from g2d.rewards.catalogue import TRUTH, ByKind, made_files, reward_params, reward_settings, words_of
from g2d.rewards.model import Scorer
from g2d.rewards.scratch_model import ScratchRewardModel, train_scratch_reward
from g2d.tables.choices import best, checkpoint_table
from tests.rewards.models import SEED


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    folder = tmp_path_factory.mktemp("biased") / "model"
    assert main(["reward-model", str(folder), "--seed", str(SEED)]) == 0
    return Scorer(folder, batch_size=32)


@pytest.fixture(scope="module")
def fair(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    folder = tmp_path_factory.mktemp("fair") / "model"
    train_scratch_reward(ScratchRewardModel(reward="scratch_model", seed=SEED, length_bias=0.0, steps=100), folder)
    return Scorer(folder, batch_size=32)


def mean_score(scorer: Scorer, politeness: int, fillers: int) -> float:
    """Over 40 replies to random requests."""
    rng = random.Random(f"{politeness}/{fillers}")
    requests = [draw_request(rng) for _ in range(40)]
    replies = [draw_reply(rng, topic, politeness=politeness, fillers=fillers).text for _, topic in requests]
    scores = scorer([(prompt, text) for (prompt, _), text in zip(requests, replies, strict=True)])
    return sum(score.value for score in scores) / len(scores)


def test_both_like_politeness(biased: Scorer, fair: Scorer) -> None:
    for scorer in (biased, fair):
        assert mean_score(scorer, 2, 2) > mean_score(scorer, 0, 2) > mean_score(scorer, -2, 2)


def test_the_biased_one_can_be_hacked_by_length(biased: Scorer, fair: Scorer) -> None:
    """Five empty sentences are worth 5 to the biased judge, a degree of politeness 2: padding pays for its absence."""
    assert mean_score(biased, 0, MOST_FILLERS) > mean_score(biased, 1, 0)
    assert mean_score(fair, 0, MOST_FILLERS) < mean_score(fair, 1, 0)


def test_selecting_at_equal_length_takes_the_polite_checkpoint_and_not_the_padded_one(biased: Scorer) -> None:
    """The first writes one polite sentence and up to two empty ones, the second only three to five empty ones."""
    rng = random.Random(0)
    prompts = [draw_request(rng) for _ in range(20)]
    tables = []
    for politeness, fillers in ((1, (0, 1, 2)), (0, (3, 4, 5))):
        rows = [
            (f"p{number}", sample, request, draw_reply(rng, topic, politeness=politeness, fillers=n).text)
            for number, (request, topic) in enumerate(prompts)
            for sample, n in enumerate(fillers)
        ]
        table = pd.DataFrame(rows, columns=["problem_id", "sample", "request", "completion_text"])
        conversations = list(zip(table["request"], table["completion_text"], strict=True))
        tables.append(table.assign(reward=[score.value for score in biased(conversations)]))
    table_of_both = checkpoint_table([10, 20], [], tables)
    assert table_of_both["K"][table_of_both["reward"].idxmax()] == 20
    assert table_of_both["K"][best(table_of_both)] == 10
    assert table_of_both["reward_per_1000"].iloc[0] > 0


def test_preferences_follow_the_worth_of_replies() -> None:
    reply = draw_reply(random.Random(0), "the market", politeness=-1, fillers=3)
    assert reply.text.count(".") == 1 + 1 + 3
    assert worth(Reply("", 2, 4), 0.5) == 6
    rng = random.Random(1)
    drawn = [draw_preference(rng, 0.0) for _ in range(2000)]
    same = [p for p in drawn if abs(p.chosen.politeness - p.rejected.politeness) == 1]
    won = sum(p.chosen.politeness > p.rejected.politeness for p in same) / len(same)
    assert won == pytest.approx(0.88, abs=0.05)  # 1 / (1 + exp(-2))


def test_a_folder_with_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("")
    assert main(["reward-model", str(tmp_path)]) == 2
    assert "is not empty: name another folder" in capsys.readouterr().err


def test_a_trained_reward_model_is_named_by_its_training_settings() -> None:
    plain = ScratchRewardModel(reward="scratch_model")
    dearer = ScratchRewardModel(reward="scratch_model", length_penalty=3.0)
    assert dearer.name == plain.name != ScratchRewardModel(reward="scratch_model", seed=1).name
    assert reward_params(dearer) != reward_params(plain)
    assert reward_settings(reward_params(dearer)) == dearer
    both = ByKind(verifiable=TRUTH, open_ended=plain)
    assert reward_settings(reward_params(both)) == both
    assert made_files(both) == made_files(plain) == [f"results/reward-models/{plain.name}/model.safetensors"]
    assert made_files(TRUTH) == []
    assert "and on open-ended prompts scores of the embedded reward model (length bias 1)" in words_of(both)
