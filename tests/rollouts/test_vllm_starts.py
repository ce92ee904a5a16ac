"""How often vLLM starts, by a stand-in for its package that records its arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from snakemake.iocontainers import InputFiles

from g2d.grid.settings import SamplingMachine
from g2d.jobs.cost import Meter
from g2d.policies.record import write_policy
from g2d.problems.prompts import Prompt
from g2d.problems.synthetic import generate
from g2d.rollouts import vllm_engine
from g2d.rollouts.engine import Decoding, Request
from g2d.rollouts.rollout_keys import EngineSettings
from g2d.rollouts.vllm_engine import VllmEngine
from g2d.rollouts.weights_check import Reference, WrongWeightsError
from g2d.stages import sample_rollouts
from g2d.stages.sample_rollouts import generate_rollouts
from tests.models import tiny_policy

SHORT = Request("a", "", (5,) * 10)
LONG = Request("b", "", (5,) * 100)
DECODING = Decoding(samples_per_prompt=2, temperature=1.0, top_p=1.0, max_completion_length=4, batch_size=4, seed=0)


class LLM:
    """vLLM's class: every completion is one token."""

    started: ClassVar[list[dict[str, Any]]] = []
    finish_reason = "length"

    def __init__(self, **arguments: Any) -> None:
        self.started.append(arguments)
        self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(shutdown=lambda: None))

    def generate(self, prompts: Sequence[Any], parameters: Sequence[Any], **_: Any) -> list[Any]:
        limit = self.started[-1]["max_model_len"]
        for prompt in prompts:
            assert len(prompt["prompt_token_ids"]) < limit
        scores = [{7: SimpleNamespace(logprob=-0.1)}]
        sample = SimpleNamespace(token_ids=[7], logprobs=scores, finish_reason=self.finish_reason)
        return [SimpleNamespace(outputs=[sample] * given.n) for given in parameters]


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Arguments of every start."""
    vllm = ModuleType("vllm")
    distributed = ModuleType("vllm.distributed")
    vllm.__dict__.update(LLM=LLM, SamplingParams=SimpleNamespace)
    distributed.__dict__["cleanup_dist_env_and_memory"] = lambda: None
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.distributed", distributed)
    monkeypatch.setattr(VllmEngine, "_running", None)
    monkeypatch.setattr(vllm_engine, "policy_reference", lambda *_, **__: None)
    monkeypatch.setattr(vllm_engine, "CONTEXT_STEP", 64)
    monkeypatch.setattr(LLM, "started", [])
    return LLM.started


def test_a_longer_prompt_that_was_announced_starts_vllm_once(started: list[dict[str, Any]]) -> None:
    engine = VllmEngine(tiny_policy())
    engine.expect([SHORT, LONG], DECODING.max_completion_length)
    for request in (SHORT, LONG, SHORT):
        engine.generate([request], DECODING)
    [start] = started
    assert start["max_model_len"] == 128


def test_without_an_announcement_it_starts_again(started: list[dict[str, Any]]) -> None:
    engine = VllmEngine(tiny_policy())
    for request in (SHORT, LONG, SHORT):
        engine.generate([request], DECODING)
    first, second = started
    assert first["max_model_len"] == 64
    assert second["max_model_len"] == 128


def test_the_parts_of_a_harvest_start_it_once(
    started: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second part has the longest prompt."""
    monkeypatch.setattr(sample_rollouts, "PART", 8)
    write_policy(tmp_path / "tiny/base/policy.json", tiny_policy())
    problems = generate("arithmetic", "train", 8, seed=0)
    problems[1] = replace(problems[1], prompt=f"{'1 + ' * 40}1 = ?")
    machine = SamplingMachine(engine=EngineSettings(name="vllm"), batch_size=4).model_dump()
    job = SimpleNamespace(
        input=InputFiles(fromdict={"policy": str(tmp_path / "tiny/base/policy.json")}),
        output=SimpleNamespace(rollouts=tmp_path / "rollouts.parquet"),
        threads=1,
        params=SimpleNamespace(settings={"prompt": Prompt().params()}, machine=machine, version=1),
    )
    generate_rollouts(job, Meter("tests", "harvest_rollouts"), problems, DECODING)
    assert len(started) == 1


def test_weights_are_compared_after_every_start(started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    reference = Reference([[0.0]], None, "float32", [0], [[0.0]])
    monkeypatch.setattr(vllm_engine, "policy_reference", lambda *_, **__: reference)
    monkeypatch.setattr(vllm_engine, "require_policy", lambda *_: compared.append(len(started)))
    engine = VllmEngine(tiny_policy())
    for request in (SHORT, SHORT, LONG, LONG):
        engine.generate([request], DECODING)
    assert compared == [1, 2]


def test_the_reference_is_scored_before_vllm_takes_the_gpu(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[int] = []
    monkeypatch.setattr(vllm_engine, "policy_reference", lambda *_, **__: before.append(len(started)))
    VllmEngine(tiny_policy()).generate([SHORT], DECODING)
    assert before == [0]


@pytest.mark.parametrize("check", ["stop", "warn"])
def test_other_weights_stop_a_job_unless_it_only_warns(
    check: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise WrongWeightsError("p: 0.4 nats")

    monkeypatch.setattr(vllm_engine, "policy_reference", lambda *_, **__: Reference([[0.0]], None, "a", [0], [[0.0]]))
    monkeypatch.setattr(vllm_engine, "require_policy", refuse)
    engine = VllmEngine(tiny_policy(), EngineSettings(name="vllm", check=check))
    if check == "stop":
        with pytest.raises(WrongWeightsError):
            engine.generate([SHORT], DECODING)
    else:
        assert len(engine.generate([SHORT], DECODING)) == 1
        assert "p: 0.4 nats" in capsys.readouterr().err


def test_requests_of_any_order_have_pytorchs_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER", raising=False)
    VllmEngine(tiny_policy()).generate([SHORT], DECODING)
    assert os.environ["VLLM_USE_FLASHINFER_SAMPLER"] == "0"


@pytest.mark.parametrize("reason", ["abort", "error", None])
def test_completions_that_vllm_gave_up_are_not_used(reason: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = VllmEngine(tiny_policy())
    assert engine.sample([SHORT.prompt_ids], ["a"], DECODING) == ([[7]], [[-0.1]])
    monkeypatch.setattr(LLM, "finish_reason", reason)
    with pytest.raises(RuntimeError, match=f"gave a completion up: {reason}"):
        engine.generate([SHORT], DECODING)
    with pytest.raises(RuntimeError, match=f"gave a completion up: {reason}"):
        engine.sample([SHORT.prompt_ids], ["a"], DECODING)
