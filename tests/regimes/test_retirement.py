"""Prompts without signal: which are retired, and resuming with the same bits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from g2d.jobs.cost import Meter
from g2d.regimes.common.checkpoints import TrainingStoppedError
from g2d.regimes.common.prompt_choice import METRICS, PromptChoice, prompt_order
from g2d.regimes.on_policy import rollouts as on_policy
from tests.regimes.stops import terminated_after
from tests.regimes.trainings import (
    DYNAMIC,
    NO_DROPOUT,
    WARMUP,
    adapter_digest,
    easy,
    impossible,
    metric,
    rows_of,
    saving,
    semi_online,
    steps_of,
    warm_up,
)

TOKENS = 10  # per group


class Prompts:
    """Answers for a choice; groups of the `dull` problems have no signal."""

    def __init__(self, n_problems: int, dull: set[int], after: int) -> None:
        self.choice = PromptChoice(n_problems, 0, after)
        self.dull = dull

    def update(self, update: int, n: int = 2) -> tuple[list[int], dict[str, float]]:
        """Problems of an update, and its metrics other than 0."""
        numbers = self.choice.take(n, update)
        problems = [self.choice.problem(number) for number in numbers]
        for number, problem in zip(numbers, problems, strict=True):
            self.choice.observe(number, has_signal=problem not in self.dull, tokens=TOKENS, update=update)
        return problems, {name: value for name, value in self.choice.metrics(update).items() if value}

    def updates(self, numbers: range, n: int = 2) -> list[tuple[list[int], dict[str, float]]]:
        return [self.update(i, n) for i in numbers]


def test_with_signal_everywhere_the_order_is_the_order() -> None:
    problems, _ = zip(*Prompts(5, set(), after=1).updates(range(10)), strict=True)
    assert [*chain.from_iterable(problems)] == prompt_order(5, 20, seed=0)


@dataclass
class Retired:
    """Twelve updates of two of four problems, so a pass is two updates. Problem 0 teaches nothing and is retired."""

    updates: list[list[int]]
    logged: list[dict[str, float]]
    order: list[int]  # without retirement

    @property
    def asked(self) -> list[int]:
        return [*chain.from_iterable(self.updates)]

    @property
    def at(self) -> int:
        """The place at which problem 0 is asked for the second and last time."""
        first = self.order.index(0)
        return self.order.index(0, first + 1)


@pytest.fixture(scope="module")
def retired() -> Retired:
    updates, logged = zip(*Prompts(4, {0}, after=2).updates(range(12)), strict=True)
    return Retired([*updates], [*logged], prompt_order(4, 40, seed=0))


def test_a_prompt_is_asked_until_its_last_group(retired: Retired) -> None:
    assert retired.asked[: retired.at + 1] == retired.order[: retired.at + 1]


def test_a_retired_prompt_is_not_asked(retired: Retired) -> None:
    after = retired.at // 2 + 1  # updates
    for update, logged in zip(retired.updates[after:], retired.logged[after:], strict=True):
        assert 0 not in update
        assert logged["prompts/retired"] == 1


def test_the_other_prompts_keep_their_order(retired: Retired) -> None:
    asked = [problem for problem in retired.asked if problem != 0]
    assert asked[:18] == [problem for problem in retired.order if problem != 0][:18]


def test_the_tokens_of_skipped_groups_are_estimated(retired: Retired) -> None:
    logged = pd.DataFrame(retired.logged).fillna(0)
    assert logged["prompts/skipped"].sum() > 0
    assert (logged["tokens/skipped"] == TOKENS * logged["prompts/skipped"]).all()


def test_a_group_with_signal_resets_the_count() -> None:
    prompts = Prompts(1, {0}, after=2)
    prompts.update(0, n=1)
    prompts.dull = set()
    prompts.update(1, n=1)
    prompts.dull = {0}
    assert prompts.update(2, n=1) == ([0], {})
    assert prompts.choice.state()["retired"] == []


def test_if_all_prompts_are_retired_all_return() -> None:
    for problems, _ in Prompts(3, {0, 1, 2}, after=1).updates(range(3), n=3):
        assert len(problems) == 3


@given(st.integers(1, 12), st.sets(st.integers(0, 6)), st.integers(1, 3))
def test_a_saved_state_continues_the_same_order(cut: int, dull: set[int], after: int) -> None:
    expected = Prompts(7, dull, after).updates(range(12), n=3)
    first = Prompts(7, dull, after)
    updates = first.updates(range(cut), n=3)
    second = Prompts(7, dull, after)
    second.choice.restore(json.loads(json.dumps(first.choice.state())))
    assert updates + second.updates(range(cut, 12), n=3) == expected


# Nobody can answer every third problem.
PROBLEMS = easy(10)
PROBLEMS[::3] = impossible(PROBLEMS[::3])
NEVER = {"retire": {"after": 1000}}


@pytest.mark.parametrize("sync_every", [1, 4])
def test_semi_online_dpo_resumes_with_the_same_bits(
    tmp_path: Path, sync_every: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped run and a chain with a K within an interval draw the same prompts: these depend only on the syncs."""
    monkeypatch.setattr(on_policy, "TOGETHER", 3 * 4 * 4)  # three updates
    changes = {"sync_every": sync_every, "lora": NO_DROPOUT, "problems": PROBLEMS, **DYNAMIC}
    meter = Meter("tests", "train_semi_online_dpo")
    straight = semi_online(tmp_path / "straight", meter=meter, **changes)
    assert sum(metric(straight, "prompts/retired")) > 0
    assert meter.tokens_generated == rows_of(tmp_path / "straight")["token_count"].sum()
    for last in (2, 5):
        with terminated_after(last - 1), pytest.raises(TrainingStoppedError):
            semi_online(tmp_path / "stopped", **changes)
    semi_online(tmp_path / "to-2", k=2, **changes)
    chained = semi_online(tmp_path / "chained", resume_from=tmp_path / "to-2/checkpoint", **changes)
    assert semi_online(tmp_path / "stopped", **changes) == chained == straight
    assert (
        adapter_digest(tmp_path / "stopped")
        == adapter_digest(tmp_path / "chained")
        == adapter_digest(tmp_path / "straight")
    )
    pd.testing.assert_frame_equal(rows_of(tmp_path / "stopped"), rows_of(tmp_path / "straight"))


