"""Models for `benchmarks/gpu_parts.py`: a small trained one, and random weights of real shapes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from memory import SHAPES

SHAPES = SHAPES | {
    "qwen2.5-7b": {"vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28}
    | {"num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 32768}
}
TIED = {"tiny", "qwen2.5-0.5b"}  # one matrix for words in and out
QUESTION = "Tell me the answer. " * 16  # so that a prompt is about as long as one of MATH


def tiny_or(setting: Any, tiny: Any, real: Any) -> Any:
    """Choose by `--tiny`."""
    return tiny if setting.tiny else real


def configuration(shape: str) -> Any:
    """Return a Llama of this shape, because transformers replaces the tokenizer of a qwen2."""
    from transformers import LlamaConfig

    return LlamaConfig(**SHAPES[shape], tie_word_embeddings=shape in TIED, eos_token_id=1, pad_token_id=0)


def blank_model(shape: str, device: str, dtype: Any) -> Any:
    """Return a model with random weights, made on the device."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(configuration(shape), dtype=dtype)


def small_policy(setting: Any) -> Any:
    """The embedded model after a short training, made once."""
    from g2d.policies import Policy
    from g2d.policies.scratch import train_scratch
    from g2d.policies.settings import ScratchModel

    folder = setting.out / "small"
    if not (folder / "tokenizer.json").exists():
        # vLLM needs heads of at least 32.
        shape = {"hidden_size": 64, "layers": 2, "heads": 2}
        train_scratch(ScratchModel(source="scratch", steps=tiny_or(setting, 20, 400), muon="float32", **shape), folder)
    return Policy("small/base", "small", "base", base=str(folder))


@contextmanager
def random_weights(shape: str, setting: Any) -> Iterator[tuple[Any, Any, dict[str, int]]]:
    """Make trainers load random weights; yield the policy, its configuration and its numbers of parameters."""
    from g2d.memory.model_shape import model_shape
    from g2d.policies import Policy
    from g2d.policies.scratch import build_tokenizer
    from g2d.policies.settings import Lora
    from g2d.regimes.run import training

    folder = setting.out / f"shape-{shape}"
    config = configuration(shape)
    config.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    sizes = model_shape(config, Lora())
    with mock.patch.object(training, "load_base", lambda base: blank_model(shape, setting.device, setting.dtype)):
        base = Policy(f"{shape}/base", shape, "base", base=str(folder))
        yield base, config, {"base": sizes.parameters, "adapter": sizes.adapter}


@dataclass(frozen=True)
class Steps:
    """Seconds of the second of two steps, and the largest pass of both."""

    seconds: float
    drawing: float  # seconds of it
    rows: int
    tokens: int  # in a row
    scored: int  # in its completion
    log: list[dict[str, Any]]


