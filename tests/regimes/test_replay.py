"""Experience replay and RLEP in GRPO: which completions are trained on again, with which weights, and what it costs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from g2d.analysis.dynamics import steps_of
from g2d.jobs.cost import Meter
from g2d.policies.policy import tokenizer_sha256
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.replay import Completion, ReplayBuffer, Successes
from g2d.regimes.grpo.trainer import Grpo
from g2d.regimes.run.training_rollouts import read_ages
from g2d.rollouts.rollout import Rollout, write_rollouts
from tests.models import tiny_policy
from tests.regimes.test_off_policy import adapter, gradient, log_probabilities, rollouts, warm_up
from tests.regimes.test_resume import assert_resumes
from tests.regimes.test_training import easy

BUFFER: dict[str, Any] = {"replay": {"buffer": 12, "share": 0.5}, "schedule": "per_k", "prompts_per_step": 4}
RLEP: dict[str, Any] = {"replay": {"successes": 2, "harvest_step": 0}, "group_sizes": [4]}


def test_a_buffer_holds_the_last_groups_and_gives_any_of_them() -> None:
    """2 of 4 groups of G=2 are replayed; the first generation draws all 4, the others the next 2 prompts each."""
    buffer = ReplayBuffer(5, 2, 2, seed=0)
    data = [{"name": f"p{n}"} for n in range(20)]
    chosen = Counter[int]()
    for generation in range(6):
        rows = buffer.begin(data[:8], generation, data)
        fresh = [0, 1, 2, 3] if generation == 0 else [2 + 2 * generation, 3 + 2 * generation]
        held = {group.row for group in buffer.groups}
        assert held == {*range(max(0, fresh[0] - 5), fresh[0])}
        assert [row["name"] for row in rows][: 2 * len(fresh)] == [f"p{n}" for n in fresh for _ in range(2)]
        again = [int(row["name"][1:]) for row in rows][2 * len(fresh) :: 2]
        assert len({*again} & held) == len(again) == 4 - len(fresh)
        assert buffer.replayed == {
            place: Completion([number, i], [-float(number)] * 2)
            for place, (number, i) in enumerate([(n, i) for n in again for i in range(2)], start=2 * len(fresh))
        }
        chosen.update(again)
        numbers = [int(row["name"][1:]) for row in rows]
        buffer.add(generation, [[n, i % 2] for i, n in enumerate(numbers)], [[-float(n)] * 2 for n in numbers])
    assert len(chosen) > 3


def test_every_stored_group_is_replayed_alike() -> None:
    buffer, data = ReplayBuffer(8, 2, 1, seed=0), [{} for _ in range(10)]
    buffer.begin(data[:8], 0, data)
    buffer.add(0, [[n] for n in range(8)], [[0.0]] * 8)
    chosen = Counter[int]()
    for generation in range(1, 1001):
        buffer.begin(data[:8], generation, [{}] * 10_000)
        chosen.update(completion.ids[0] for completion in buffer.replayed.values())
    # 250 each of 2,000; the standard deviation of a count is sqrt(1000 x 1/4 x 3/4) = 13.7
    assert max(abs(chosen[n] - 250) for n in range(8)) < 5 * 13.7


@pytest.mark.parametrize(
    ("keys", "weight"),
    [
        ({"correction_cap": 1.1}, lambda ratios: 0.0 if (w := math.exp(sum(ratios))) > 1.1 else w),
        ({"ratio": "none"}, lambda ratios: 1.0),
    ],
    ids=["sequence_mask", "none"],
)
def test_loss_and_gradient_by_hand(tmp_path: Path, watch: Any, keys: dict[str, Any], weight: Any) -> None:
    """The loss is -mean over completions of w A / |y| sum_t log pi; w is the ratio to the sampling policy."""
    sampled: dict[str, list[float]] = {}
    replayed: list[Any] = []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        log_probs = log_probabilities(trainer, model, inputs).double()
        gain, value = torch.zeros((), dtype=torch.float64), 0.0
        for row, name in enumerate(names(inputs)):
            now = log_probs[row, : int(inputs["completion_mask"][row].sum())]
            before = sampled.setdefault(name, now.tolist())
            weights = torch.tensor(weight([a - b for a, b in zip(now.tolist(), before, strict=True)])).expand(len(now))
            advantage = inputs["advantages"][row].double()
            gain = gain + advantage * (weights * now).mean()
            value += float(advantage * weights.mean())
            replayed.extend([weights] if before != now.tolist() else [])
        n = len(inputs["advantages"]) * trainer.args.gradient_accumulation_steps
        assert loss.item() == pytest.approx(-value / n, rel=1e-4, abs=1e-6)
        expected = gradient(model, -gain / n)
        assert (gradient(model, loss) - expected).norm() <= 1e-4 * expected.norm()

    watch(seen)
    warm_up(tmp_path, BUFFER | keys, 3, group_size=4)
    assert len(replayed) >= 8
    assert all((weights == 1).all() for weights in replayed) == (keys.get("ratio") == "none")


def names(inputs: dict[str, Any]) -> list[str]:
    prompts, completions = (
        [ids[mask.bool()].tolist() for ids, mask in zip(inputs[f"{of}_ids"], inputs[f"{of}_mask"], strict=True)]
        for of in ("prompt", "completion")
    )
    return [f"{prompt} {completion}" for prompt, completion in zip(prompts, completions, strict=True)]


def test_the_cost_counts_drawn_tokens_and_the_log_trained_tokens(tmp_path: Path) -> None:
    meter = Meter("job", "train_grpo")
    log = warm_up(tmp_path, BUFFER, 4, group_size=2, meter=meter)
    frame = rollouts(tmp_path)
    warmup = Warmup.model_validate({"steps": [4]} | BUFFER)
    assert frame.groupby("step").size().tolist() == [8, 4, 4, 4]
    assert warmup.prompts_asked(4, 2) == len(frame) // 2 == 4 + 3 * 2
    assert frame.groupby("step").problem_id.unique().map(len).sum() == 10
    assert meter.tokens_generated == frame.token_count.sum()
    drawn = [sum(row["tokens/drawn"] for row in log[: step + 1]) for step in range(4)]
    assert drawn == frame.groupby("step").token_count.sum().cumsum().tolist()
    trained = sum(row["completions/mean_length"] * 8 for row in log)
    assert log[-1]["num_tokens"] > trained > meter.tokens_generated
    assert [row["replay/staleness"] for row in log[:2]] == [0, 0.5]  # 2 of 4 groups, of the update before
    assert list(steps_of(log, read_ages(tmp_path / "rollouts.parquet")).staleness) == [
        row["replay/staleness"] for row in log
    ]


def test_a_stopped_run_and_a_chain_equal_an_uninterrupted_run(tmp_path: Path) -> None:
    keys = BUFFER | {"updates_per_generation": 2, "iterations": 2, "schedule": "chain", "horizon": 16, "steps": [16]}
    log = assert_resumes(lambda work: warm_up(work, keys, 16), tmp_path, 8, after=4)
    assert log[4]["replay/staleness"] == 2  # 2 of 4 groups, of the generation before, 4 updates ago
    warm_up(tmp_path / "first", keys, 8)
    warm_up(tmp_path / "second", keys, 16, resume_from=tmp_path / "first/checkpoint")
    assert adapter(tmp_path / "second") == adapter(tmp_path / "straight")


def harvest(folder: Path, right: dict[str, list[list[int]]]) -> Path:
    """Rollouts with these right completions, and a wrong one of every problem beside them."""
    same: dict[str, Any] = dict.fromkeys(field.name for field in fields(Rollout))
    same |= {"token_count": 1, "finish_reason": "stop", "reward": 0.0, "prompt_ids": (1,)}
    same["tokenizer_sha256"] = tokenizer_sha256(tiny_policy().base)
    rows = [
        Rollout(**same | {"problem_id": problem, "sample": n, "verdict": verdict, "completion_ids": tuple(ids)})
        for problem, successes in right.items()
        for n, (verdict, ids) in enumerate([("incorrect", [5]), *(("correct", ids) for ids in successes)])
    ]
    folder.mkdir(exist_ok=True)
    write_rollouts(folder / "harvest.parquet", rows)
    return folder / "harvest.parquet"


RIGHT = [[48, 48, n] for n in range(60, 64)]


def of_every_other_problem(folder: Path) -> dict[str, Any]:
    problems = [problem.problem_id for problem in easy(20)]
    return {"group_size": 4, "replayed_harvest": harvest(folder, dict.fromkeys(problems[::2], RIGHT))}


def test_successes_are_right_ones_of_the_problem_that_fit(tmp_path: Path) -> None:
    frame = pd.read_parquet(harvest(tmp_path, {"a": [[1], [2], [3, 3, 3]], "b": [], "c": [[4]]}))
    successes = Successes(frame, 2, 2, 4, seed=0)
    groups = ["a@1", "b@1", "c@1", "a@2"]
    rows = [{"problem_id": group[0], "group": group} for group in groups for _ in range(4)]
    assert successes.begin(rows, 0, []) is rows
    replayed = {row: completion.ids for row, completion in successes.replayed.items()}
    assert {*replayed} == {2, 3, 11, 14, 15}  # the last places of their groups
    assert replayed[11] == [4]
    assert sorted([replayed[2], replayed[3]]) == sorted([replayed[14], replayed[15]]) == [[1], [2]]


def test_successes_are_in_their_groups_and_in_no_bill(tmp_path: Path, watch: Any) -> None:
    """With G=4 and 2 replayed completions, advantages are over all four, and all weights are 1."""
    groups: dict[str, list[tuple[list[int], float]]] = {}

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        assert "importance_sampling_ratio" not in inputs
        for row, name in enumerate(names(inputs)):
            ids = inputs["completion_ids"][row][inputs["completion_mask"][row].bool()].tolist()
            groups.setdefault(name.split("] [")[0], []).append((ids, float(inputs["advantages"][row])))

    watch(seen)
    meter = Meter("job", "train_grpo")
    log = warm_up(tmp_path / "run", RLEP, 2, meter=meter, **of_every_other_problem(tmp_path / "harvest"))
    frame = rollouts(tmp_path / "run")
    with_success = {problem.problem_id for problem in easy(20)[::2]}
    drawn = frame.groupby("problem_id").size().to_dict()
    assert {*drawn.values()} == {2, 4}
    assert drawn == {name: 2 if name in with_success else 4 for name in drawn}
    assert meter.tokens_generated == frame.token_count.sum() == sum(row["tokens/drawn"] for row in log)
    assert len(groups) == len(drawn) == 8
    replayed = [[advantage for ids, advantage in group if ids in RIGHT] for group in groups.values()]
    assert sorted(map(len, replayed)) == sorted(4 - n for n in drawn.values())
    for group in groups.values():
        assert len(group) == 4
        assert sum(advantage for _, advantage in group) == pytest.approx(0, abs=1e-5)
    assert any(advantages and advantages[0] != 0 for advantages in replayed)


def test_with_successes_stopped_on_the_way_it_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    kwargs: dict[str, Any] = {**of_every_other_problem(tmp_path / "harvest")}
    keys = RLEP | {"horizon": 4, "steps": [4]}
    assert_resumes(lambda work: warm_up(work, keys, 4, **kwargs), tmp_path, 2)
