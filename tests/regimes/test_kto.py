"""KTO: its rollouts with order and weights, the paper's loss, and resuming."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import pandas as pd
import pytest

from g2d.jobs.files import read_json, write_json
from g2d.policies import Policy
from g2d.policies.settings import Lora
from g2d.problems import Problem
from g2d.regimes.offline.kto import Judged, Kto, judged_rollouts, train_kto, weights
from tests.frames import spelled, text_of
from tests.models import adapted, completion_logprobs, tiny_policy
from tests.regimes.losses import losses
from tests.regimes.test_resume import assert_resumes
from tests.regimes.test_training import pairs

PROBLEMS = [Problem(name, f"What is {name}?", "1", None, None, "tests") for name in ("a", "b", "c", "d")]


def harvest_of(*rows: tuple[str, int, str, float, str]) -> pd.DataFrame:
    """Return rollouts from problem, sample, text, reward and finish reason."""
    frame = pd.DataFrame(rows, columns=["problem_id", "sample", "completion_text", "reward", "finish_reason"])
    frame["prompt_text"] = "What is " + frame["problem_id"] + "?"
    return spelled(frame.assign(verdict=frame["reward"].map({1: "correct", 0: "incorrect"})))


def harvest() -> pd.DataFrame:
    """Rollouts a: a right text twice, a wrong one, both cut off; b: wrong; c: right; d: wrong, and right cut off."""
    return harvest_of(
        ("a", 0, "A", 1.0, "stop"),
        ("a", 1, "A", 1.0, "stop"),
        ("a", 2, "A wrong", 0.0, "stop"),
        ("a", 3, "A \\boxed{1} cut", 1.0, "length"),
        ("a", 4, "A wrong cut", 0.0, "length"),
        ("b", 0, "B wrong", 0.0, "stop"),
        ("c", 0, "C", 1.0, "stop"),
        ("d", 0, "D \\boxed{1} cut", 1.0, "length"),
        ("d", 1, "D wrong", 0.0, "stop"),
    )


def said(which: Literal["all", "pairable"], seed: int = 0, rollouts: pd.DataFrame | None = None) -> list[str]:
    rows = judged_rollouts(harvest() if rollouts is None else rollouts, PROBLEMS, which, seed)
    texts = [text_of(row["completion_ids"]) for row in rows]
    for row, text in zip(rows, texts, strict=True):
        assert text_of(row["prompt_ids"]) == f"What is {text[0].lower()}?"
        assert row["label"] is ("wrong" not in text)
    return texts


def test_it_learns_from_every_rollout_but_right_ones_that_were_cut_off() -> None:
    of_pairable = ["A", "A", "A wrong", "A wrong cut", "D wrong"]
    assert sorted(said("all")) == sorted([*of_pairable, "B wrong", "C"])
    assert sorted(said("pairable")) == of_pairable


def test_the_order_depends_only_on_the_seed() -> None:
    assert said("all", rollouts=harvest()[::-1]) == said("all")
    assert [text for text in said("all") if text[0] in "AD"] == said("pairable")
    assert {said("all", seed)[0] for seed in range(100)} == set(said("all"))  # any may be the first


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("reward == 0", "of 4 it has 0 that are right and ended by themselves and 4 wrong"),
        ("reward == 1", "of 5 it has 3 that are right and ended by themselves and 0 wrong"),
        ("problem_id == 'd'", "of 2 it has 0 that are right and ended by themselves and 1 wrong"),
    ],
)
def test_a_harvest_without_a_right_or_without_a_wrong_rollout_is_refused(query: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judged_rollouts(harvest().query(query), PROBLEMS, "all", 0)
    with pytest.raises(ValueError, match="rollouts of 'd', which is not among the 3 problems given"):
        judged_rollouts(harvest(), PROBLEMS[:3], "all", 0)


def test_weights_by_hand() -> None:
    """The paper's example (section 4.2): with ten times as many wrong ones, a right one weighs 10 to 13.33."""
    assert weights(100, 1000, 1.0) == (10.0, 1.0)
    assert weights(100, 1000, 4 / 3) == pytest.approx((13.333, 1.0), abs=1e-3)
    assert weights(300, 100, 1.0) == (1.0, 3.0)


