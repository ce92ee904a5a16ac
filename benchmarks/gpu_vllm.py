"""Parts of `benchmarks/gpu.py` that need vLLM: its start, the check of its weights, its memory, and GRPO beside it.

Each part is a process of its own, because vLLM's state is global to a process. Weights are random but for SmolLM2.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from gpu_parts import Row, Setting

GIB = 2**30
RANK = 16
SHARE = 0.3  # of the card's memory, as beside a trainer
SECOND_7B = 44 * GIB  # a smaller card has no room for a 7B in the trainer and one in vLLM
CONTEXTS = (512, 1024)  # tokens: the first start, and the longer one


def cold_start(setting: Setting) -> Iterator[Row]:
    """Start with LoRA and nothing compiled, compare the weights, and generate."""
    from gpu_parts import Row

    shutil.rmtree(setting.out / "cache", ignore_errors=True)
    name, policy = adapted_policy(setting)
    engine = new_engine(policy, setting)
    seconds, texts, reference = started(engine)
    yield Row(f"{name}: cold start of vLLM with LoRA, s", seconds)
    yield from compared(name, engine, texts, reference)
    yield generated(name, engine, setting)


def restart(setting: Setting) -> Iterator[Row]:
    """Start again with what the cold start compiled, then for a longer context in the same process."""
    from gpu_parts import Row

    name, policy = adapted_policy(setting)
    yield from free_memory("before vLLM", setting)
    engine = new_engine(policy, setting)
    seconds, _, _ = started(engine)
    yield Row(f"{name}: warm start of vLLM with LoRA, s", seconds)
    yield generated(name, engine, setting)
    yield from free_memory("with vLLM", setting)
    begun = time.perf_counter()
    engine.start(CONTEXTS[1])
    yield Row(f"{name}: start for a longer context in the same process, s", time.perf_counter() - begun)
    yield generated(name, engine, setting)
    yield from free_memory("with the second vLLM", setting)
    engine.close()
    yield from free_memory("after it was closed", setting)


def smollm2_check(setting: Setting) -> Iterator[Row]:
    """Compare the weights of SmolLM2, a trained model."""
    from g2d.policies import PolicyRecord

    assert setting.smollm2 is not None
    policy = PolicyRecord("SmolLM2/base", "SmolLM2", "base", base=str(setting.smollm2.resolve()))
    engine = new_engine(policy, setting)
    _, texts, reference = started(engine)
    yield from compared("SmolLM2-135M", engine, texts, reference)


def grpo(setting: Setting) -> Iterator[Row]:
    """Train three GRPO steps at the paper's settings, with vLLM on the same card."""
    from gpu_parts import QUESTION, Row
    from transformers import Trainer

    from g2d.policies.model_keys import Lora
    from g2d.problems.synthetic import generate
    from g2d.regimes.common.online import Sampler
    from g2d.regimes.common.regime import TrainingJob
    from g2d.regimes.grpo.keys import Warmup
    from g2d.regimes.grpo.train import train_grpo
    from g2d.rollouts.rollout_keys import EngineSettings

    name, share = beside_a_trainer(setting)
    base = random_policy(name, setting)
    work = setting.out / "work-vllm-grpo"
    shutil.rmtree(work, ignore_errors=True)
    problems = [replace(p, prompt=QUESTION + p.prompt) for p in generate("arithmetic", "train", 64, seed=0)]
    budget = setting.or_tiny(384, 8)
    warmup = Warmup(steps=[0, 3], max_completion_length=budget, per_device_batch_size=4)
    engine = EngineSettings(name="vllm", training_gpu_memory_utilization=share)
    lora = Lora(dropout=0.0)
    job = TrainingJob(base, problems, warmup, lora=lora, seed=0, work=work, group_size=2, k=3, engine=engine)
    spent: dict[str, list[float]] = {"sync": [], "sample": [], "whole step": []}
    with (
        timed(Sampler, "sync", spent["sync"], setting),
        timed(Sampler, "sample", spent["sample"], setting),
        timed(Trainer, "training_step", spent["whole step"], setting),
    ):
        log = train_grpo(job).log
    passes = len(spent["whole step"]) // 3
    yield Row(f"{name} grpo with vLLM: s of each sync", in_words(spent["sync"]))
    yield Row(f"{name} grpo with vLLM: s of sampling 16 x {budget} tokens", in_words(spent["sample"]))
    steps = [sum(spent["whole step"][passes * step : passes * (step + 1)]) for step in range(3)]
    yield Row(f"{name} grpo with vLLM: s of each step, {passes} passes, with sync and sampling", in_words(steps))
    for what in ("min", "mean", "max"):
        ratios = [row[f"sampling/importance_sampling_ratio/{what}"] for row in log if "loss" in row]
        yield Row(f"{name} grpo with vLLM: importance ratio, {what} of each step", in_words(ratios), 1)


# ------------------------------------------------------------------------------------------------------- engines


