"""If a GPU runs out of memory, trainings and samplers continue with fewer rows per pass, and have the same results."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer
from transformers.models.llama import LlamaModel

from g2d.jobs.cost import Meter
from g2d.jobs.files import sha256
from g2d.policies import PolicyRecord
from g2d.problems.prompts import Prompt
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.common.checkpoints import TrainingStoppedError
from g2d.regimes.common.out_of_memory import train_within_memory
from g2d.regimes.common.regime import Regime, Trained, TrainingJob
from g2d.regimes.offline.pairs import PairKeys
from g2d.rollouts import transformers_engine
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout_keys import EngineSettings
from g2d.rollouts.transformers_engine import TransformersEngine
from g2d.rollouts.vllm_engine import VllmEngine
from tests.models import rollouts_of, texts_of, tiny_policy
from tests.regimes.any_regime import STEPS, job_of, weights
from tests.regimes.harvests import Harvest
from tests.regimes.stops import terminated_after
from tests.regimes.trainings import EVERY_STEP, NO_DROPOUT, easy, metric, microbatches, steps_of

LARGE = {"per_device_batch_size": 4, "gradient_accumulation_steps": 1}
SMALL = {"per_device_batch_size": 2, "gradient_accumulation_steps": 2}
GRPO = REGIMES["grpo"]
DPO = REGIMES["dpo"]
SEMI_ONLINE = REGIMES["semi_online_dpo"]


@pytest.fixture(scope="module")
def harvest(tmp_path_factory: pytest.TempPathFactory) -> Harvest:
    return Harvest("qwen3", tmp_path_factory.mktemp("harvest"))


@contextmanager
def memory_for(rows: int, *, training: bool = True, free_passes: int = 0) -> Iterator[list[int]]:
    """Let larger passes, with or without a gradient, run out of memory; yield the rows of the passes that did not.

    `free_passes` are not limited.
    """
    seen: list[int] = []
    forward = LlamaModel.forward

    def limited(self: LlamaModel, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() == training:
            tokens = kwargs["input_ids"] if kwargs.get("input_ids") is not None else kwargs["inputs_embeds"]
            if len(tokens) > rows and len(seen) >= free_passes:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            seen.append(len(tokens))
        return forward(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LlamaModel, "forward", limited)
        yield seen


def sequences(regime: Regime, rows: int) -> int:
    return 2 * rows if issubclass(regime.settings, PairKeys) else rows


def train(regime: Regime, job: TrainingJob[Any, Any]) -> Trained:
    return train_within_memory(regime.train, job)


@pytest.mark.parametrize("regime", REGIMES.values(), ids=REGIMES)
def test_a_training_that_halves_its_passes_has_the_bits_of_one_that_begins_with_them(
    regime: Regime, harvest: Harvest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = train(regime, job_of(regime, harvest, tmp_path / "small", **SMALL))
    assert "out of memory" not in capsys.readouterr().out
    with memory_for(sequences(regime, 2)) as seen:
        halved = train(regime, job_of(regime, harvest, tmp_path / "halved", **LARGE))
    assert capsys.readouterr().out.count("out of memory: per_device_batch_size 4 -> 2;") == 1
    assert max(seen) <= sequences(regime, 2)
    assert steps_of(halved.log) == steps_of(small.log)
    of_small = sha256(weights(tmp_path / "small", NO_DROPOUT))
    assert sha256(weights(tmp_path / "halved", NO_DROPOUT)) == of_small


@pytest.mark.parametrize("regime", [GRPO, DPO], ids=["grpo", "dpo"])
def test_it_resumes_from_the_newest_checkpoint(
    regime: Regime, harvest: Harvest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first step has one pass of 4 rows."""
    whole = steps_of(train(regime, job_of(regime, harvest, tmp_path / "whole", **LARGE)).log)
    job = replace(job_of(regime, harvest, tmp_path / "halved", **LARGE), checkpointing=EVERY_STEP)
    with memory_for(sequences(regime, 2), free_passes=1) as seen:
        log = steps_of(train(regime, job).log)
    assert "goes on from step 1," in capsys.readouterr().out
    assert seen == [sequences(regime, rows) for rows in (4, 2, 2, 2, 2)]
    assert microbatches(tmp_path / "halved").rows == 2
    assert metric(log, "step") == [*range(1, STEPS + 1)]
    assert metric(log, "loss") == pytest.approx(metric(whole, "loss"), abs=1e-5)
    assert metric(log, "grad_norm") == pytest.approx(metric(whole, "grad_norm"), rel=1e-3)