def steps_of(regime: str, base: Any, setting: Any, *, rows: Any = "auto", engine: Any = None) -> Steps:
    """Two steps at the paper's settings.

    Args:
        rows: rows of a pass, 4 or "auto" for as many as fit; a step has 16.
        engine: a running `VllmEngine` to draw with; transformers if None.
    """
    import shutil
    from dataclasses import replace

    from transformers import Trainer, TrainerCallback
    from trl import DPOTrainer, GRPOTrainer

    from g2d.policies.settings import Lora
    from g2d.problems.synthetic import generate
    from g2d.regimes.grpo import generation as grpo_generation
    from g2d.regimes.grpo.generation import EngineGeneration
    from g2d.regimes.grpo.keys import Warmup
    from g2d.regimes.grpo.train import train_grpo
    from g2d.regimes.offline.dpo import Dpo, train_dpo
    from g2d.regimes.run.job import TrainingJob
    from g2d.rollouts.settings import EngineSettings

    work, ends, drawing, sizes = setting.out / f"work-{regime}", [], [0.0], [(0, 0, 0)]
    shutil.rmtree(work, ignore_errors=True)
    begin, draw = Trainer.train, EngineGeneration.draw

    class Clock(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            drawing[0] = 0.0
            ends.append(-time.perf_counter())

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            synchronise(setting)
            ends[-1] += time.perf_counter()

    def timed_train(self: Any, *given: Any, **named: Any) -> Any:
        self.add_callback(Clock())
        return begin(self, *given, **named)

    def timed_draw(self: Any, *given: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        out = draw(self, *given, **named)
        synchronise(setting)
        drawing[0] += time.perf_counter() - begun
        return out

    def sized(original: Any) -> Any:
        def loss(self: Any, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
            if "prompt_ids" in inputs:
                rows, scored = inputs["completion_ids"].shape
                tokens = inputs["prompt_ids"].shape[1] + scored
            else:
                (rows, tokens), scored = inputs["input_ids"].shape, int(inputs["completion_mask"].sum(1).max())
            sizes[0] = max(sizes[0], (rows, tokens, scored), key=lambda size: size[0] * size[1])
            return original(self, model, inputs, *given, **named)

        return loss

    problems = [replace(p, prompt=QUESTION + p.prompt) for p in generate("arithmetic", "train", 64, seed=0)]
    budget = {"grpo": tiny_or(setting, 8, 384), "dpo": tiny_or(setting, 8, 512)}[regime]
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Trainer, "train", timed_train))
        stack.enter_context(mock.patch.object(EngineGeneration, "draw", timed_draw))
        for kind in (GRPOTrainer, DPOTrainer):
            stack.enter_context(mock.patch.object(kind, "compute_loss", sized(kind.compute_loss)))
        common: dict[str, Any] = {"lora": Lora(), "seed": 0, "work": work}
        batch: Any = {"per_device_batch_size": rows}
        if engine is not None:
            common["engine"] = EngineSettings(name="vllm")
            stack.enter_context(mock.patch.object(grpo_generation, "vllm_beside_trainer", partial(started, engine)))
            stack.enter_context(mock.patch.object(EngineGeneration, "close", lambda _: None))
        if regime == "grpo":
            warmup = Warmup(steps=[0, 2], max_completion_length=budget, keep_rollouts="none", **batch)
            log = train_grpo(TrainingJob(base, problems, warmup, group_size=2, k=2, **common)).log
        else:
            log = train_dpo(
                TrainingJob(base, pairs_of(problems, base, budget), Dpo(max_steps=2, **batch), **common)
            ).log
    return Steps(ends[-1], drawing[0], *sizes[0], log)


def started(engine: Any, job: Any, problems: Any, at_once: int) -> Any:
    """Return a running engine instead of starting one beside the trainer."""
    from g2d.problems.prompts import conversation

    requests = [engine.request(problem.problem_id, conversation(problem, job.prompt)) for problem in problems]
    engine.start_for(requests, job.settings.max_completion_length)
    return engine


def pairs_of(problems: Any, base: Any, budget: int) -> Any:
    """Return a pair for each problem, both sides of about `budget` tokens."""
    from g2d.problems.prompts import Prompt, conversation
    from g2d.rollouts.tokens import pairs_with_token_ids

    sides = {side: [{"role": "assistant", "content": f"{n} " * budget}] for side, n in (("chosen", 1), ("rejected", 2))}
    return pairs_with_token_ids([{"prompt": conversation(problem, Prompt()), **sides} for problem in problems], base)


def synchronise(setting: Any) -> None:
    import torch

    if setting.device == "cuda":
        torch.cuda.synchronize()


def drawn_by_transformers(model: Any, rows: int, length: int, setting: Any) -> tuple[int, float]:
    """Tokens and seconds of `g2d.rollouts`' engine: `rows` parallel completions of `length` tokens."""
    import numpy as np
    import torch

    from g2d.rollouts.continuous_batching import ContinuousBatch
    from g2d.rollouts.engine import Decoding

    def draw(tokens: int) -> float:
        decoding = Decoding(8, 1.3, 1.0, tokens, rows, 0)
        prompts = [[5 + i] * 100 for i in range(-(-rows // 8))]
        samples = [(i // 8, i % 8) for i in range(rows)]
        numbers = np.random.default_rng(0)
        batch = ContinuousBatch(model, prompts, decoding, lambda _: numbers.random(tokens), [-1])
        begun = time.perf_counter()
        with torch.inference_mode():
            batch.complete(samples)
        synchronise(setting)
        return time.perf_counter() - begun

    draw(4)  # the first call loads kernels
    return rows * length, draw(length)


def on_disk(shape: str, setting: Any) -> Any:
    """Random weights of this shape in a folder, for an engine that reads them, and the tokenizer."""
    import torch

    from g2d.policies import Policy
    from g2d.policies.scratch import build_tokenizer

    folder = setting.out / f"weights-{shape}"
    if not (folder / "tokenizer.json").exists():
        blank_model(shape, "cpu", torch.bfloat16).save_pretrained(folder)
        build_tokenizer().save_pretrained(folder)
    return Policy(f"{shape}/base", shape, "base", base=str(folder))


def drawn_by_vllm(llm: Any, rows: int, length: int) -> tuple[int, float]:
    """Tokens and seconds of a running vLLM engine."""
    from vllm import SamplingParams

    each = min(8, rows)
    parameters = SamplingParams(temperature=1.3, max_tokens=length, ignore_eos=True, detokenize=False, n=each)
    prompts = [{"prompt_token_ids": [5 + i] * 100} for i in range(rows // each)]
    llm.generate(prompts, parameters, use_tqdm=False)
    begun = time.perf_counter()
    drawn = llm.generate(prompts, parameters, use_tqdm=False)
    seconds = time.perf_counter() - begun
    return sum(len(sample.token_ids) for output in drawn for sample in output.outputs), seconds


def blank_vllm(config: Any, out: Path) -> Any:
    """Return a vLLM engine with random weights of this configuration, without a file."""
    from g2d.rollouts.vllm_engine import prepare_environment

    prepare_environment()
    from vllm import LLM

    folder = out / "vllm-shape"
    config.save_pretrained(folder)
    return LLM(
        model=str(folder),
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=1024,
        gpu_memory_utilization=0.8,
        disable_log_stats=True,
    )


def warmed_up(policy: Any, work: Path, k: int, resume_from: Path | None = None) -> None:
    """Train the small model by GRPO to step k."""
    from g2d.policies.settings import Lora
    from g2d.problems.prompts import Prompt
    from g2d.problems.synthetic import generate
    from g2d.regimes.grpo.keys import Warmup
    from g2d.regimes.grpo.train import train_grpo
    from g2d.regimes.run.job import TrainingJob

    warmup = Warmup(steps=[0, 2, 4], horizon=6, learning_rate=1e-3, max_completion_length=16)
    values = {"prompt": Prompt(), "group_size": 2, "k": k, "seed": 0, "work": work, "resume_from": resume_from}
    problems = generate("arithmetic", "train", 40, seed=0)
    train_grpo(TrainingJob(policy, problems, warmup, lora=Lora(), **values))


def adapter_of(work: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(work / "adapter/adapter_model.safetensors")


def distance(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the distance of two adapters, relative to the first; 0 for the same bytes."""
    apart = sum(float((one[name].float() - other[name].float()).square().sum()) for name in one)
    size = sum(float(weights.float().square().sum()) for weights in one.values())
    return (apart / size) ** 0.5
