"""Tokens per second of a harvest: a plain loop, TRL's generation and the engines, side by side in one run.

    python benchmarks/harvest.py [--model DIR] [--prompts 75 150 300] [--samples 8] [--batch-size 512] [--repeats 3]
    python benchmarks/harvest.py --grpo 30        # also: a GRPO step on either engine, and the transfer of the adapter

The model is the demonstration's M0, trained first (a minute or two) unless a folder is given. Each line draws the same
prompts at the harvest's settings.

- loop: one `generate(num_return_sequences=8)` per prompt.
- trl: GRPOTrainer's function for rollouts, in batches of the same size as the next line.
- transformers: `TransformersEngine`.
- vllm: `VllmEngine` on M0, then with an adapter, merged or applied. The adapter is untrained and changes no output, so
  all three generate the same tokens.

The rates exclude imports, loading, start-up (listed below the table) and verification (benchmarks/verify.py). The best
round counts. The share outside the model is the time of one more round without the model's forward pass and logits.

On a shared machine use `--cpu-time`, to count CPU seconds of this process, and OMP_NUM_THREADS=1, because waiting
threads count.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import torch

from g2d.policies import Policy, embedded, load_base, load_model, load_tokenizer
from g2d.policies.settings import Lora, lora_config
from g2d.problems import Problem
from g2d.problems.prompts import Prompt, conversation
from g2d.problems.synthetic import generate
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.run.training import trainer_arguments
from g2d.rollouts.engine import Decoding, Engine, Request
from g2d.rollouts.settings import EngineSettings
from g2d.rollouts.transformers_engine import TransformersEngine

Clock = Callable[[], float]  # seconds


class Way(NamedTuple):
    draw: Callable[[list[Problem]], int]  # returns the number of tokens generated
    model: Callable[[], Any]  # creates the model, after its first tokens


def main() -> None:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="folder of a model; the demonstration's is trained without one")
    parser.add_argument("--prompts", type=int, nargs="+", default=[75, 150, 300], help="numbers of prompts")
    parser.add_argument("--samples", type=int, default=8, help="completions per prompt")
    parser.add_argument("--tokens", type=int, default=48, help="longest completion")
    parser.add_argument("--batch-size", type=int, default=512, help="completions generated together, where one chooses")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, of which the best counts")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds instead of seconds on the wall")
    parser.add_argument("--grpo", type=int, default=0, metavar="STEPS", help="also time so many GRPO steps per engine")
    arguments = parser.parse_args()
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} thread(s)"
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    unit = "CPU second" if arguments.cpu_time else "second"
    print(f"{device}; G'={arguments.samples}, T=1.3, at most {arguments.tokens} tokens\n", flush=True)
    base = Policy("base", "base", "base", base=str(arguments.model or embedded.FOLDER))
    adapted = replace(base, policy_id="adapted", adapter=str(fresh_adapter(base)))
    decoding = Decoding(arguments.samples, 1.3, 1.0, arguments.tokens, arguments.batch_size, 0)
    problems = generate("arithmetic", "train", max(arguments.prompts), seed=0)

    rates: dict[str, list[float]] = {}
    outside: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for name, make in ways(base, adapted, decoding).items():
        began = time.perf_counter()
        way = make()
        way.draw(problems[:2])  # whatever happens once happens here
        seconds[name] = time.perf_counter() - began
        rates[name] = [rate(way, problems[:n], arguments.repeats, clock) for n in arguments.prompts]
        outside[name] = share_outside(way, problems[: min(arguments.prompts)], clock)
    sizes = " | ".join(f"{n} prompts" for n in arguments.prompts)
    print(f"| tokens per {unit} | {sizes} | against the loop | outside the model |")
    print("|---|" + "---:|" * (len(arguments.prompts) + 2))
    for name, found in rates.items():
        gain = found[-1] / rates["loop"][-1]
        print(
            f"| {name} | " + " | ".join(f"{value:,.0f}" for value in found) + f" | {gain:.1f} | {outside[name]:.0%} |"
        )
    print("\nuntil the first completion (s): " + ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()))
    if find_spec("vllm"):
        print(f"greedy completions that vllm and transformers share: {agreement(base)}")
        print(f"exchanging the adapter of a running engine: {exchange(base, adapted, problems[0]) * 1000:.0f} ms")
        if arguments.grpo:
            grpo(base, problems, arguments.grpo)


def ways(base: Policy, adapted: Policy, decoding: Decoding) -> dict[str, Callable[[], Way]]:
    """Engines to compare, by name; each is created when it is measured."""
    engines: dict[str, Callable[[], Way]] = {
        "loop": lambda: loop(base, decoding),
        "trl": lambda: trl(base, decoding),
        "transformers": lambda: transformers(base, decoding),
    }
    if not find_spec("vllm"):
        print("vLLM is not installed: left out\n")
        return engines
    from g2d.rollouts.vllm_engine import VllmEngine

    def vllm(policy: Policy, adapters: str) -> Callable[[], Way]:
        settings = EngineSettings.model_validate({"name": "vllm", "adapters": adapters})

        def make() -> Way:
            made = VllmEngine(policy, settings)
            return engine(made, decoding, lambda: made._llm.apply_model(lambda model: model)[0])

        return make

    return engines | {
        "vllm": vllm(base, "merge"),
        "vllm, adapter merged": vllm(adapted, "merge"),
        "vllm, adapter applied": vllm(adapted, "lora"),
    }


def transformers(base: Policy, decoding: Decoding) -> Way:
    made = TransformersEngine.of(base)
    return engine(made, decoding, lambda: made.model)


def rate(way: Way, problems: list[Problem], repeats: int, clock: Clock) -> float:
    """Tokens per second of the best round."""
    best = 0.0
    for _ in range(repeats):
        began = clock()
        tokens = way.draw(problems)
        best = max(best, tokens / (clock() - began))
    return best


def share_outside(way: Way, problems: list[Problem], clock: Clock) -> float:
    """Share of the time that is spent outside the model's forward pass and logits."""
    model = way.model()
    inside = 0.0

    def clocked(method: Callable) -> Callable:
        @functools.wraps(method)
        def call(*args: object, **kwargs: object) -> object:
            nonlocal inside
            began = clock()
            result = method(*args, **kwargs)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            inside += clock() - began
            return result

        return call

    names = [name for name in ("forward", "compute_logits") if hasattr(model, name)]
    for name in names:
        setattr(model, name, clocked(getattr(model, name)))
    try:
        began = clock()
        way.draw(problems)
        return 1 - inside / (clock() - began)
    finally:
        for name in names:
            delattr(model, name)


