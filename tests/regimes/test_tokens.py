"""Training uses exactly the sampled tokens of prompt and completion, with several chat templates.

Rendering the text again would differ. A finished answer of DeepSeek-R1-Distill loses its thinking, one of Qwen3 gets an
empty thinking block, and a truncated one gets an end of turn.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from g2d.policies import load_model
from g2d.policies.model_keys import Lora
from g2d.policies.record import end_tokens
from g2d.problems import Problem
from g2d.problems.prompts import Example, Prompt, conversation, conversation_ids, render
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.regimes.offline.rft import Rft, chosen_completions, right_completions, train_rft
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo, train_semi_online_dpo
from g2d.rewards.registry import reward_settings
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import require_own_tokens
from tests.models import adapted, rollouts_of
from tests.regimes.harvests import ENDS, TEMPLATES, Harvest, policy_of, sampled, trained
from tests.regimes.trainings import metric


@pytest.fixture(scope="module", params=[*TEMPLATES, *map("{} hostile".format, TEMPLATES)])
def harvest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Harvest:
    template, _, hostile = request.param.partition(" ")
    return Harvest(template, tmp_path_factory.mktemp(template), hostile=bool(hostile))


trained_on = pytest.mark.parametrize(
    "harvest", ["deepseek_r1_distill", "qwen3 hostile", "gemma hostile"], indirect=True, scope="module"
)


def test_the_rollouts_are_of_every_kind(harvest: Harvest) -> None:
    """Finished with and without thinking, cut off with and without thinking; end tokens are included."""
    ends = end_tokens(harvest.base, harvest.tokenizer)
    closing = harvest.tokenizer.convert_tokens_to_ids("</think>")
    kinds = set()
    last = set()
    for row in harvest.rollouts.itertuples():
        ids = tuple(row.completion_ids)
        assert (tuple(row.prompt_ids), ids) == harvest.sampled[row.problem_id, row.sample]
        assert (ids[-1] in ends) == (row.finish_reason == "stop")
        assert len(ids) == row.token_count
        kinds.add((row.finish_reason, closing in ids))
        last.add(ids[-1])
    assert kinds >= {("stop", True), ("stop", False), ("length", False)}
    assert last >= ends


def test_special_tokens_of_a_prompt_are_those_of_its_template(harvest: Harvest) -> None:
    tokenizer = harvest.tokenizer
    unknown = tokenizer.unk_token_id
    examples = [Example(problem="1", answer="1")] * len(harvest.prompt.examples)
    harmless = harvest.prompt.model_copy(update={"examples": examples})

    def parsed(problem: Problem, prompt: Prompt) -> list[int]:
        shown = render(tokenizer, conversation(problem, prompt))
        return list(tokenizer(shown, add_special_tokens=False)["input_ids"])

    def special(ids: list[int]) -> list[int]:
        added = tokenizer.added_tokens_decoder
        return [token for token in ids if token in added and added[token].special and token != unknown]

    for problem in harvest.problems:
        ids = harvest.rollouts.query("problem_id == @problem.problem_id")["prompt_ids"].iloc[0].tolist()
        assert ids == conversation_ids(tokenizer, conversation(problem, harvest.prompt))
        assert special(ids) == special(parsed(replace(problem, prompt="1"), harmless))
        if harvest.hostile:
            hostile_texts = 2 + problem.prompt.count(ENDS)  # two in the examples
            assert ids.count(unknown) >= len(ENDS.split()) * hostile_texts
            assert len(ids) > len(parsed(problem, Prompt()))
        else:
            assert ids == parsed(problem, harvest.prompt)


def test_greedy_tokens_are_the_likeliest_after_those_before_them(harvest: Harvest) -> None:
    greedy = Decoding(1, 0.0, 1.0, 12, 64, seed=0)
    (row,) = rollouts_of(harvest.base, harvest.problems[-1:], harvest.prompt, greedy, token_ids=True)
    assert row.prompt_ids is not None
    assert row.completion_ids is not None
    with torch.inference_mode():
        logits = load_model(harvest.base)(torch.tensor([[*row.prompt_ids, *row.completion_ids]])).logits[0]
    assert tuple(logits.argmax(-1)[len(row.prompt_ids) - 1 : -1].tolist()) == row.completion_ids


JOB: dict[str, Any] = {"lora": Lora(), "seed": 0}
ONE_PASS = {"epochs": 1, "per_device_batch_size": 4, "gradient_accumulation_steps": 1}
FINISHED = "reward == 1 and finish_reason == 'stop'"


@trained_on
def test_rft_trains_on_finished_right_completions_as_sampled(harvest: Harvest, tmp_path: Path) -> None:
    settings = Rft.model_validate({"regime": "rft", **ONE_PASS})
    examples = right_completions(harvest.rollouts, harvest.problems)
    with trained() as seen:
        train_rft(TrainingJob(harvest.base, examples, settings, work=tmp_path, **JOB))
    right = harvest.rollouts.query(FINISHED).drop_duplicates(["problem_id", "completion_text"])
    assert sorted(seen) == harvest.of(right)


@trained_on
def test_rft_trains_on_chosen_completions_as_sampled(harvest: Harvest, tmp_path: Path) -> None:
    settings = Rft.model_validate({"regime": "rft", "examples": "chosen", **ONE_PASS})
    with trained() as seen:
        train_rft(TrainingJob(harvest.base, chosen_completions(harvest.pairs), settings, work=tmp_path, **JOB))
    assert sorted(seen) == harvest.of_pairs("chosen")


@trained_on
def test_dpo_from_the_warm_up_trains_on_its_pairs_as_sampled(harvest: Harvest, tmp_path: Path) -> None:
    start = adapted(harvest.base, tmp_path / "start", std=0.02)
    settings = Dpo.model_validate(ONE_PASS | {"start": "warmup"})
    with trained() as seen:
        train_dpo(TrainingJob(harvest.base, harvest.pairs, settings, work=tmp_path / "work", start=start, **JOB))
    assert sorted(seen) == harvest.of_pairs("chosen", "rejected")


@trained_on
def test_semi_online_dpo_and_its_grpo_term_train_on_the_tokens_that_were_sampled(
    harvest: Harvest, tmp_path: Path
) -> None:
    """All rollouts of the prompts with a pair; one that was cut off has no end of turn that pushes the gradient."""
    keys = {"regime": "semi_online_dpo", "steps": [2], "responses": 8, "prompts_per_update": 2, "grpo_weight": 0.1}
    settings = SemiOnlineDpo.model_validate(keys | {"max_completion_length": 12})
    asked = {"prompt": harvest.prompt, "reward": reward_settings({"reward": "random", "p": 0.5})} | JOB
    with sampled() as drawn, trained() as seen:
        log = train_semi_online_dpo(
            TrainingJob(harvest.base, harvest.problems, settings, k=2, work=tmp_path, **asked)
        ).log
    assert sum(metric(log, "pairable")) == 2
    assert sorted(seen) == sorted(drawn)
    ends = end_tokens(harvest.base, harvest.tokenizer)
    cut_off = [tokens for _, tokens in seen if len(tokens) == 12 and tokens[-1] not in ends]
    assert cut_off
    for tokens in cut_off:
        assert ends.isdisjoint(tokens)


@trained_on
def test_grpo_asks_with_the_tokens_that_everything_else_shows(harvest: Harvest, tmp_path: Path) -> None:
    shape = {"group_sizes": [4], "per_device_batch_size": 16, "gradient_accumulation_steps": 1}
    settings = Warmup.model_validate(shape | {"steps": [1], "max_completion_length": 4})
    job = TrainingJob(
        harvest.base, harvest.problems, settings, k=1, group_size=4, prompt=harvest.prompt, work=tmp_path, **JOB
    )
    with sampled() as seen:
        log = train_grpo(job).log
    prompts, completions = zip(*seen, strict=True)
    shown, _ = zip(*harvest.sampled.values(), strict=True)
    assert set(prompts) == set(shown)
    opening, closing = harvest.tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    unfinished = 0
    for tokens in completions:
        opened = harvest.template == "deepseek_r1_distill" or opening in tokens
        unfinished += opened and closing not in tokens
    assert log[0]["verdicts/unfinished_thinking"] == unfinished / len(seen)


def test_tokens_of_another_tokenizer_are_refused(harvest: Harvest, tmp_path: Path) -> None:
    other = policy_of("gemma" if "gemma" not in harvest.base.base else "qwen3", tmp_path)
    with pytest.raises(ValueError, match="not the tokenizer that the rollouts were drawn with"):
        require_own_tokens(harvest.rollouts["tokenizer_sha256"], other, "the rollouts")
    with pytest.raises(ValueError, match="not the tokenizer that the pairs were drawn with"):
        require_own_tokens([pair["tokenizer_sha256"] for pair in harvest.pairs], other, "the pairs")
