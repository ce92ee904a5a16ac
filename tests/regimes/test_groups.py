"""Groups and their loss: exact laws in float64, and TRL's DPO for one pair per prompt."""

from __future__ import annotations

import math
from itertools import product

import pandas as pd
import pytest
import torch

from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.regimes.on_policy.group_trainer import (
    Group,
    collated,
    groups,
    in_passes,
    policy_gradient_loss,
    preference_loss,
    summary,
)
from g2d.rollouts.pairs import build_pairs
from tests.frames import spelled, text_of

PROBLEMS = [Problem(name, f"What is {name}?", "1", None, None, "tests") for name in ("a", "b", "c")]


def rollouts(**rewards: str) -> pd.DataFrame:
    """Return rollouts of each named problem with these rewards, such as a="101"."""
    rows = []
    for name, of_prompt in rewards.items():
        for sample, reward in enumerate(of_prompt):
            verdict = "correct" if reward == "1" else "incorrect"
            rows.append((name, sample, f"{name}{sample}", float(reward), "stop", verdict, 5 + sample))
    columns = ["problem_id", "sample", "completion_text", "reward", "finish_reason", "verdict", "token_count"]
    return spelled(pd.DataFrame(rows, columns=columns))


def said(group: Group) -> list[str]:
    return [text_of(ids) for ids in group.completions]


def test_only_prompts_with_a_right_and_a_wrong_rollout_make_a_group() -> None:
    harvest = rollouts(a="1010", b="0000", c="1111")
    [made] = groups(harvest, "abc", which="all", seed=0)
    assert made.problem_id == "a"
    assert text_of(made.prompt) == "a"
    assert said(made) == ["a0", "a1", "a2", "a3"]
    assert sorted(made.pairs) == [(0, 1), (0, 3), (2, 1), (2, 3)]
    assert made.chosen == [0, 2]
    assert made.advantages == (0.5, -0.5, 0.5, -0.5)
    assert summary(harvest, [made]) == {
        "prompts": 3,
        "pairs": 4,
        "pairable": 1 / 3,
        "reward": 0.5,
        "completions/mean_length": 6.5,
        "completions/clipped_ratio": 0.0,
    }


@pytest.mark.parametrize("seed", range(5))
def test_one_pair_is_the_one_that_a_harvest_is_paired_by(seed: int) -> None:
    harvest = rollouts(a="10110", b="01", c="0011").sample(frac=1, random_state=seed)
    pairs = build_pairs(harvest, PROBLEMS, Prompt(), seed)
    made = groups(harvest, "abc", which="one", seed=seed)
    for one, pair in zip(made, pairs, strict=True):
        chosen, rejected = one.pairs[0]
        assert list(one.prompt) == pair["prompt_ids"]
        assert list(one.completions[chosen]) == pair["chosen_ids"]
        assert list(one.completions[rejected]) == pair["rejected_ids"]


def test_a_group_keeps_the_rollouts_of_no_pair_only_where_they_are_asked_for() -> None:
    [group] = groups(rollouts(a="1000"), "a", which="one", seed=0)
    assert len(group.completions) == 2
    assert group.advantages == (0.75, -0.25)
    [whole] = groups(rollouts(a="1000"), "a", which="one", seed=0, whole=True)
    assert said(whole) == ["a0", "a1", "a2", "a3"]
    assert whole.advantages == (0.75, -0.25, -0.25, -0.25)


def group(n_right: int, n_wrong: int) -> Group:
    n = n_right + n_wrong
    p = n_right / n
    return Group(
        problem_id="a",
        prompt=(1,),
        completions=((2,),) * n,
        pairs=tuple(product(range(n_right), range(n_right, n))),
        advantages=(1 - p,) * n_right + (-p,) * n_wrong,
    )


def test_passes_hold_whole_groups() -> None:
    made = [group(1, 1), group(1, 1), group(3, 2), group(1, 1), group(1, 2)]
    assert [*in_passes(made, 4)] == [made[:2], made[2:3], made[3:4], made[4:]]


def gradients(one: Group, beta: float, n_prompts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of GroupDPO and GRPO with respect to log-probabilities, if policy and reference are equal."""
    batch = collated([one], n_prompts, padding=0)
    gradients = []
    for loss in (
        lambda log_probs: preference_loss(log_probs, log_probs.detach(), batch["pairs"], batch["weights"], beta),
        lambda log_probs: policy_gradient_loss(log_probs, batch["advantages"], batch["share"]),
    ):
        log_probs = torch.linspace(-9, -3, len(one.completions), dtype=torch.float64, requires_grad=True)
        loss(log_probs).backward()
        assert log_probs.grad is not None
        gradients.append(log_probs.grad)
    return gradients[0], gradients[1]


@pytest.mark.parametrize(("n_right", "n_wrong"), [(1, 1), (1, 7), (4, 4), (6, 2)])
def test_at_the_reference_groupdpo_is_grpo_with_another_weight_of_the_prompt(n_right: int, n_wrong: int) -> None:
    """GRPO without the deviation weighs a prompt with n p (1 - p), here 2 / beta of it."""
    beta = 0.1
    n = n_right + n_wrong
    p = n_right / n
    preference, policy_gradient = gradients(group(n_right, n_wrong), beta, n_prompts=3)
    torch.testing.assert_close(policy_gradient, preference * n * p * (1 - p) * 2 / beta, rtol=1e-14, atol=0)
    expected = torch.tensor([-beta / 2 / n_right] * n_right + [beta / 2 / n_wrong] * n_wrong, dtype=torch.float64) / 3
    torch.testing.assert_close(preference, expected, rtol=1e-14, atol=0)


def test_the_preference_loss_is_the_mean_over_pairs_by_hand() -> None:
    one = group(1, 2)
    log_probs = torch.tensor([-2.0, -3.0, -5.0], dtype=torch.float64)
    reference = torch.tensor([-2.5, -3.0, -4.0], dtype=torch.float64)
    batch = collated([one], 1, padding=0)
    loss = preference_loss(log_probs, reference, batch["pairs"], batch["weights"], beta=0.5)
    of_first = math.log(1 + math.exp(-0.5 * (0.5 - 0.0)))
    of_second = math.log(1 + math.exp(-0.5 * (0.5 + 1.0)))
    assert loss.item() == pytest.approx((of_first + of_second) / 2, abs=1e-12)