def engine(engine: Engine, decoding: Decoding, model: Callable[[], Any]) -> Way:
    def draw(problems: list[Problem]) -> int:
        requests = [Request(p.problem_id, engine.render(conversation(p, Prompt()))) for p in problems]
        return sum(c.token_count for completions in engine.generate(requests, decoding) for c in completions)

    return Way(draw, model)


def loop(base: Policy, decoding: Decoding) -> Way:
    model, tokenizer = load_model(base), load_tokenizer(base)

    def draw(problems: list[Problem]) -> int:
        tokens = 0
        for problem in problems:
            encoded = tokenizer.apply_chat_template(
                conversation(problem, Prompt()), add_generation_prompt=True, return_tensors="pt", return_dict=True
            ).to(model.device)
            with torch.inference_mode():
                generated = model.generate(
                    **encoded,
                    do_sample=True,
                    temperature=decoding.temperature,
                    top_k=0,
                    num_return_sequences=decoding.samples_per_prompt,
                    max_new_tokens=decoding.max_completion_length,
                    pad_token_id=tokenizer.pad_token_id,
                )
            for row in generated[:, encoded["input_ids"].shape[1] :].tolist():
                tokens += row.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in row else len(row)
        return tokens

    return Way(draw, lambda: model)


def trl(base: Policy, decoding: Decoding) -> Way:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    size = decoding.batch_size
    trainer = GRPOTrainer(
        model=load_base(base),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            **trainer_arguments(mkdtemp(prefix="g2d-benchmark-"), 0),
            num_generations=decoding.samples_per_prompt,
            per_device_train_batch_size=size,
            max_completion_length=decoding.max_completion_length,
            temperature=decoding.temperature,
            top_k=0,
        ),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "1 + 1"}]}]),
        processing_class=load_tokenizer(base),
    )

    def draw(problems: list[Problem]) -> int:
        prompts = [conversation(p, Prompt()) for p in problems for _ in range(decoding.samples_per_prompt)]
        tokens = 0
        for start in range(0, len(prompts), size):
            _, completions, *_ = trainer._generate(prompts[start : start + size])
            tokens += sum(map(len, completions))
        return tokens

    return Way(draw, lambda: trainer.accelerator.unwrap_model(trainer.model))