def test_a_later_attempt_keeps_the_smaller_passes(harvest: Harvest, tmp_path: Path) -> None:
    """Another process, whose limit is not known, reads them from the checkpoint."""
    job = replace(job_of(DPO, harvest, tmp_path, **LARGE), checkpointing=EVERY_STEP)
    with memory_for(4), terminated_after(1), pytest.raises(TrainingStoppedError):
        train(DPO, job)
    with memory_for(4) as seen:
        DPO.train(job_of(DPO, harvest, tmp_path, **LARGE))
    assert set(seen) == {4}


def test_passes_are_halved_until_they_fit(harvest: Harvest, tmp_path: Path) -> None:
    with memory_for(2) as seen:
        train(DPO, job_of(DPO, harvest, tmp_path, **LARGE))
    assert set(seen) == {2}
    assert microbatches(tmp_path).rows == 1


@pytest.mark.parametrize("regime", REGIMES.values(), ids=REGIMES)
def test_one_row_that_does_not_fit_is_an_error_with_the_keys_to_change(
    regime: Regime, harvest: Harvest, tmp_path: Path
) -> None:
    fix = "set training.gradient_checkpointing: true, lower max_completion_length or"
    with memory_for(0), pytest.raises(RuntimeError, match=f"out of memory with one (row|group) per pass: {fix}"):
        train(regime, job_of(regime, harvest, tmp_path, **LARGE))


@pytest.mark.parametrize(
    ("regime", "keys"),
    [(DPO, {"nll_weight": 0.1}), (GRPO, {"loss": "bnpo"}), (GRPO, {"entropy_coefficient": 0.1})],
    ids=["nll_weight", "bnpo", "entropy"],
)
def test_passes_that_are_part_of_the_result_are_not_divided(
    regime: Regime, keys: dict[str, Any], harvest: Harvest, tmp_path: Path
) -> None:
    limited = memory_for(sequences(regime, 2))
    with limited, pytest.raises(RuntimeError, match="per_device_batch_size=4, and the loss has means over the tokens"):
        train(regime, job_of(regime, harvest, tmp_path, **LARGE, **keys))


