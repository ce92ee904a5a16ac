"""GRPO samples from the policy without dropout, with the configured decoding."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
import torch

from g2d.policies import PolicyRecord, load_base, load_tokenizer
from g2d.policies.model_keys import Lora
from g2d.problems.prompts import Prompt, conversation, conversation_ids
from g2d.regimes.common.online import Sampler
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.common.trainers import with_own_adapter
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.grpo.trainer import Grpo
from g2d.rollouts import transformers_engine
from g2d.rollouts.engine import Decoding
from g2d.rollouts.transformers_engine import TransformersEngine
from g2d.rollouts.weights_check import WrongWeightsError
from tests.models import tiny_policy
from tests.regimes.trainings import easy, log_probabilities

WARMUP = Warmup(steps=[0, 2, 4], horizon=4, learning_rate=1e-2, max_completion_length=12, beta=0.1)
SURE = Lora(dropout=0.0)
NOISY = Lora(dropout=0.5)


def warm_up(
    work: Path, base: PolicyRecord, k: int, lora: Lora = SURE, keys: dict[str, Any] | None = None, **job: Any
) -> Any:
    warmup = WARMUP.model_copy(update=keys or {})
    job |= {"prompt": Prompt(), "group_size": 2, "seed": 0, "work": work, "lora": lora}
    train_grpo(TrainingJob(base, easy(20), warmup, k=k, **job))
    return pd.read_parquet(work / "rollouts.parquet")


def changed(folder: Path, file: str, **values: Any) -> PolicyRecord:
    """Return M0 with further values in one of its JSON files."""
    base = tiny_policy()
    shutil.copytree(base.base, folder)
    recorded = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(recorded | values))
    return replace(base, base=str(folder))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    work = tmp_path_factory.mktemp("plain")
    return work, warm_up(work, tiny_policy(), 2)


def test_samplers_of_m0_are_not_inherited(plain: Any, tmp_path: Path) -> None:
    samplers = {
        **{"min_p": 0.99, "temperature": 0.1, "top_p": 0.1, "top_k": 1, "repetition_penalty": 9.0},
        **{"typical_p": 0.1, "epsilon_cutoff": 0.5, "eta_cutoff": 0.5, "no_repeat_ngram_size": 1},
        "suppress_tokens": [*range(4, 40)],
        "bad_words_ids": [[token] for token in range(4, 40)],
        "min_new_tokens": 12,
    }
    base = changed(tmp_path / "base", "generation_config.json", do_sample=True, **samplers)
    pd.testing.assert_frame_equal(warm_up(tmp_path / "work", base, 2), plain[1])


def test_a_completion_has_the_random_numbers_of_its_place(plain: Any) -> None:
    """The first ones are M0's, since the adapter begins as nothing."""
    frame = plain[1][plain[1].step == 1]
    engine = TransformersEngine.of(tiny_policy())
    by_id = {problem.problem_id: problem for problem in easy(20)}
    prompts = [conversation_ids(engine.tokenizer, conversation(by_id[name], Prompt())) for name in frame.problem_id]
    decoding = Decoding(1, WARMUP.temperature, 1.0, WARMUP.max_completion_length, batch_size=5, seed=0)
    drawn = engine.sample(prompts, [f"grpo/0/{place}" for place in range(len(prompts))], decoding)
    assert [*map(len, drawn)] == frame.token_count.tolist()
    texts = engine.tokenizer.batch_decode(drawn, skip_special_tokens=True)
    recorded = frame.completion_text.dropna()
    assert recorded.tolist() == texts[: len(recorded)]
    assert recorded.nunique() == 2


def test_a_model_that_is_decoded_in_closed_batches_draws_the_same(
    plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers_engine, "is_supported", lambda model: False)
    pd.testing.assert_frame_equal(warm_up(tmp_path, tiny_policy(), 2), plain[1])