def new_engine(policy: Any, setting: Setting) -> Any:
    from g2d.rollouts.rollout_keys import EngineSettings
    from g2d.rollouts.vllm_engine import VllmEngine

    settings = EngineSettings(name="vllm", adapters="lora")
    return VllmEngine(policy, settings, memory_utilization=SHARE)


def beside_a_trainer(setting: Setting) -> tuple[str, float]:
    """Return the model that GRPO trains beside vLLM, and vLLM's share of the memory (docs/environments.md, Limits)."""
    import torch

    if setting.tiny:
        return "tiny", SHARE
    if torch.cuda.get_device_properties(0).total_memory < SECOND_7B:
        return "qwen2.5-3b", 0.35
    return "qwen2.5-7b", 0.4


def started(engine: Any) -> tuple[float, list[list[int]], Any]:
    """Score fixed texts with transformers and start the engine, in a job's order; return its seconds, texts, scores."""
    from g2d.rollouts.weights_check import fixed_texts, load_reference

    texts = fixed_texts(engine.tokenizer)
    reference = load_reference(engine.policy, texts, may_use_gpu=True)
    begun = time.perf_counter()
    engine.start(CONTEXTS[0])
    return time.perf_counter() - begun, texts, reference


def compared(name: str, engine: Any, texts: list[list[int]], reference: Any) -> Iterator[Row]:
    """Yield the differences that the check of the weights looks at, and its verdict."""
    import numpy as np
    from gpu_parts import Row

    from g2d.rollouts.weights_check import BOUNDS, WrongWeightsError, require_same

    scores = engine.score(texts)
    own = range(len(scores)), reference.own
    errors = np.abs(np.array(scores) - np.array(reference.policy))[own]
    what = f"{name}: vLLM in {engine.dtype} against transformers in {reference.dtype}, nats per token"
    yield Row(f"{what}, mean", float(errors.mean()), BOUNDS[engine.dtype])
    yield Row(f"{what}, most", float(errors.max()))
    verdict = "passes"
    try:
        require_same(name, engine, scores, reference)
    except WrongWeightsError as error:
        verdict = f"fails: {error}"
    yield Row(f"{name}: check of the weights", verdict)


def generated(name: str, engine: Any, setting: Setting) -> Row:
    """Generate 256 completions; return the tokens per second."""
    from gpu_parts import Row

    from g2d.rollouts.engine import Decoding

    rows, length = setting.or_tiny(256, 4), setting.or_tiny(256, 8)
    prompts = [[5 + row] * 100 for row in range(rows)]
    begun = time.perf_counter()
    tokens, _ = engine.sample(prompts, list(map(str, range(rows))), Decoding(1, 1.0, 1.0, length, rows, 0))
    speed = sum(map(len, tokens)) / (time.perf_counter() - begun)
    return Row(f"{name}: vLLM, {rows} rows of at most {length} tokens, tokens/s", speed)


def free_memory(when: str, setting: Setting) -> Iterator[Row]:
    import torch
    from gpu_parts import Row

    if setting.device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        yield Row(f"free memory of the card {when}, GiB", free / GIB)


# ------------------------------------------------------------------------------------------------------- policies


def random_policy(name: str, setting: Setting) -> Any:
    """Write a model with random weights, which vLLM and the trainer load; made once for all parts."""
    from gpu_parts import configuration, random_model, tokenizer

    from g2d.policies import PolicyRecord

    folder = setting.out / f"weights-{name}"
    if not (folder / "tokenizer.json").exists():
        random_model(name, setting).save_pretrained(folder)
        configuration(name).save_pretrained(folder)
        tokenizer().save_pretrained(folder)  # last, so that a folder with it is complete
    return PolicyRecord(f"{name}/base", name, "base", base=str(folder))


def adapted_policy(setting: Setting) -> tuple[str, Any]:
    """Return a 0.5B with an adapter of random weights."""
    import torch
    from gpu_parts import random_model
    from peft import LoraConfig, get_peft_model

    name = setting.or_tiny("qwen2.5-0.5b", "tiny")
    policy = random_policy(name, setting)
    folder = setting.out / f"adapter-{name}"
    if not folder.exists():
        adapter = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=["q_proj", "v_proj"])
        model = get_peft_model(random_model(name, setting), adapter)
        torch.manual_seed(1)
        for parameter_name, weights in model.named_parameters():
            if "lora_B" in parameter_name:
                torch.nn.init.normal_(weights, std=1e-2)
        model.save_pretrained(folder)
    return name, replace(policy, adapter=str(folder))


def timed(owner: Any, name: str, seconds: list[float], setting: Setting) -> Any:
    """Append the seconds of each call of a method to a list."""
    method = getattr(owner, name)

    def measured(self: Any, *given: Any, **named: Any) -> Any:
        setting.synchronise()
        begun = time.perf_counter()
        result = method(self, *given, **named)
        setting.synchronise()
        seconds.append(time.perf_counter() - begun)
        return result

    return mock.patch.object(owner, name, measured)


def in_words(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
