"""GRPO and semi-online DPO on another reward: the same bits after a stop, new coins at every visit, truth beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pandas as pd
import pytest

from g2d.jobs.cost import Meter
from g2d.problems.prompts import Prompt
from g2d.regimes.common import checkpoints
from g2d.regimes.common.checkpoints import TrainingStoppedError
from g2d.regimes.common.trainers import write_metrics
from g2d.rewards import registry
from g2d.rewards.controls import Random, Wrong
from g2d.rewards.python import PythonReward
from g2d.rewards.registry import TRUTH
from g2d.rewards.reward import Context, Judgement, Reward, VerifiedCompletion
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import (
    COLUMNS,
    LEFT_OUT,
    OF_REWARDS,
    merge_parts,
    part_of,
    read_rollouts,
    to_frame,
    write_rollouts,
)
from g2d.rollouts.sample import with_rewards
from g2d.settings import Section, key
from g2d.stages.sample_rollouts import generate_rollouts
from g2d.verifier.verifier_keys import PythonVerifier
from tests.frames import group
from tests.models import rollouts_of, tiny_policy
from tests.regimes.stops import terminated_after
from tests.regimes.trainings import EVERY_STEP, adapter_digest, easy, metric, rows_of, semi_online, warm_up

HARVEST = Decoding(8, 1.0, 1.0, 12, 64, seed=7)
COIN = Random(reward="random")
WRONG = Wrong(reward="wrong")


def grpo(work: Path, reward: Section = COIN, k: int = 4, **kwargs: object) -> pd.DataFrame:
    """Train on 8 of 10 prompts per step, so the second step repeats some."""
    warm_up(work, easy(10), k=k, reward=reward, checkpointing=EVERY_STEP, **kwargs)
    return pd.read_parquet(work / "rollouts.parquet")


@pytest.fixture(scope="module")
def on_coins(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Path]:
    """An uninterrupted GRPO with random rewards: its rollouts and folder."""
    work = tmp_path_factory.mktemp("coins") / "straight"
    return grpo(work), work


def test_a_stopped_grpo_with_random_rewards_resumes_with_the_same_rewards(
    on_coins: tuple[pd.DataFrame, Path], tmp_path: Path
) -> None:
    rows, work = on_coins
    with terminated_after(2), pytest.raises(TrainingStoppedError):
        grpo(tmp_path / "stopped")
    assert grpo(tmp_path / "stopped").equals(rows)
    assert adapter_digest(tmp_path / "stopped") == adapter_digest(work)


def test_a_chain_of_grpo_with_random_rewards_has_the_same_rewards(
    on_coins: tuple[pd.DataFrame, Path], tmp_path: Path
) -> None:
    rows, work = on_coins
    first = grpo(tmp_path / "first", k=2)
    second = grpo(tmp_path / "second", resume_from=tmp_path / "first/checkpoint")
    assert pd.concat([first, second], ignore_index=True).equals(rows)
    assert adapter_digest(tmp_path / "second") == adapter_digest(work)


def test_random_rewards_are_not_the_truth(on_coins: tuple[pd.DataFrame, Path]) -> None:
    rows, _ = on_coins
    assert set(rows["reward"]) == {0, 1}
    assert set(rows["reward_status"]) == {"judged"}
    assert ((rows["verdict"] == "correct") != (rows["reward"] == 1)).any()


def test_the_next_visit_of_a_prompt_has_other_coins(on_coins: tuple[pd.DataFrame, Path]) -> None:
    rows, _ = on_coins
    coins = rows.pivot_table(index=["problem_id", "sample"], columns="step", values="reward")
    again = coins[coins.notna().sum(axis=1) > 1]
    assert len(again) > 10
    assert again.nunique(axis=1).max() == 2


def test_semi_online_dpo_with_random_rewards_resumes_with_the_same_rewards(tmp_path: Path) -> None:
    semi_online(tmp_path / "straight", sync_every=2, reward=COIN)
    with terminated_after(3), pytest.raises(TrainingStoppedError):
        semi_online(tmp_path / "stopped", sync_every=2, reward=COIN)
    semi_online(tmp_path / "stopped", sync_every=2, reward=COIN)
    straight = rows_of(tmp_path / "straight")
    assert rows_of(tmp_path / "stopped").equals(straight)
    assert adapter_digest(tmp_path / "stopped") == adapter_digest(tmp_path / "straight")
    assert ((straight["verdict"] == "correct") != (straight["reward"] == 1)).any()


def begins_with_first(folder: Path) -> PythonVerifier:
    file = folder / "mine.py"
    file.write_text("def judge(problem, completion):\n    return completion.startswith('First')\n")
    return PythonVerifier(source="python", file=str(file))


@pytest.mark.parametrize("train", [grpo, semi_online])
def test_a_verifier_of_the_users_judges_the_rollouts_of_a_training(tmp_path: Path, train: Callable[..., Any]) -> None:
    train(tmp_path / "work", reward=TRUTH, k=2, verifier=begins_with_first(tmp_path))
    rows = pd.read_parquet(tmp_path / "work/rollouts.parquet")
    with_text = rows.dropna(subset="completion_text")
    right = with_text["completion_text"].str.startswith("First")
    assert right.nunique() == 2
    assert ((with_text["verdict"] == "correct") == right).all()
    assert ((rows["verdict"] == "correct") == (rows["reward"] == 1)).all()


@pytest.mark.parametrize("reward", [COIN, WRONG])
def test_a_harvest_is_judged_alike_when_it_is_drawn_in_parts_and_later(tmp_path: Path, reward: Section) -> None:
    problems = easy(6)

    def judged(problems: list, rows: pd.DataFrame | None = None) -> pd.DataFrame:
        if rows is None:
            decoding = Decoding(4, 1.0, 1.0, 12, 64, seed=0)
            rows = to_frame(rollouts_of(tiny_policy(), problems, Prompt(), decoding, token_ids=True))
        return with_rewards(rows, problems, reward, seed=0, stream="harvest")

    whole = judged(problems)
    assert set(whole["reward"]) == {0, 1}
    files = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    write_rollouts(files[0], judged(part_of(problems, 1, 2)))
    write_rollouts(files[1], judged(part_of(problems, 2, 2)))
    write_rollouts(tmp_path / "merged.parquet", merge_parts(files, problems))
    write_rollouts(tmp_path / "whole.parquet", whole)
    assert (tmp_path / "merged.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    drawn = read_rollouts(tmp_path / "whole.parquet").drop(columns=list(OF_REWARDS), errors="ignore")
    later = judged(problems, drawn)
    assert list(later["reward"]) == list(whole["reward"])


def test_a_harvest_has_other_random_rewards_than_the_training(tmp_path: Path) -> None:
    problems = easy(10)
    drawn = []
    for problem in problems:
        drawn += group(problem.problem_id, 3, 8)
    write_rollouts(tmp_path / "drawn.parquet", drawn)
    files = {"input": {"judged": [tmp_path / "drawn.parquet"]}, "output": SimpleNamespace(rollouts=tmp_path / "judged")}
    generate_rollouts(SimpleNamespace(**files), Meter("tests", "harvest_rollouts"), problems, HARVEST, COIN)
    of_harvest = with_rewards(to_frame(drawn), problems, COIN, seed=7, stream="harvest")
    of_training = with_rewards(to_frame(drawn), problems, COIN, seed=7, stream="training")
    assert list(read_rollouts(tmp_path / "judged")["reward"]) == list(of_harvest["reward"])
    assert list(of_harvest["reward"]) != list(of_training["reward"])


def test_a_file_that_the_verifier_alone_judged_has_the_columns_it_always_had(tmp_path: Path) -> None:
    drawn = rollouts_of(tiny_policy(), easy(2), Prompt(), Decoding(2, 1.0, 1.0, 12, 64, seed=0))
    write_rollouts(tmp_path / "a.parquet", drawn)
    columns = list(pd.read_parquet(tmp_path / "a.parquet").columns)
    assert columns == [name for name in COLUMNS if name not in LEFT_OUT]
    assert list(read_rollouts(tmp_path / "a.parquet").columns) == columns
    write_rollouts(tmp_path / "b.parquet", read_rollouts(tmp_path / "a.parquet"))
    assert (tmp_path / "b.parquet").read_bytes() == (tmp_path / "a.parquet").read_bytes()


class Numbers(Section):
    reward: Literal["numbers"] = key("numbers", "Numbers.")
    numbers: list[Any] = key([], "Of the samples.")


@pytest.mark.parametrize("train", [grpo, lambda work, reward: semi_online(work, 2, sync_every=2, reward=reward)])
def test_a_reward_without_a_number_for_anything_leaves_no_policy_and_a_part_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It trained with loss 0 before, and wrote NaN, which is not JSON, into metrics.jsonl."""

    def score(settings: Numbers, attempts: Sequence[VerifiedCompletion], context: Context) -> list[Judgement]:
        judgements = []
        for attempt in attempts:
            number = settings.numbers[attempt.sample % len(settings.numbers)]
            judgements.append(Judgement(number and float(number)))
        return judgements

    monkeypatch.setitem(registry.REWARDS, "numbers", Reward("numbers", 1, Numbers, score, str, binary=False))
    logs = []
    monkeypatch.setattr(checkpoints, "require_rewards", logs.append)
    monkeypatch.setattr(checkpoints, "ENOUGH_TO_TELL", 2)
    for number, numbers in enumerate([["nan", None], [1.0, None]]):
        train(tmp_path / str(number), reward=Numbers(numbers=numbers))
    nothing, half = logs
    with pytest.raises(RuntimeError, match=r"reward of this training: no finite number for any .* \(1 not_finite\)"):
        write_metrics(tmp_path / "metrics.jsonl", nothing)
    write_metrics(tmp_path / "metrics.jsonl", half)
    assert "no number for some completions, which are left out (0.5 not_finite)" in caplog.text
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert (row["rewards/judged"], row["rewards/not_finite"]) == (0.5, 0.5)


