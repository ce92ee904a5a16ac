"""The real vLLM (its CPU build does) against transformers: same prompts, same text, same counts, honest samples."""

from __future__ import annotations

import errno
import multiprocessing
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from g2d.policies import PolicyRecord
from g2d.problems.prompts import Prompt
from g2d.problems.synthetic import generate
from g2d.rollouts.engine import Completion, Decoding
from g2d.rollouts.rollout import to_frame
from g2d.rollouts.rollout_keys import EngineSettings, HarvestSettings
from g2d.rollouts.sample import sampling
from g2d.rollouts.sampling import request_seed
from g2d.rollouts.transformers_engine import TransformersEngine
from g2d.rollouts.vllm_engine import VllmEngine
from tests import models
from tests.models import rollouts_of, two_ends_policy
from tests.rollouts.test_engines import one_by_one, requests, table
from tests.shared import NEEDS_VLLM

pytestmark = NEEDS_VLLM

N = 100
GREEDY = Decoding(1, 0.0, 1.0, 40, 64, 0)
SAMPLED = sampling(HarvestSettings(samples_per_prompt=4, max_completion_length=24), seed=0)


@pytest.fixture(scope="module")
def policy() -> PolicyRecord:
    return two_ends_policy(heads=1)


@pytest.fixture(scope="module")
def vllm(policy: PolicyRecord) -> VllmEngine:
    """Another engine closes it, and a test after that would start it again: those tests come last."""
    return VllmEngine(policy, adapter_rank=16)


@pytest.fixture(scope="module")
def transformers(policy: PolicyRecord) -> TransformersEngine:
    return TransformersEngine.of(policy)


@pytest.fixture(scope="module")
def adapted(policy: PolicyRecord, tmp_path_factory: pytest.TempPathFactory) -> PolicyRecord:
    """The policy with an adapter that changes its answers."""
    return models.adapted(policy, tmp_path_factory.mktemp("adapter"), std=0.5)


def identical(ours: list[list[Completion]], theirs: list[list[Completion]]) -> float:
    """Return the share of prompts with the same text; if the text is the same, so is everything else.

    Two float32 kernels differ in the last bits, which decides only between nearly tied tokens.
    """
    same = [a == b for [a], [b] in zip(ours, theirs, strict=True) if a.text == b.text]
    assert all(same)
    return len(same) / len(ours)


@pytest.mark.parametrize("budget", [40, 5])
def test_greedy_completions_equal_those_of_transformers(
    vllm: VllmEngine, transformers: TransformersEngine, budget: int
) -> None:
    asked = requests(vllm, N)
    assert asked == requests(transformers, N)
    assert vllm.end_ids == transformers.end_ids == {0, 1}
    decoding = replace(GREEDY, max_completion_length=budget)
    ours = vllm.generate(asked, decoding)
    assert identical(ours, transformers.generate(asked, decoding)) >= 0.98
    completions = table(ours)
    assert ("stop" if budget == 40 else "length") in set(completions["finish_reason"])
    cut_off = completions[completions["finish_reason"] == "length"]
    assert (cut_off["token_count"] == budget).all()


def test_a_sample_does_not_depend_on_order_or_company(vllm: VllmEngine) -> None:
    asked = requests(vllm, 24)
    drawn = vllm.generate(asked, SAMPLED)
    assert vllm.generate(asked, SAMPLED) == drawn
    assert vllm.generate(asked[::-1], SAMPLED)[::-1] == drawn
    assert one_by_one(vllm, asked[:6], SAMPLED) == drawn[:6]
    assert vllm.generate(asked, replace(SAMPLED, seed=1)) != drawn
    assert table(drawn)["text"].nunique() > len(asked)


