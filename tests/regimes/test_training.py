"""The real TRL trainers on a tiny model: chains are exact, a run ends at step K, DPO starts at its reference."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from snakemake.iocontainers import InputFiles

from g2d.jobs.files import write_jsonl
from g2d.policies import load_base, load_tokenizer
from g2d.policies.model_keys import Lora
from g2d.problems.synthetic import generate
from g2d.regimes.common.online import Sampler, completions_tokens
from g2d.regimes.common.prompt_choice import prompt_order
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.common.trainers import write_metrics
from g2d.regimes.offline.dpo import Dpo, read_dpo, train_dpo
from g2d.report.provenance import steps_without_loss
from g2d.rewards.controls import Random
from g2d.rollouts.pairs import subsample
from tests.models import adapted, completion_logprobs, same_logits, tiny_policy, two_ends_policy
from tests.regimes.trainings import DPO, WARMUP, adapter_digest, dpo, easy, metric, pairs, warm_up


@pytest.mark.parametrize("n_problems", [16, 10])  # K=2 (16 prompts) at the end of an epoch, and beyond it
def test_a_chain_equals_one_uninterrupted_run(tmp_path: Path, n_problems: int) -> None:
    problems = easy(n_problems)
    straight = warm_up(tmp_path / "straight", problems, k=4)
    warm_up(tmp_path / "first", problems, k=2)
    chained = warm_up(tmp_path / "second", problems, k=4, resume_from=tmp_path / "first/checkpoint")
    assert adapter_digest(tmp_path / "second") == adapter_digest(tmp_path / "straight")
    assert adapter_digest(tmp_path / "first") != adapter_digest(tmp_path / "straight")
    assert metric(chained, "step") == [1, 2, 3, 4]
    assert metric(chained, "reward") == metric(straight, "reward")
    assert completions_tokens(chained, 16, after_step=2) < completions_tokens(chained, 16, after_step=0)


def test_a_step_of_so_many_prompts_draws_g_completions_of_each(tmp_path: Path) -> None:
    warmup = WARMUP.model_copy(update={"prompts_per_step": 3})
    warm_up(tmp_path, easy(10), k=1, warmup=warmup, group_size=4)
    drawn = pd.read_parquet(tmp_path / "rollouts.parquet")
    assert drawn.groupby("problem_id").size().tolist() == [4, 4, 4]


def test_a_horizon_beyond_k_keeps_the_learning_rate_up(tmp_path: Path) -> None:
    """A chain needs a fixed horizon: a 4-step cosine differs from the first 4 steps of a 6-step one."""
    problems = generate("arithmetic", "train", 20, seed=0)
    chained = warm_up(tmp_path / "chain", problems, k=2)
    alone = warm_up(tmp_path / "alone", problems, k=2, warmup=WARMUP.model_copy(update={"schedule": "per_k"}))
    assert metric(chained, "learning_rate")[-1] == pytest.approx(1e-3 * (1 + math.cos(math.pi / 6)) / 2)
    assert metric(alone, "learning_rate")[-1] == pytest.approx(1e-3 * (1 + math.cos(math.pi / 2)) / 2)


def test_a_run_that_misses_k_fails(tmp_path: Path) -> None:
    problems = generate("arithmetic", "train", 20, seed=0)
    warm_up(tmp_path / "first", problems, k=4)
    with pytest.raises(RuntimeError, match="is at step 4: nothing is left to train up to step 2"):
        warm_up(tmp_path / "second", problems, k=2, resume_from=tmp_path / "first/checkpoint")


def test_a_prompt_longer_than_the_context_is_refused_before_training(tmp_path: Path) -> None:
    short, long = generate("arithmetic", "train", 2, seed=0)
    long = replace(long, prompt="1 + " * 200)
    with pytest.raises(
        ValueError, match=rf"problem {long.problem_id}: its \d+ tokens and max_completion_length=\d+ exceed"
    ):
        warm_up(tmp_path, [short, long], k=2)


def test_a_completion_may_end_by_any_token_that_the_model_declares(tmp_path: Path) -> None:
    """The trainer's mask of truncated completions and the record of rollouts agree."""
    base = two_ends_policy()
    masking = WARMUP.model_copy(update={"mask_truncated": True})
    log = warm_up(tmp_path, easy(10), base=base, k=2, warmup=masking)
    frame = pd.read_parquet(tmp_path / "rollouts.parquet")
    truncated = frame.finish_reason == "length"
    short = frame.token_count < WARMUP.max_completion_length
    assert short.any()
    assert not (short & truncated).any()
    assert not (short & (frame.verdict == "truncated")).any()
    assert metric(log, "completions/clipped_ratio") == pytest.approx(truncated.groupby(frame.step).mean().tolist())