def too_large(*_: object, **__: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_a_copy_of_m0_that_does_not_fit_ends_the_training(
    harvest: Harvest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(TransformersEngine, "of", too_large)
    with pytest.raises(
        RuntimeError, match=r"out of memory for a copy of M0 beside the trainer: set engine\.name: vllm"
    ):
        train(SEMI_ONLINE, job_of(SEMI_ONLINE, harvest, tmp_path, **LARGE))
    assert "out of memory" not in capsys.readouterr().out


def test_a_copy_of_m0_is_made_again_after_unused_memory_was_freed(
    harvest: Harvest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = steps_of(train(SEMI_ONLINE, job_of(SEMI_ONLINE, harvest, tmp_path / "whole")).log)
    make = TransformersEngine.of
    failures = [too_large]

    def of(policy: PolicyRecord) -> TransformersEngine:
        if failures:
            failures.pop()()
        return make(policy)

    monkeypatch.setattr(TransformersEngine, "of", of)
    assert steps_of(train(SEMI_ONLINE, job_of(SEMI_ONLINE, harvest, tmp_path / "again")).log) == whole
    assert "out of memory" not in capsys.readouterr().out


def test_a_vllm_that_does_not_fit_ends_the_training(
    harvest: Harvest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(VllmEngine, "start", too_large)
    job = replace(job_of(GRPO, harvest, tmp_path, **LARGE), engine=EngineSettings(name="vllm", adapters="lora"))
    with pytest.raises(
        RuntimeError, match=r"out of memory at vLLM's start: lower engine\.training_gpu_memory_utilization"
    ):
        train(GRPO, job)
    assert "out of memory" not in capsys.readouterr().out


def test_the_memory_of_the_failed_attempt_is_free_before_the_next(
    harvest: Harvest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traceback of the error, and reference cycles of the trainer, would keep model and activations."""
    models: list[weakref.ref[Any]] = []
    alive: list[int] = []
    begin = Trainer.train

    def watched(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        alive.append(sum(model() is not None for model in models))
        models.append(weakref.ref(self.model))
        return begin(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train", watched)
    with memory_for(2):
        train(DPO, job_of(DPO, harvest, tmp_path, **LARGE))
    assert alive == [0, 0, 0]


def test_costs_and_tokens_count_once(harvest: Harvest, tmp_path: Path) -> None:
    whole = Meter("job", "train_grpo")
    halved = Meter("job", "train_grpo")
    train(GRPO, replace(job_of(GRPO, harvest, tmp_path / "whole", **LARGE), meter=whole))
    job = job_of(GRPO, harvest, tmp_path / "halved", **LARGE)
    with memory_for(2, free_passes=1):
        train(GRPO, replace(job, meter=halved, checkpointing=EVERY_STEP))
    assert halved.spent().tokens_generated == whole.spent().tokens_generated > 0
    assert halved.carried is None  # this process has measured all of it
    assert halved.spent().wall_s == pytest.approx(halved.measured().wall_s, abs=1)


# -------------------------------------------------------------------------------------------------------- sampling


Draw = Callable[[int], list[str]]


@pytest.fixture(params=["continuous", "generate"])
def draw(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Sample with a batch size, by continuous batching or by the model's `generate`."""
    if request.param == "generate":
        monkeypatch.setattr(transformers_engine, "is_supported", lambda _: False)

    def texts(batch_size: int) -> list[str]:
        decoding = Decoding(3, 1.0, 1.0, 12, batch_size, seed=0)
        return texts_of(rollouts_of(tiny_policy(), easy(6), Prompt(), decoding))

    return texts


def test_a_sampler_that_halves_its_batch_draws_the_same(draw: Draw, capsys: pytest.CaptureFixture[str]) -> None:
    expected = draw(18)
    with memory_for(4, training=False) as seen:
        assert draw(18) == expected
    assert max(seen) <= 4
    said = [line for line in capsys.readouterr().out.splitlines() if "out of memory" in line]
    assert said == [
        "out of memory: batch_size 18 -> 9; rollouts stay the same",
        "out of memory: batch_size 9 -> 4; rollouts stay the same",
    ]


def test_finished_samples_are_not_drawn_again(draw: Draw) -> None:
    """The first batch of 6 fits, a later one does not."""
    with memory_for(10**9, training=False) as seen:
        expected = draw(6)
    with memory_for(3, training=False, free_passes=len(seen) * 2 // 3) as again:
        assert draw(6) == expected
    assert sum(again) < 1.5 * sum(seen)


def test_one_completion_that_does_not_fit_is_an_error_with_the_key_to_change(draw: Draw) -> None:
    message = "out of memory with one completion at a time: lower max_completion_length, or use a card"
    with memory_for(0, training=False), pytest.raises(RuntimeError, match=message):
        draw(4)


@pytest.mark.parametrize("regime", [GRPO, SEMI_ONLINE], ids=["grpo", "semi_online_dpo"])
def test_a_training_whose_rollouts_do_not_fit_at_once_is_the_same(
    regime: Regime, harvest: Harvest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reference of semi-online DPO scores two rows at once, so these fit. Later steps begin with what fitted."""
    whole = steps_of(train(regime, job_of(regime, harvest, tmp_path / "whole")).log)
    capsys.readouterr()
    with memory_for(2, training=False):
        assert steps_of(train(regime, job_of(regime, harvest, tmp_path / "halved")).log) == whole
    assert capsys.readouterr().out.count("out of memory: batch_size 4 -> 2;") == 1