def rows(n: int = 12) -> list[Judged]:
    """Two right ones, then a wrong one, and so on: n of them right and n / 2 wrong."""
    made = []
    for i, pair in enumerate(pairs(n)):
        made.append(Judged(prompt_ids=pair["prompt_ids"], completion_ids=pair["chosen_ids"], label=True))
        if i % 2:
            made.append(Judged(prompt_ids=pair["prompt_ids"], completion_ids=pair["rejected_ids"], label=False))
    return made


def kto(work: Path, *, lora: Lora | None = None, start: Policy | None = None, **settings: Any) -> list[dict[str, Any]]:
    values = {"regime": "kto", "learning_rate": 2e-3, "gradient_accumulation_steps": 2, "epochs": 3} | settings
    return losses(train_kto, rows(), Kto.model_validate(values), work, lora=lora, start=start)


def test_its_first_loss_is_half_the_mean_weight_and_it_learns(tmp_path: Path) -> None:
    """12 right and 6 wrong: a wrong one weighs 2. The first step takes 8 rows in their order, 2 of them wrong."""
    assert [row["label"] for row in rows()[:8]].count(False) == 2
    log = kto(tmp_path, epochs=10)
    assert log[0]["loss"] == pytest.approx((6 * 1 + 2 * 2) / 8 / 2, rel=1e-4)
    assert (log[0]["rewards/chosen"], log[0]["rewards/rejected"], log[0]["kl"]) == (0, 0, 0)
    first, last = (sum(row["loss"] for row in part) for part in (log[:3], log[-3:]))  # the same rows in the same steps
    assert last < 0.95 * first


def test_its_second_loss_is_the_papers_with_the_row_before_as_kl_sample(tmp_path: Path) -> None:
    """Equations 6 and 7: z0 is the mean log-ratio, at least 0, of the completions of a micro-batch. Each follows the
    prompt of the next row, the last one the first prompt."""
    beta, no_dropout = 0.5, Lora(dropout=0.0)
    settings: dict[str, Any] = {"beta": beta, "lr_schedule": "constant", "learning_rate": 2e-2, "lora": no_dropout}
    kto(tmp_path / "one", max_steps=1, **settings)
    log = kto(tmp_path / "two", max_steps=2, **settings)
    moved = replace(tiny_policy(), adapter=str(tmp_path / "one/adapter"))

    def ratio(prompt_of: Judged, completion_of: Judged) -> float:
        ids = prompt_of["prompt_ids"], completion_of["completion_ids"]
        return sum(completion_logprobs(moved, *ids)) - sum(completion_logprobs(tiny_policy(), *ids))

    losses, shifts = [], []
    for batch in (rows()[8:12], rows()[12:16]):
        z0 = max(0.0, mean(ratio(row, batch[i - 1]) for i, row in enumerate(batch)))
        signs = [1 if row["label"] else -1 for row in batch]
        values = [1 / (1 + math.exp(-s * beta * (ratio(row, row) - z0))) for s, row in zip(signs, batch, strict=True)]
        losses.append(mean((1 if s > 0 else 2) * (1 - value) for s, value in zip(signs, values, strict=True)))
        shifts.append(z0)
    assert log[1]["kl"] == pytest.approx(mean(shifts), abs=1e-4)
    assert log[1]["loss"] == pytest.approx(mean(losses), rel=1e-3)
    assert abs(log[1]["loss"] - log[0]["loss"]) > 0.01  # it has moved, so the formula was tried away from its start


def test_a_stopped_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    log = assert_resumes(kto, tmp_path, 3, 5)  # at the end of an epoch, and inside the next
    assert [row["step"] for row in log] == list(range(1, 10))


def test_from_the_warmed_up_policy_that_is_the_reference_also_after_a_stop(tmp_path: Path) -> None:
    start = adapted(tiny_policy(), tmp_path / "warm", std=0.05)
    config = tmp_path / "warm/adapter_config.json"
    write_json(config, read_json(config) | {"lora_dropout": 0.0})  # dropout would differ from the first step
    straight = assert_resumes(partial(kto, start=start), tmp_path, 4)
    assert (straight[0]["rewards/chosen"], straight[0]["rewards/rejected"]) == pytest.approx((0, 0), abs=1e-5)
    assert straight[-1]["rewards/chosen"] != 0