def agreement(base: Policy) -> str:
    """Count the demonstration's test problems on which both engines give the same tokens."""
    from g2d.rollouts.vllm_engine import VllmEngine

    problems = [*generate("arithmetic", "test", 500, seed=0), *generate("word_problems", "test", 200, seed=0)]
    greedy = Decoding(1, 0.0, 1.0, 56, 512, 0)
    answers = []
    for one in (VllmEngine(base), TransformersEngine.of(base)):
        requests = [Request(p.problem_id, one.render(conversation(p, Prompt()))) for p in problems]
        answers.append(one.generate(requests, greedy))
    return f"{sum(a == b for a, b in zip(*answers, strict=True))} of {len(problems)}"


def exchange(base: Policy, adapted: Policy, problem: Problem) -> float:
    """Seconds to give a running engine another adapter; the median of ten."""
    from g2d.rollouts.vllm_engine import VllmEngine

    assert adapted.adapter is not None
    running = VllmEngine(base, adapter_rank=16)
    request = Request(problem.problem_id, running.render(conversation(problem, Prompt())))
    running.generate([request], Decoding(1, 0.0, 1.0, 1, 1, 0))
    seconds = []
    for _ in range(10):
        began = time.perf_counter()
        running.use_adapter(adapted.adapter)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def grpo(base: Policy, problems: list[Problem], steps: int) -> None:
    """Time per GRPO step on either engine, from the second step on, and what of it synchronisation takes."""
    from g2d.regimes.grpo.generation import EngineGeneration
    from g2d.regimes.grpo.train import train_grpo
    from g2d.regimes.run.job import TrainingJob

    warmup = Warmup(steps=[steps], learning_rate=2e-4, max_completion_length=26)
    print(f"\n| GRPO, {steps} steps of {warmup.completions_per_step(2)} completions | ms per step | ms of hand-over |")
    print("|---|---:|---:|")
    for settings in (EngineSettings(), EngineSettings(name="vllm")):
        with timed(EngineGeneration, "sync_weights") as handed_over:
            log = train_grpo(
                TrainingJob(
                    base,
                    problems,
                    warmup,
                    lora=Lora(),
                    group_size=2,
                    k=steps,
                    seed=0,
                    work=Path(mkdtemp(prefix="g2d-benchmark-")),
                    engine=settings,
                )
            ).log
        took = statistics.median(row["step_time"] for row in log if "step_time" in row)
        share = f"{statistics.median(handed_over) * 1000:.0f}" if handed_over else "none"
        print(f"| {settings.name} | {took * 1000:.0f} | {share} |", flush=True)


@contextmanager
def timed(owner: type, method: str) -> Iterator[list[float]]:
    """Seconds of every call of a method while the block runs."""
    original, seconds = getattr(owner, method), []

    def measured(*args: object, **kwargs: object) -> object:
        began = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - began)

    setattr(owner, method, measured)
    try:
        yield seconds
    finally:
        setattr(owner, method, original)


def fresh_adapter(base: Policy) -> Path:
    from peft import get_peft_model

    folder = Path(mkdtemp(prefix="g2d-benchmark-"))
    get_peft_model(load_base(base), lora_config(Lora())).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
