"""Verdicts at several token budgets from one generation: what a generation with that budget would have given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from g2d.problems.prompts import Prompt
from g2d.problems.synthetic import generate
from g2d.rollouts.draw import draw_rollouts, evaluation_decoding, sampling
from g2d.rollouts.engine import Decoding, Request
from g2d.rollouts.rollout import BUDGET_VERDICTS, TEXTLESS, at_budgets, read_rollouts, to_frame, write_rollouts
from g2d.rollouts.settings import Evaluation, Harvest
from g2d.rollouts.transformers_engine import TransformersEngine
from tests.models import tiny_policy

GREEDY = evaluation_decoding(Evaluation(max_completion_length=12, token_budgets=[3, 7, 12]))
SAMPLED = replace(sampling(Harvest(samples_per_prompt=3, max_completion_length=12), seed=0), token_budgets=(3, 7, 12))


@pytest.mark.parametrize("decoding", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_prefix_is_what_a_smaller_budget_generates(decoding: Decoding) -> None:
    engine = TransformersEngine.of(tiny_policy())
    asked = [
        Request(p.problem_id, engine.render([{"role": "user", "content": p.prompt}]))
        for p in generate("arithmetic", "train", 20, seed=0)
    ]
    whole = [completion for drawn in engine.generate(asked, decoding) for completion in drawn]
    for budget in (3, 7):
        short = engine.generate(asked, replace(decoding, max_completion_length=budget, token_budgets=()))
        for cut, completion in zip([one for drawn in short for one in drawn], whole, strict=True):
            assert cut.text == completion.prefixes.get(budget, completion.text)
            assert (budget in completion.prefixes) == (completion.token_count > budget)
    assert all(12 not in completion.prefixes for completion in whole)


def test_verdicts_are_those_of_a_smaller_budget(tmp_path: Path) -> None:
    problems = generate("arithmetic", "test", 12, seed=0)
    drawn = draw_rollouts(tiny_policy(), problems, Prompt(), GREEDY)
    write_rollouts(tmp_path / "eval.parquet", drawn)
    table = at_budgets(read_rollouts(tmp_path / "eval.parquet", (*TEXTLESS, BUDGET_VERDICTS)))
    assert list(table) == [3, 7, 12]
    for budget, verdicts in table.items():
        alone = replace(GREEDY, max_completion_length=budget, token_budgets=())
        assert list(verdicts) == [r.verdict for r in draw_rollouts(tiny_policy(), problems, Prompt(), alone)]


def test_without_budgets_there_are_none(tmp_path: Path) -> None:
    drawn = draw_rollouts(
        tiny_policy(), generate("arithmetic", "test", 2, seed=0), Prompt(), replace(GREEDY, token_budgets=())
    )
    assert [rollout.budget_verdicts for rollout in drawn] == [None, None]
    write_rollouts(tmp_path / "eval.parquet", drawn)
    assert at_budgets(read_rollouts(tmp_path / "eval.parquet")) == {}
    assert at_budgets(to_frame([])) == {}


def test_files_of_before_there_were_budgets_are_read(tmp_path: Path) -> None:
    problems = generate("arithmetic", "test", 2, seed=0)
    old = to_frame(draw_rollouts(tiny_policy(), problems, Prompt(), GREEDY)).drop(columns=BUDGET_VERDICTS)
    old.to_parquet(tmp_path / "old.parquet")
    frame = read_rollouts(tmp_path / "old.parquet")
    assert frame[BUDGET_VERDICTS].isna().all()
    recorded = [name for name in TEXTLESS if name in old]  # no clusters
    pd.testing.assert_frame_equal(read_rollouts(tmp_path / "old.parquet", TEXTLESS)[recorded], old[recorded])


def test_rows_of_different_budgets_do_not_belong_together() -> None:
    rows = pd.DataFrame({BUDGET_VERDICTS: [json.dumps({8: "correct"}), json.dumps({9: "correct"})]})
    assert json.loads(rows[BUDGET_VERDICTS][0]) == {"8": "correct"}
    with pytest.raises(ValueError, match="different token budgets"):
        at_budgets(rows)