def test_drawing_leaves_weights_and_random_numbers_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Sampler.sample
    seen = []

    def draw(self: Sampler, prompts: list[list[int]], names: list[str]) -> Any:
        model = self.trainer.model
        state = torch.get_rng_state()
        before = copy.deepcopy(model.state_dict())
        drawn = original(self, prompts, names)
        assert torch.equal(torch.get_rng_state(), state)
        assert model.training
        for name, weights in model.state_dict().items():
            assert torch.equal(weights, before[name]), name
        for layer in model.modules():
            assert not getattr(layer, "merged", False)
        seen.append(self.trainer.state.global_step)
        return drawn

    monkeypatch.setattr(Sampler, "sample", draw)
    warm_up(tmp_path, tiny_policy(), 2, NOISY)
    assert seen == [0, 1]


def test_an_adapter_that_is_not_merged_stops_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peft.tuners.tuners_utils.BaseTuner.merge_adapter", lambda *_, **__: None)
    with pytest.raises(WrongWeightsError, match="the policy after 3 steps: transformers in float32 answers with"):
        warm_up(tmp_path, tiny_policy(), 4)


@pytest.mark.parametrize("half", [False, True])
def test_decoding_in_half_precision_uses_the_trainers_forward_pass(tmp_path: Path, half: bool) -> None:
    """accelerate wraps the forward pass of PEFT's model in autocast, except in float32."""
    model = with_own_adapter(load_base(tiny_policy()), SURE, seed=0)
    model = model.bfloat16() if half else model
    job = TrainingJob(tiny_policy(), easy(2), WARMUP, lora=SURE, seed=0, work=tmp_path)
    sampler = Sampler(job, easy(2), Decoding(1, 0.8, 1.0, 12, 4, 0), every=1, at_once=4, live=True)
    sampler.trainer = SimpleNamespace(model=model, processing_class=load_tokenizer(tiny_policy()))
    with sampler.engine() as engine:
        assert cast(TransformersEngine, engine).model is (model if half else model.get_base_model())


@pytest.mark.parametrize("applied", [False, True])
def test_rollouts_are_drawn_without_dropout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: bool) -> None:
    """Rollouts of step 3 do not depend on its dropout, merged or applied as on a GPU."""
    if applied:
        monkeypatch.setattr(
            "g2d.regimes.common.trainers.load_base", lambda policy: load_base(policy).to(torch.bfloat16)
        )
    warm_up(tmp_path / "start", tiny_policy(), 2)
    start = tmp_path / "start/checkpoint"
    sure = warm_up(tmp_path / "sure", tiny_policy(), 3, SURE, resume_from=start)
    noisy = warm_up(tmp_path / "noisy", tiny_policy(), 3, NOISY, resume_from=start)
    pd.testing.assert_frame_equal(sure, noisy)


def test_ratios_are_to_the_policy_without_dropout(tmp_path: Path, watch: Any) -> None:
    apart: list[float] = []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        if trainer.state.global_step == 2:  # first update of the second generation: nothing is stale yet
            with torch.no_grad():
                log_probs = log_probabilities(trainer, model.eval(), inputs)
            model.train()
            apart.append(((log_probs - inputs["old_per_token_logps"]) * inputs["completion_mask"]).abs().max().item())

    watch(seen)
    warm_up(tmp_path, tiny_policy(), 4, NOISY, {"updates_per_generation": 2})
    assert len(apart) == 4
    assert max(apart) < 1e-4


def test_on_policy_ratios_are_1(tmp_path: Path, watch: Any) -> None:
    """The gradient step has dropout, and its policy is its own denominator."""
    ratios: list[bool] = []
    watch(lambda trainer, model, inputs, loss: ratios.append("old_per_token_logps" in inputs))
    warm_up(tmp_path, tiny_policy(), 2, NOISY)
    assert ratios == [False] * 8


def test_the_reference_is_m0_without_dropout(tmp_path: Path, watch: Any) -> None:
    base = changed(tmp_path / "base", "config.json", attention_dropout=0.5)
    apart: list[float] = []

    def seen(trainer: Grpo, model: Any, inputs: dict[str, Any], loss: torch.Tensor) -> None:
        with torch.no_grad(), model.eval().disable_adapter():
            log_probs = log_probabilities(trainer, model, inputs)
        model.train()
        apart.append(((log_probs - inputs["ref_per_token_logps"]) * inputs["completion_mask"]).abs().max().item())

    watch(seen)
    warm_up(tmp_path / "work", base, 2)
    assert len(apart) == 8
    assert max(apart) < 1e-4
