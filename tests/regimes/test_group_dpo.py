"""GroupDPO on a harvest: training data, equality with TRL's DPO for one pair per prompt, and resuming."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from g2d.policies import Policy
from g2d.policies.settings import Lora
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.regimes.offline.group_dpo import GroupDpo, harvested_groups, train_group_dpo
from g2d.regimes.offline.groups import Group
from tests.regimes.losses import losses
from tests.regimes.test_groups import PROBLEMS, rollouts
from tests.regimes.test_resume import assert_resumes
from tests.regimes.test_training import pairs

VALUES: dict[str, Any] = {"regime": "group_dpo", "learning_rate": 5e-3, "prompts_per_update": 4, "epochs": 2}
NO_DROPOUT = Lora(dropout=0.0)


def test_it_trains_on_every_pair_of_the_pairable_prompts_that_were_harvested() -> None:
    harvest = rollouts(a="1100", b="0000")  # c was not asked
    [group] = harvested_groups(harvest, PROBLEMS, GroupDpo.model_validate(VALUES), 0)
    assert (group.problem_id, len(group.pairs)) == ("a", 4)
    with pytest.raises(ValueError, match="no prompt of the 1 harvested has both a right and a wrong rollout"):
        harvested_groups(rollouts(b="0000"), PROBLEMS, GroupDpo.model_validate(VALUES), 0)
    with pytest.raises(ValueError, match="rollouts of 'c', which is not among the 2 problems given"):
        harvested_groups(rollouts(c="01"), PROBLEMS[:2], GroupDpo.model_validate(VALUES), 0)


def in_groups(n: int, base: Policy | None = None) -> list[Group]:
    return [
        Group(
            problem_id=str(i),
            prompt=tuple(pair["prompt_ids"]),
            completions=(tuple(pair["chosen_ids"]), tuple(pair["rejected_ids"])),
            pairs=((0, 1),),
            advantages=(0.5, -0.5),
        )
        for i, pair in enumerate(pairs(n, base))
    ]


def group_dpo(work: Path, groups: list[Group], lora: Lora | None = None, **changes: Any) -> list[dict[str, Any]]:
    return losses(train_group_dpo, groups, GroupDpo.model_validate(VALUES | changes), work, lora=lora)


def test_with_one_pair_a_prompt_it_is_the_dpo_of_trl(tmp_path: Path) -> None:
    """One step on all pairs: the same loss, gradient, margins, entropy and tokens."""
    dpo = Dpo(per_device_batch_size=8, gradient_accumulation_steps=1, max_steps=2, learning_rate=5e-3)
    theirs = losses(train_dpo, pairs(8), dpo, tmp_path / "trl", lora=NO_DROPOUT)
    ours = group_dpo(tmp_path / "ours", in_groups(8), NO_DROPOUT, prompts_per_update=8, max_steps=2)
    assert len(ours) == len(theirs) == 2
    for name in ("loss", "grad_norm", "rewards/margins", "rewards/chosen", "logps/rejected", "entropy", "num_tokens"):
        assert [row[name] for row in ours] == pytest.approx([row[name] for row in theirs], rel=1e-3, abs=1e-6), name
    assert ours[1]["rewards/margins"] != 0


def test_its_first_loss_is_ln_2_and_it_takes_as_many_steps_as_its_epochs(tmp_path: Path) -> None:
    log = group_dpo(tmp_path, in_groups(10))
    assert [row["step"] for row in log] == [1, 2, 3, 4, 5]  # 2 x 10 prompts, 4 a step
    assert log[0]["loss"] == pytest.approx(math.log(2), abs=0.01)
    assert sum(row["pairs"] for row in log) == 20


def test_a_stopped_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    assert_resumes(lambda work: group_dpo(work, in_groups(10)), tmp_path, 2, 4)


def test_an_offline_regime_has_no_loss_of_grpo() -> None:
    with pytest.raises(ValueError, match="grpo_weight: "):
        GroupDpo.model_validate(VALUES | {"grpo_weight": 0.1})