def test_samples_follow_the_distribution_of_the_model(vllm: VllmEngine, transformers: TransformersEngine) -> None:
    """Shares of the first token in 4000 draws against softmax(logits / T), within five standard errors."""
    [request] = requests(vllm, 1)
    n = 4000
    temperature = 1.3
    drawn = vllm.generate([request], replace(SAMPLED, samples_per_prompt=n, max_completion_length=1))[0]
    counts = Counter(completion.token_ids for completion in drawn)
    encoded = vllm.tokenizer(request.prompt_text, return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        logits = transformers.model(input_ids=encoded["input_ids"]).logits[0, -1].double()
    expected = torch.softmax(logits / temperature, -1)
    for token in expected.topk(5).indices.tolist():
        p = expected[token].item()
        assert abs(counts[token,] / n - p) < 5 * (p * (1 - p) / n) ** 0.5 + 1e-9


def test_adapters_are_exchanged_in_a_running_engine(
    vllm: VllmEngine, transformers: TransformersEngine, adapted: PolicyRecord, tmp_path: Path
) -> None:
    asked = requests(vllm, N)
    base = vllm.generate(asked, GREEDY)
    running = vllm._llm
    shutil.copytree(str(adapted.adapter), tmp_path / "adapter")
    vllm.use_adapter(tmp_path / "adapter")
    shutil.rmtree(tmp_path / "adapter")  # it is in memory now
    changed = vllm.generate(asked, GREEDY)
    assert vllm._llm is running
    assert identical(changed, TransformersEngine.of(adapted).generate(asked, GREEDY)) >= 0.95
    assert changed != base
    vllm.use_adapter(None)
    assert vllm.generate(asked, GREEDY) == base


def test_rollouts_name_the_engine_and_keep_its_tokens(vllm: VllmEngine, policy: PolicyRecord) -> None:
    problems = generate("arithmetic", "train", 5, seed=0)
    drawn = rollouts_of(policy, problems, Prompt(), SAMPLED, engine=vllm, token_ids=True)
    for r in drawn:
        assert r.prompt_ids == tuple(vllm.tokenizer(r.prompt_text, add_special_tokens=False)["input_ids"])
        assert r.completion_ids is not None
        assert len(r.completion_ids) == r.token_count
        assert (r.completion_ids[-1] in vllm.end_ids) is (r.finish_reason == "stop")
        assert vllm.tokenizer.decode(r.completion_ids, skip_special_tokens=True) == r.completion_text
    rows = to_frame(drawn)
    assert rows["problem_id"].tolist() == np.repeat([problem.problem_id for problem in problems], 4).tolist()
    assert set(rows["engine"]) == {"vllm"}


def test_a_merged_adapter_answers_as_with_transformers(adapted: PolicyRecord) -> None:
    engine = VllmEngine(adapted, EngineSettings(name="vllm", adapters="merge"))
    asked = requests(engine, N)
    assert identical(engine.generate(asked, GREEDY), TransformersEngine.of(adapted).generate(asked, GREEDY)) >= 0.95


def test_an_adapter_that_cannot_be_used_is_named(policy: PolicyRecord, adapted: PolicyRecord, tmp_path: Path) -> None:
    assert adapted.adapter is not None
    lora = EngineSettings(name="vllm", adapters="lora")
    with pytest.raises(ValueError, match=r"absent/adapter_model\.safetensors: missing, cut short or not the weights"):
        VllmEngine(replace(policy, adapter=str(tmp_path / "absent")), lora)
    with pytest.raises(ValueError, match="its rank 16 exceeds the 8 this engine was made for"):
        VllmEngine(policy, adapter_rank=4).use_adapter(adapted.adapter)
    with pytest.raises(ValueError, match=r"holds merged weights; set engine\.adapters: lora"):
        VllmEngine(policy).use_adapter(adapted.adapter)


def test_seeds_of_neighbours_are_far_apart() -> None:
    """Sample j is drawn with seed + j, so two problems must not share a range."""
    seeds = []
    for seed in range(3):
        seeds += [request_seed(seed, f"problem-{i}") for i in range(2000)]
    assert np.diff(sorted(seeds)).min() > 10_000
    assert min(seeds) >= 0
    assert max(seeds) < 2**62


def test_without_shared_memory_the_folder_is_named(policy: PolicyRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    def lock() -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(multiprocessing, "Lock", lock)
    with pytest.raises(ValueError, match=r"^/dev/shm: .*Read-only file system"):
        VllmEngine(policy).start(256)