def test_diverged_values_are_null_in_the_metrics(tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.jsonl", [{"loss": math.nan, "step": 1, "grad_norm": math.inf, "train": "x"}])
    assert (tmp_path / "metrics.jsonl").read_text() == '{"loss": null, "step": 1, "grad_norm": null, "train": "x"}\n'


@pytest.mark.parametrize("train", [grpo, semi_online])
def test_a_reward_that_fails_on_everything_is_counted_and_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Any
) -> None:
    """A training that ends without any number leaves no policy, as above; one generation does not stop it."""
    file = tmp_path / "broken.py"
    file.write_text("def reward(completions):\n    return [1 / 0]\n")
    keys = {"reward": PythonReward(reward="python", file=str(file)), "k": 2}
    train(tmp_path / "work", **keys)
    rows = pd.read_parquet(tmp_path / "work/rollouts.parquet")
    assert set(rows["reward_status"]) == {"error"}
    assert rows["reward"].isna().all()
    monkeypatch.setattr(checkpoints, "ENOUGH_TO_TELL", 2)
    with pytest.raises(
        RuntimeError, match=r"no finite number .* \(1 error; ZeroDivisionError: division by zero\): mend"
    ):
        train(tmp_path / "told", **keys)


@pytest.mark.parametrize("train", [grpo, semi_online])
def test_a_function_gets_the_plain_ids_at_every_visit(tmp_path: Path, train: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def reward(completions, problem_ids):\n"
        f"    with open({str(tmp_path / 'seen')!r}, 'a') as seen:\n"
        "        print(*problem_ids, sep='\\n', file=seen)\n"
        "    return [len(text) for text in completions]\n"
    )
    train(tmp_path / "work", reward=PythonReward(reward="python", file=str(file)), k=4)
    seen = (tmp_path / "seen").read_text().split()
    assert set(seen) <= {problem.problem_id for problem in easy(10)}
    assert len(seen) > 2 * 4 * len(set(seen)) / 2  # some problem was asked again


@pytest.mark.parametrize("binary", [True, False])
def test_a_margin_of_a_scalar_reward_holds_for_values_of_0_and_1(tmp_path: Path, binary: bool) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def reward(completions):\n    return [float(place % 2) for place in range(len(completions))]\n")
    reward = PythonReward(reward="python", file=str(file), binary=binary)
    log = semi_online(tmp_path / "work", 2, reward=reward, min_reward_margin=2.0)
    assert metric(log, "pairable") == [float(binary)] * 2