def without_choice(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A log without the metrics of a choice of prompts."""
    rows = [row.copy() for row in log]
    for row in rows:
        for name in METRICS:
            row.pop(name, None)
    return rows


def test_in_semi_online_dpo_a_choice_that_retires_nothing_changes_nothing(tmp_path: Path) -> None:
    log = semi_online(tmp_path / "never", **NEVER)
    assert without_choice(log) == semi_online(tmp_path / "without")
    assert adapter_digest(tmp_path / "never") == adapter_digest(tmp_path / "without")
    pd.testing.assert_frame_equal(rows_of(tmp_path / "never"), rows_of(tmp_path / "without"))


def grpo(work: Path, k: int = 6, meter: Meter | None = None, resume_from: Path | None = None, **changes: Any) -> Any:
    warmup = type(WARMUP).model_validate(WARMUP.model_dump() | changes)
    job = {"meter": meter or Meter("tests", "train_grpo"), "resume_from": resume_from, "checkpointing": saving(work)}
    return steps_of(warm_up(work, PROBLEMS, k=k, warmup=warmup, **job))


@dataclass
class Grpo:
    """An uninterrupted GRPO that retires prompts."""

    changes: dict[str, Any]
    work: Path
    log: list[dict[str, Any]]
    tokens_generated: int


@pytest.fixture(scope="module", params=[{}, {"updates_per_generation": 2}], ids=["fresh", "two updates"])
def straight(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Grpo:
    changes = request.param | DYNAMIC
    work = tmp_path_factory.mktemp("grpo") / "straight"
    meter = Meter("tests", "train_grpo")
    log = grpo(work, meter=meter, **changes)
    return Grpo(changes, work, log, meter.tokens_generated)


def test_grpo_retires_prompts_and_has_whole_steps(straight: Grpo) -> None:
    assert sum(row.get("prompts/retired", 0) for row in straight.log) > 0
    assert len(rows_of(straight.work)) == 6 * 16


def test_grpo_pays_for_the_tokens_that_it_generated(straight: Grpo) -> None:
    assert straight.tokens_generated == rows_of(straight.work)["token_count"].sum()


def test_a_stopped_grpo_resumes_with_the_same_bits(straight: Grpo, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    with terminated_after(2), pytest.raises(TrainingStoppedError):
        grpo(stopped, **straight.changes)
    assert grpo(stopped, **straight.changes) == straight.log
    assert adapter_digest(stopped) == adapter_digest(straight.work)
    pd.testing.assert_frame_equal(rows_of(stopped), rows_of(straight.work))


def test_a_chain_of_grpo_has_the_same_bits_and_pays_for_its_part(straight: Grpo, tmp_path: Path) -> None:
    grpo(tmp_path / "to-2", k=2, **straight.changes)
    meter = Meter("tests", "train_grpo")
    chained = grpo(tmp_path / "chained", resume_from=tmp_path / "to-2/checkpoint", meter=meter, **straight.changes)
    assert chained == straight.log
    assert adapter_digest(tmp_path / "chained") == adapter_digest(straight.work)
    assert meter.tokens_generated == rows_of(tmp_path / "chained")["token_count"].sum()


def test_in_grpo_a_choice_that_retires_nothing_changes_nothing(tmp_path: Path) -> None:
    log = grpo(tmp_path / "never", **NEVER)
    assert without_choice(log) == grpo(tmp_path / "without")
    assert adapter_digest(tmp_path / "never") == adapter_digest(tmp_path / "without")