def test_a_truncated_completion_that_ends_with_the_padding_token_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    padding = load_tokenizer(tiny_policy()).pad_token_id

    def draw(self: Sampler, prompts: list[list[int]], names: list[str]) -> tuple[list[list[int]], None]:
        return [[5] * (WARMUP.max_completion_length - 1) + [padding] for _ in prompts], None

    monkeypatch.setattr(Sampler, "sample", draw)
    masking = WARMUP.model_copy(update={"mask_truncated": True})
    log = warm_up(tmp_path, easy(10), k=1, warmup=masking, reward=Random(reward="random"))
    assert set(pd.read_parquet(tmp_path / "rollouts.parquet").finish_reason) == {"length"}
    assert metric(log, "completions/clipped_ratio") == [1]
    assert metric(log, "grad_norm") == [0]


def test_pairs_are_matched_to_the_file_with_the_fewest(tmp_path: Path) -> None:
    for n in (5, 3, 4):
        write_jsonl(tmp_path / f"{n}.jsonl", pairs(n))
    job = TrainingJob(tiny_policy(), None, Dpo(match_pairs_to="min"), lora=Lora(), seed=1, work=tmp_path)
    own = str(tmp_path / "5.jsonl")
    others = [str(tmp_path / "4.jsonl"), str(tmp_path / "3.jsonl"), own]
    assert read_dpo(job, InputFiles(fromdict={"pairs": own, "matched": others})) == subsample(pairs(5), 3, seed=1)
    assert read_dpo(job, InputFiles(fromdict={"pairs": own, "matched": []})) == pairs(5)


# Where policy and reference agree: ln 2, and (1 / 2 beta)^2 at beta .1.
FIRST_LOSS = {"sigmoid": math.log(2), "ipo": 25.0}


@pytest.mark.parametrize(("loss", "at_once"), [("sigmoid", True), ("ipo", False)])
def test_the_nll_of_m0_is_added_to_the_first_loss(tmp_path: Path, loss: str, at_once: bool) -> None:
    """Compare with the mean over chosen tokens, per micro-batch, by hand; with all pairs of a group or one."""
    n = 8
    weight = 2.0
    shape = {"per_device_batch_size": n if at_once else 1, "gradient_accumulation_steps": 1 if at_once else n}
    settings = Dpo.model_validate({"loss": loss, "nll_weight": weight, "max_steps": 1, **shape})
    log = train_dpo(TrainingJob(tiny_policy(), pairs(n), settings, lora=Lora(), seed=0, work=tmp_path)).log
    scores = [completion_logprobs(tiny_policy(), pair["prompt_ids"], pair["chosen_ids"]) for pair in pairs(n)]
    batches = [[*chain.from_iterable(scores)]] if at_once else scores
    nll = -mean(map(mean, batches))
    assert nll > 0.1
    assert log[0]["loss"] == pytest.approx(FIRST_LOSS[loss] + weight * nll, rel=1e-3)


def test_a_loss_that_is_not_finite_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes null in the metrics, and the page warns. transformers would log a mean of earlier losses."""
    from torch.nn.functional import logsigmoid

    def fails_later(values: Any) -> Any:
        """The untrained policy has a margin of 0 in the first step."""
        return logsigmoid(values).where(values == 0, math.nan)

    monkeypatch.setattr("torch.nn.functional.logsigmoid", fails_later)
    dpo = Dpo.model_validate({"max_steps": 4})
    log = train_dpo(TrainingJob(tiny_policy(), pairs(), dpo, lora=Lora(), seed=0, work=tmp_path)).log
    finite = [*map(math.isfinite, metric(log, "loss"))]
    assert finite[0] and not finite[-1]
    write_metrics(tmp_path / "metrics.jsonl", log)
    assert steps_without_loss(tmp_path / "metrics.jsonl") == finite.count(False)


@given(n_problems=st.integers(1, 30), n_prompts=st.integers(0, 100), seed=st.integers(0, 2**31))
def test_every_epoch_has_every_problem_once_and_a_longer_order_extends_a_shorter(
    n_problems: int, n_prompts: int, seed: int
) -> None:
    order = prompt_order(n_problems, n_prompts, seed)
    assert len(order) == n_prompts
    for start in range(0, n_prompts - n_problems + 1, n_problems):
        assert sorted(order[start : start + n_problems]) == list(range(n_problems))
    assert prompt_order(n_problems, n_prompts + 7, seed)[:n_prompts] == order


def test_without_data_a_training_from_the_warm_up_leaves_pi_k(tmp_path: Path) -> None:
    start = adapted(tiny_policy(), tmp_path / "start", std=0.1, seed=0)
    train_dpo(TrainingJob(tiny_policy(), [], Dpo(start="warmup"), lora=Lora(), seed=0, work=tmp_path, start=start))
    assert same_logits(replace(tiny_policy(), adapter=str(tmp_path / "adapter")), start)


def test_the_loss_of_bfloat16_weights_is_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: M0 in bfloat16, the adapter in float32, autocast. The bfloat16 number nearest to ln 2 is .6914."""
    monkeypatch.setattr("g2d.regimes.common.trainers.load_base", lambda policy: load_base(policy).to(torch.bfloat16))
    [row] = dpo(tmp_path, settings=DPO.model_copy(update={"max_steps": 1}), precision="bfloat16")
    assert row["loss"] == pytest.approx(math.log(2), abs=1e-6)
